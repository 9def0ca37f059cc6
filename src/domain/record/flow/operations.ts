import { type Static, Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { type Call, listed, type Operation, unary } from "../../../kit/operation.ts";
import { rateMinutesDefault, rateMinutesMax } from "./limits.ts";
import type { EdgeKind, Flow } from "./service.ts";
import { Rate, rateJson } from "./wire.ts";

const text = Type.String();
const Hours = Type.Object({
  hours: maybe.count("Hours that are looked back: 24 when left out, at most 168."),
});

interface FlowView {
  kind: EdgeKind;
  route: string;
  summary: string;
  /** What the two ends of an edge are called. */
  fields: readonly [source: string, target: string];
  /** The fields that name functions, for deny policies. */
  functions: readonly string[];
  /** The field that names what callers subscribe to, and the names by which a deny policy may mean it. */
  event?: { field: string; namesOf: (name: string) => readonly string[] };
}

/** With the namespace and without. */
const eventNames = (name: string) => [name, `events:${name}`];
/** Topics differ from events by their namespace alone. */
const topicNames = (name: string) => [`topic:${name}`];

const views: readonly FlowView[] = [
  {
    kind: "start",
    route: "GET /api/v1/flow/start-edges",
    summary: "Which events started runs of which functions, most often first.",
    fields: ["event_name", "function_id"],
    functions: ["function_id"],
    event: { field: "event_name", namesOf: eventNames },
  },
  {
    kind: "emit",
    route: "GET /api/v1/flow/emit-edges",
    summary: "Which functions emitted which events, most often first.",
    fields: ["function_id", "event"],
    functions: ["function_id"],
    event: { field: "event", namesOf: eventNames },
  },
  {
    kind: "invoke",
    route: "GET /api/v1/flow/invoke-edges",
    summary: "Which functions invoked which others, most often first.",
    fields: ["parent_function_id", "child_function_id"],
    functions: ["parent_function_id", "child_function_id"],
  },
  {
    kind: "stream",
    route: "GET /api/v1/flow/stream-edges",
    summary: "Which events were appended to streams of which types of entities, most often first.",
    fields: ["entity_type", "event"],
    functions: [],
    event: { field: "event", namesOf: eventNames },
  },
  {
    kind: "topic",
    route: "GET /api/v1/flow/topic-edges",
    summary: "Which functions published on which topics, most often first.",
    fields: ["function_id", "topic"],
    functions: ["function_id"],
    event: { field: "topic", namesOf: topicNames },
  },
  {
    kind: "wait",
    route: "GET /api/v1/flow/wait-edges",
    summary: "Which functions waited for which events, most often first.",
    fields: ["function_id", "event_name"],
    functions: ["function_id"],
    event: { field: "event_name", namesOf: eventNames },
  },
];

const Minutes = Type.Object({
  minutes: Type.Optional(
    Type.Integer({
      ...{ minimum: 1, maximum: rateMinutesMax },
      description: `Minutes that are looked back: ${rateMinutesDefault} when left out, at most ${rateMinutesMax}.`,
    }),
  ),
});

export const MinuteRates = Type.Object({
  minutes: Type.Array(
    Type.Composite([
      Type.Object({
        at: described(Type.String({ format: "date-time" }), "When the minute begins, RFC 3339."),
      }),
      Rate,
    ]),
    { description: "Oldest first; the last one is the present minute so far." },
  ),
});

type EdgeJson = Record<string, string | number>;

/** Leaves out edges with an event or a topic that deny policies keep from the caller. */
async function screened(
  edges: readonly EdgeJson[],
  { event }: FlowView,
  call: Call,
): Promise<readonly EdgeJson[]> {
  const screen = event && (await call.screen("events:subscribe", "event"));
  if (!screen) return edges;
  const kept: EdgeJson[] = [];
  for (const edge of edges)
    if ((await screen.refusalOf(event.namesOf(String(edge[event.field])))) === undefined) kept.push(edge);
  return kept;
}

/** Edges name functions, and events or topics: callers need to read the one and subscribe to the other. */
const actionsOf = ({ functions, event }: FlowView): [string, ...string[]] => {
  if (functions.length === 0) return ["entities:read", "events:subscribe"];
  return event ? ["functions:read", "events:subscribe"] : ["functions:read"];
};

function flowOperation(flow: Flow, view: FlowView): Operation {
  const { kind, route, summary, fields, functions } = view;
  const [source, target] = fields;
  const [action, ...further] = actionsOf(view);
  return unary({
    ...{ name: `flow.${kind}Edges`, action, summary, rest: route, reads: true },
    ...(further.length > 0 && { alsoAsks: further, costs: () => further }),
    input: Hours,
    output: Type.Object({
      edges: Type.Array(
        Type.Object({
          [source]: text,
          [target]: text,
          count: shape.count("How often it happened in the hours asked for."),
        }),
        { description: "Edges along which most happened, at most 1,000." },
      ),
      since: Type.String({ format: "date-time" }),
      uncounted: shape.count("What happened along edges that were not told apart, as there were too many."),
      truncated: Type.Boolean(),
    }),
    ...(functions.length > 0 && {
      lists: listed((edge: EdgeJson) => functions.map((field) => String(edge[field])), {
        ...{ under: "edges", type: "function" },
      }),
    }),
    async handle({ hours }: Static<typeof Hours>, call) {
      const { edges, since, uncounted, isCut } = await flow.map(call.environmentId, kind, hours);
      const named = edges.map(
        (edge): EdgeJson => ({ [source]: edge.source, [target]: edge.target, count: edge.count }),
      );
      return {
        ...{ edges: await screened(named, view, call), since: rfc3339(since) },
        ...{ uncounted, truncated: isCut },
      };
    },
  });
}

/** `GET /api/v1/flow/webhooks` is of the webhooks. */
/** The minutes that the overview's rates are made of. */
const ratesOperation = (flow: Flow): Operation =>
  unary({
    name: "overview.rates",
    action: "runs:read",
    reads: true,
    summary: "What happened in each of the last minutes: events written, runs created, and how runs ended.",
    input: Minutes,
    output: MinuteRates,
    rest: "GET /api/v1/overview/rates",
    handle: async ({ minutes = rateMinutesDefault }, call) => ({
      minutes: (await flow.minutes(call.environmentId, minutes)).map(({ minute, ...rate }) => ({
        at: rfc3339(minute),
        ...rateJson(rate),
      })),
    }),
  });

export const flowOperations = (flow: Flow): Operation[] => [
  ...views.map((view) => flowOperation(flow, view)),
  ratesOperation(flow),
];
