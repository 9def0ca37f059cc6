import type { Fault } from "../kit/fault.ts";
import type { Call, Thing } from "../kit/operation.ts";
import type { Screen } from "../kit/screen.ts";
import type { Action } from "./actions.ts";

interface KindOfThing {
  /** Its type in the resources of policies. */
  type: string;
  /** Every action that shows it: who is denied one of them does not see it at any door. */
  shownBy: readonly Action[];
}

/** Kinds of things that doors of other kinds show as well: frames, queries, graphs, jobs, subscriptions. */
export const kindsOfThings = {
  event: { type: "event", shownBy: ["events:subscribe"] },
  stream: { type: "stream", shownBy: ["entities:read", "streams:read"] },
  run: { type: "run", shownBy: ["runs:read"] },
  function: { type: "function", shownBy: ["functions:read", "functions:list"] },
  worker: { type: "workers", shownBy: ["functions:read"] },
  projection: { type: "projection", shownBy: ["projections:read"] },
  schema: { type: "event", shownBy: ["schemas:read"] },
  secret: { type: "secret", shownBy: ["secrets:read"] },
  config: { type: "config", shownBy: ["secrets:read"] },
  kv: { type: "kv", shownBy: ["secrets:read"] },
  webhook: { type: "webhook", shownBy: ["webhooks:read"] },
  policy: { type: "policy", shownBy: ["orgs:read"] },
  role: { type: "role", shownBy: ["orgs:read"] },
  user: { type: "user", shownBy: ["users:read"] },
  environment: { type: "environments", shownBy: ["functions:list"] },
} as const satisfies Record<string, KindOfThing>;

export type ThingKind = keyof typeof kindsOfThings;

/** A thing under each of these names, and each action that shows it. */
export const thingsOf = (kind: ThingKind, ...names: readonly string[]): Thing[] => {
  const { type, shownBy } = kindsOfThings[kind];
  return shownBy.flatMap((action) => names.map((id) => ({ type, id, action })));
};

/** All things of the kind whose names the pattern matches: a policy that may hide one of them hides these. */
export const allThingsOf = (kind: ThingKind, ...patterns: readonly string[]): Thing[] =>
  thingsOf(kind, ...(patterns.length === 0 ? ["*"] : patterns)).map((thing) => ({
    ...thing,
    isPattern: true,
  }));

/** The names by which a policy may mean an event: its own, and the one that subscribers use. */
export const namesOfEvent = (name: string): string[] => [name, `events:${name}`];

/** An event as policies mean it. */
interface EventAsked {
  name: string;
  /** Of the stream that it was appended to. */
  entity_id?: string | null | undefined;
}

/** An event is hidden by its own name, and with the stream that it belongs to. */
export const thingsOfEvent = ({ name, entity_id: stream }: EventAsked): Thing[] => [
  ...thingsOf("event", ...namesOfEvent(name)),
  ...(stream === null || stream === undefined ? [] : thingsOf("stream", stream)),
];

/** A message about an event: on the topic of its name, or on that of its entity, which names both. */
export function thingsOfMessage({
  topic,
  entity_id: stream,
}: {
  topic: string;
  entity_id?: string | null;
}): Thing[] {
  const before = topic.startsWith("entity:") ? `.${stream}.` : "events:";
  const at = topic.indexOf(before);
  const name = at < 0 ? topic : topic.slice(at + before.length);
  return [...thingsOf("event", topic), ...thingsOfEvent({ name, entity_id: stream })];
}

/** The actions that `alsoAsks` of an operation names when its handler shows things of these kinds. */
export const actionsThatShow = (...kinds: readonly ThingKind[]): Action[] => [
  ...new Set(kinds.flatMap((kind): readonly Action[] => kindsOfThings[kind].shownBy)),
];

const kinds: readonly KindOfThing[] = Object.values(kindsOfThings);

/** The actions that show things of this type; the first kind of it counts. */
export const actionsThatShowType = (type: string): readonly Action[] =>
  kinds.find((kind) => kind.type === type)?.shownBy ?? [];

/** The deny policies that may keep things of some kinds from a caller. */
export type ThingScreen = ReturnType<typeof screenOf>;

