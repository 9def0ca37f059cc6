import { type ThingKind, thingsOf, thingsOfEvent, thingsOfMessage } from "../../../gate/things.ts";
import type { Thing } from "../../../kit/operation.ts";

/** What a frame is about: by the part of its topic after the kind, and by its content if that says more. */
interface KindOfFrame {
  /** The kinds of things that it is about. */
  shows: readonly ThingKind[];
  thingsOf: (rest: string, data: () => Record<string, unknown>) => Thing[];
}

/** All of the topic but its last segment, the verb; names may have dots. */
const beforeVerb = (rest: string): string => rest.slice(0, Math.max(0, rest.lastIndexOf(".")));
const firstSegment = (rest: string): string => rest.split(".", 1)[0]!;

const about = (kind: ThingKind, idOf: (rest: string) => string = beforeVerb): KindOfFrame => ({
  shows: [kind],
  thingsOf: (rest) => thingsOf(kind, idOf(rest)),
});

/** Every beginning of the text that ends before a dot: names and what follows them may have dots. */
const beginnings = (rest: string): string[] =>
  [...rest.matchAll(/\./g)].map(({ index }) => rest.slice(0, index));

/** What carries no such text names nothing. */
const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

/**
 * Every kind of frame, by the first segment of `system.{kind}.…`, with the things that deny policies are
 * asked about before a subscriber gets it. A topic of another kind cannot be published.
 */
export const kindsOfFrames = {
  run: about("run", firstSegment),
  function: about("function"),
  cron: about("function"),
  worker: about("worker"),
  stream: {
    shows: ["stream", "event"],
    thingsOf(rest, data) {
      const name = textOf(data().event_name);
      const entity_id = beforeVerb(rest);
      return name === "" ? thingsOf("stream", entity_id) : thingsOfEvent({ name, entity_id });
    },
  },
  outbox: {
    shows: ["stream", "event"],
    thingsOf(_rest, data) {
      const { topic, entity_id } = data();
      return thingsOfMessage({ topic: textOf(topic), entity_id: textOf(entity_id) || null });
    },
  },
  secret: about("secret"),
  config: about("config"),
  group: {
    shows: ["event"],
    thingsOf: (_rest, data) => thingsOf("event", `group:${textOf(data().name)}`),
  },
  webhook_source: about("webhook"),
  webhook_endpoint: about("webhook"),
  schema: about("schema"),
  enforcement: about("schema", () => "*"),
  environment: about("environment"),
  projection: { shows: ["projection"], thingsOf: (rest) => thingsOf("projection", ...beginnings(rest)) },
  projection_health: about("projection", (rest) => rest),
  // Their subscribers are asked for each list: see `changed-lists.ts`.
  changed: { shows: [], thingsOf: () => [] },
  platform: { shows: [], thingsOf: () => [] },
} as const satisfies Record<string, KindOfFrame>;

type FrameKindName = keyof typeof kindsOfFrames;

/** A topic of a kind that has said what it is about. */
export type FrameTopic = `system.${FrameKindName}.${string}`;

const isKnown = (name: string): name is FrameKindName => Object.hasOwn(kindsOfFrames, name);

/** The kinds of things that frames of this kind show; of all kinds for a wildcard. */
export function shownByFrames(token: string): ThingKind[] {
  const names = isKnown(token) ? [token] : (Object.keys(kindsOfFrames) as FrameKindName[]);
  return [...new Set(names.flatMap((name): readonly ThingKind[] => kindsOfFrames[name].shows))];
}

/** What a frame is about. Undefined for a kind that this version does not know: it may be about anything. */
export function thingsOfFrame({ topic, data }: { topic: string; data: string }): Thing[] | undefined {
  const [, name = ""] = topic.split(".", 2);
  if (!isKnown(name)) return undefined;
  const { thingsOf: read }: KindOfFrame = kindsOfFrames[name];
  return read(topic.slice(`system.${name}.`.length), () => JSON.parse(data) as Record<string, unknown>);
}
