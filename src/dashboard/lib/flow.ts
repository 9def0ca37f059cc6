import { rest } from "./api.ts";
import { listFunctions } from "./functions.ts";
import { queryOf } from "./router.ts";
import { may } from "./session.ts";

export type FlowKind = "function" | "event" | "topic" | "stream" | "webhook" | "schedule";

export interface FlowEnd {
  kind: FlowKind;
  name: string;
}

/** Something leads from one thing to another; without a count it is known to, but was not counted. */
export interface FlowEdge {
  from: FlowEnd;
  to: FlowEnd;
  verb: string;
  count: number | undefined;
}

export interface FlowData {
  edges: FlowEdge[];
  /** There are more than the server tells. */
  isCut: boolean;
}

type EdgeData = Record<string, string> & { count: number };

const end = (kind: FlowKind, name = ""): FlowEnd => ({ kind, name });

interface CountedFlow {
  path: string;
  verb: string;
  needs: readonly string[];
  ends(edge: EdgeData): readonly [FlowEnd, FlowEnd];
}

/** The server's counts of what flowed, each with the actions that it asks for. */
const counted: readonly CountedFlow[] = [
  {
    ...{ path: "start-edges", verb: "starts", needs: ["functions:read", "events:subscribe"] },
    ends: (edge) => [end("event", edge.event_name), end("function", edge.function_id)],
  },
  {
    ...{ path: "emit-edges", verb: "emits", needs: ["functions:read", "events:subscribe"] },
    ends: (edge) => [end("function", edge.function_id), end("event", edge.event)],
  },
  {
    ...{ path: "invoke-edges", verb: "invokes", needs: ["functions:read"] },
    ends: (edge) => [end("function", edge.parent_function_id), end("function", edge.child_function_id)],
  },
  {
    ...{ path: "stream-edges", verb: "appends", needs: ["entities:read", "events:subscribe"] },
    ends: (edge) => [end("stream", edge.entity_type), end("event", edge.event)],
  },
  {
    ...{ path: "topic-edges", verb: "publishes on", needs: ["functions:read", "events:subscribe"] },
    ends: (edge) => [end("function", edge.function_id), end("topic", edge.topic)],
  },
  {
    ...{ path: "wait-edges", verb: "wakes", needs: ["functions:read", "events:subscribe"] },
    ends: (edge) => [end("event", edge.event_name), end("function", edge.function_id)],
  },
];

/** Functions whose triggers are drawn. */
const functionsAsked = 500;

async function triggers(signal: AbortSignal): Promise<FlowEdge[]> {
  if (!may("functions:list")) return [];
  const { functions } = await listFunctions({ limit: functionsAsked }, signal);
  return functions.flatMap(({ id, triggers: own }) => {
    const namesOf = (kind: "event" | "cron") => [...new Set(own.map((one) => one[kind]).filter(Boolean))];
    const starts = [
      ...namesOf("event").map((name) => end("event", name)),
      ...namesOf("cron").map((name) => end("schedule", name)),
    ];
    return starts.map((from) => ({ from, to: end("function", id), verb: "starts", count: undefined }));
  });
}

async function webhooks(signal: AbortSignal): Promise<FlowEdge[]> {
  if (!may("webhooks:read")) return [];
  const { sources, edges } = await rest<{
    sources: { id: string; name: string }[];
    edges: { event: string; source_id: string }[];
  }>("/api/v1/flow/webhooks", { signal });
  const names = new Map(sources.map(({ id, name }) => [id, name || id]));
  return edges.map(({ event, source_id }) => ({
    ...{ from: end("webhook", names.get(source_id)), to: end("event", event) },
    ...{ verb: "sends", count: undefined },
  }));
}

/** What led to what in the last hours, as far as the viewer may know. */
export async function readFlow(hours: string, signal: AbortSignal): Promise<FlowData> {
  const asked = counted.filter(({ needs }) => needs.every(may));
  const [own, sent, ...answers] = await Promise.all([
    triggers(signal),
    webhooks(signal),
    ...asked.map(({ path }) =>
      rest<{ edges: EdgeData[]; truncated: boolean; uncounted: number }>(
        `/api/v1/flow/${path}${queryOf({ hours })}`,
        { signal },
      ),
    ),
  ]);
  const told = answers.flatMap(({ edges }, index) =>
    edges.map((edge): FlowEdge => {
      const { ends, verb } = asked[index]!;
      const [from, to] = ends(edge);
      return { from, to, verb, count: edge.count };
    }),
  );
  const keyOf = ({ from, verb, to }: FlowEdge) => `${from.kind} ${from.name} ${verb} ${to.name}`;
  const started = new Set(told.map(keyOf));
  const idle = own.filter((edge) => !started.has(keyOf(edge)));
  return {
    edges: [...told.sort((one, other) => other.count! - one.count!), ...sent, ...idle],
    isCut: answers.some(({ truncated, uncounted }) => truncated || uncounted > 0),
  };
}