const keyOf = ({ action, type }: { action?: string; type: string }): string => `${action} ${type}`;

const screenOf = (screens: ReadonlyMap<string, Screen>) => ({
  /** The refusal of what is these things at once; undefined: the caller may have it. */
  refusalOf(things: readonly Thing[]): Fault | undefined | Promise<Fault | undefined> {
    const refusalFrom = (from: number): Fault | undefined | Promise<Fault | undefined> => {
      for (let at = from; at < things.length; ) {
        const { isPattern } = things[at]!;
        const key = keyOf(things[at]!);
        const names: string[] = [];
        for (; at < things.length && keyOf(things[at]!) === key && things[at]!.isPattern === isPattern; at++)
          names.push(things[at]!.id);
        const refused = screens.get(key)?.refusalOf(names, isPattern);
        if (refused instanceof Promise) return refused.then((found) => found ?? refusalFrom(at));
        if (refused) return refused;
      }
      return undefined;
    };
    return refusalFrom(0);
  },
});

/**
 * What deny policies keep from the caller of things of these kinds, as of now. Undefined, at once, for a
 * caller without any: nothing is asked about it.
 */
export function screenOfKinds(
  call: Pick<Call, "screen">,
  ...kinds: readonly ThingKind[]
): ThingScreen | undefined | Promise<ThingScreen | undefined> {
  return screenOfAsks(call, asksOf(...kinds));
}

export interface AskedKind {
  action: string;
  type: string;
}

/** Under which actions things of these kinds are asked about. */
export const asksOf = (...kinds: readonly ThingKind[]): AskedKind[] =>
  kinds.flatMap((kind) => {
    const { type, shownBy } = kindsOfThings[kind];
    return shownBy.map((action) => ({ action, type }));
  });

export const asksOfAll = asksOf(...(Object.keys(kindsOfThings) as ThingKind[]));

/** The same for things of any type. */
export function screenOfAsks(
  call: Pick<Call, "screen">,
  asks: readonly AskedKind[],
): ThingScreen | undefined | Promise<ThingScreen | undefined> {
  const screens = new Map<string, Screen>();
  const opened: Promise<void>[] = [];
  for (const { action, type } of asks) {
    const key = keyOf({ action, type });
    const found = call.screen(action, type);
    if (found instanceof Promise) opened.push(found.then((read) => void (read && screens.set(key, read))));
    else if (found) screens.set(key, found);
  }
  const whole = () => (screens.size === 0 ? undefined : screenOf(screens));
  return opened.length === 0 ? whole() : Promise.all(opened).then(whole);
}

export type HidesEvent = (event: EventAsked) => Promise<boolean>;

/** Which events deny policies keep from the caller, as of now. */
export async function hiderOfEvents(call: Pick<Call, "screen">): Promise<HidesEvent> {
  const screen = await screenOfKinds(call, "event", "stream");
  return async (event) => (await screen?.refusalOf(thingsOfEvent(event))) !== undefined;
}

/** Of the ids of functions that another thing names, those that no deny policy hides from the caller. */
export async function shownFunctions(call: Pick<Call, "screen">) {
  const screen = await screenOfKinds(call, "function");
  return async (ids: readonly string[]): Promise<string[]> => {
    const shown: string[] = [];
    for (const id of ids) if (!(await screen?.refusalOf(thingsOf("function", id)))) shown.push(id);
    return shown;
  };
}

/** A run as far as it shows the event that it began with. */
interface Begun {
  eventName: string;
  inputStream: string | null;
  input: string | null;
  attributes: readonly unknown[];
}

/** A run shows its event by input and attributes: where a policy hides the event, it comes without. */
export async function withoutHiddenInputs<Run extends Begun>(
  call: Pick<Call, "screen">,
  runs: readonly Run[],
): Promise<readonly Run[]> {
  const screen = await screenOfKinds(call, "event", "stream");
  if (!screen) return runs;
  const shown: Run[] = [];
  for (const run of runs) {
    const refused = await screen.refusalOf(
      thingsOfEvent({ name: run.eventName, entity_id: run.inputStream }),
    );
    shown.push(refused ? { ...run, input: null, attributes: [] } : run);
  }
  return shown;
}
