import type { Chance } from "../support/chance.ts";

/** Calls that log something under a key. `Slot` is the server's own, as the leader fires one. */
export const verbs = [
  "Emit",
  "Trigger",
  "TriggerSync",
  "TriggerBatch",
  "InvokeFunction",
  "InvokeFunctionSync",
  "Publish",
  "PublishBatch",
  "Slot",
] as const;
export type Verb = (typeof verbs)[number];

export interface Item {
  /** Of the event, the function or the topic. */
  name: string;
  key: string | undefined;
  /** Stands in the data: tells what was logged. */
  tag: number;
}

/** One call: all of its items are logged, or none. */
export interface Unit {
  verb: Verb;
  items: Item[];
  /** The key goes as a header. */
  byHeader: boolean;
}

export interface First {
  eventId: string;
  runIds: string[] | undefined;
  sequence: string | undefined;
}

export interface Answer {
  status: number;
  message: string;
  results: First[];
}

const isBatch = (verb: Verb) => verb === "TriggerBatch" || verb === "PublishBatch";
export const isTopic = ({ verb }: Unit) => verb === "Publish" || verb === "PublishBatch";
const isInvoke = ({ verb }: Unit) => verb.startsWith("Invoke") || verb === "Slot";

/** What every use of a key must agree on. */
export const useOf = (unit: Unit, { name }: Item): string =>
  isTopic(unit) ? `topic:${name}` : isInvoke(unit) ? name : "emit";

/** Keys of the server's own stand apart from callers'. */
export const nameOf = (unit: Unit, key: string) => `${unit.verb === "Slot" ? "own " : ""}${key}`;

export const functions = ["invoked.one", "invoked.two"];
export const illegalName = "a..b";

export interface Pool {
  keys: readonly string[];
  nextTag: () => number;
}

export function drawUnit(chance: Chance, { keys, nextTag }: Pool): Unit {
  const verb = chance.happens(0.45)
    ? chance.oneOf(["TriggerBatch", "PublishBatch"] as const)
    : chance.oneOf(verbs);
  const names = verb.startsWith("Publish")
    ? ["t.one", "t.two"]
    : isInvoke({ verb } as Unit)
      ? functions
      : verb === "TriggerSync"
        ? ["plain", "start"]
        : ["plain", "start", "calm"];
  const count = isBatch(verb) ? chance.between(1, 6) : 1;
  const favourite = chance.oneOf(names);
  const items = Array.from(
    { length: count },
    (): Item => ({
      name: chance.happens(0.7) ? favourite : chance.oneOf(names),
      key: verb === "Slot" || chance.happens(0.6) ? chance.oneOf(keys) : undefined,
      tag: nextTag(),
    }),
  );
  if (isBatch(verb) && chance.happens(0.04)) items[chance.between(0, count - 1)]!.name = illegalName;
  return { verb, items, byHeader: !isBatch(verb) && verb !== "Slot" && chance.happens(0.3) };
}

/** What calls one after the other come to. */
export class Model {
  readonly used = new Map<string, { use: string; first: First }>();
  readonly events: number[] = [];
  readonly messages: number[] = [];

  /** Sentences about what is not as it should be; the model goes on with what the answer says of what is new. */
  check(unit: Unit, answer: Answer): string[] {
    const said = () => `${JSON.stringify(unit)} answered ${JSON.stringify(answer)}`;
    const field = isTopic(unit) ? "messages" : "events";
    const bad = unit.items.findIndex(({ name }) => name === illegalName);
    if (bad >= 0)
      return answer.status === 400 && answer.message.startsWith(`${field}[${bad}].`)
        ? []
        : [`illegal item ${bad}: ${said()}`];
    const mine = new Map<string, { use: string; at: number }>();
    const clashes: number[] = [];
    for (const [at, item] of unit.items.entries()) {
      if (item.key === undefined) continue;
      const name = nameOf(unit, item.key);
      const use = useOf(unit, item);
      const first = this.used.get(name) ?? mine.get(name);
      if (!first) mine.set(name, { use, at });
      else if (first.use !== use) clashes.push(at);
    }
    if (clashes.length > 0) {
      const named = answer.message.startsWith(`${field}[${clashes[0]}]: `);
      return answer.status === 409 && (named || !isBatch(unit.verb))
        ? []
        : [`items ${clashes} use a key for something else: ${said()}`];
    }
    if (answer.status !== 200 || answer.results.length !== unit.items.length)
      return [`nothing stands against it: ${said()}`];
    return unit.items
      .flatMap((item, at) => this.#take(unit, item, answer.results, at, mine))
      .map((what) => `${what}: ${said()}`);
  }

  #take(
    unit: Unit,
    item: Item,
    results: readonly First[],
    at: number,
    mine: ReadonlyMap<string, { at: number }>,
  ): string[] {
    const result = results[at]!;
    const name = item.key === undefined ? undefined : nameOf(unit, item.key);
    const known = name === undefined ? undefined : this.used.get(name);
    const twin = name === undefined ? undefined : mine.get(name);
    const first = known?.first ?? (twin && twin.at < at ? results[twin.at] : undefined);
    if (first)
      return isSame(first, result) ? [] : [`item ${at} is not answered the first ${JSON.stringify(first)}`];
    if (name !== undefined) this.used.set(name, { use: useOf(unit, item), first: result });
    (isTopic(unit) ? this.messages : this.events).push(item.tag);
    const runs = item.name === "start" || isInvoke(unit) ? 1 : 0;
    return result.runIds === undefined || result.runIds.length === runs
      ? []
      : [`item ${at} started not ${runs} runs`];
  }
}

/** As far as both say it: some calls answer runs alone, some the event alone. */
export const isSame = (one: First, other: First): boolean =>
  (["eventId", "sequence"] as const).every(
    (field) => !one[field] || !other[field] || one[field] === other[field],
  ) &&
  (!one.runIds || !other.runIds || one.runIds.join() === other.runIds.join());

/** What the store holds of a log after the calls. */
export interface Logged {
  id: string;
  position: number;
  tag: number;
}

export interface Stored {
  events: readonly Logged[];
  messages: readonly Logged[];
  /** By name as `nameOf` says; `use` as `useOf` says. */
  keys: ReadonlyMap<string, { use: string; eventId: string }>;
}

/** Whether calls that went side by side can have come one after the other: sentences about what cannot. */
export function explain(calls: readonly { unit: Unit; answer: Answer }[], stored: Stored): string[] {
  const wrong: string[] = [];
  const logged = new Map([...stored.events, ...stored.messages].map((row) => [row.tag, row]));
  const ids = new Map([...logged.values()].map((row) => [row.id, row]));
  const answers = new Map<string, First>();
  for (const { unit, answer } of calls) {
    const say = (what: string) =>
      wrong.push(`${what}: ${JSON.stringify(unit)} answered ${JSON.stringify(answer)}`);
    if (answer.status !== 200) {
      for (const { tag } of unit.items)
        if (logged.has(tag)) say(`${tag} is logged of a unit that was refused`);
      const at = Number(/^\w+\[(\d+)\]/.exec(answer.message)?.[1] ?? 0);
      const item = unit.items[at];
      if (answer.status === 400 && item?.name === illegalName) continue;
      const key = item?.key;
      const use = item && useOf(unit, item);
      const other = key === undefined ? undefined : stored.keys.get(nameOf(unit, key));
      const before = unit.items.slice(0, at).some((one) => one.key === key && useOf(unit, one) !== use);
      if (answer.status !== 409 || key === undefined || !((other && other.use !== use) || before))
        say("refused for no reason that can be seen");
      continue;
    }
    if (answer.results.length !== unit.items.length) say("the answer has another length");
    let last = 0;
    for (const [at, item] of unit.items.entries()) {
      const result = answer.results[at];
      if (!result) continue;
      const row = logged.get(item.tag);
      if (row) {
        if (row.position <= last) say(`item ${at} is not logged in its order`);
        last = row.position;
      }
      if (item.key === undefined) {
        if (!row || (result.eventId && row.id !== result.eventId)) say(`item ${at} is acked and not logged`);
        continue;
      }
      const name = nameOf(unit, item.key);
      const key = stored.keys.get(name);
      if (!key || key.use !== useOf(unit, item)) say(`item ${at} is acked, and its key says something else`);
      if (result.eventId && !ids.has(result.eventId))
        say(`item ${at} is answered an event that is not there`);
      if (key && result.eventId && key.eventId !== result.eventId)
        say(`item ${at} is answered another event`);
      const first = answers.get(name);
      if (first && !isSame(first, result)) say(`item ${at} is not answered what others with its key are`);
      if (!first?.eventId) answers.set(name, result);
      const twin = unit.items.findIndex((one) => one.key === item.key);
      if (row && twin < at) say(`item ${at} is logged, and not the first of its key`);
    }
  }
  for (const [name, { eventId }] of stored.keys)
    if (!ids.has(eventId)) wrong.push(`key ${name} is taken for an event that is not there`);
  return wrong;
}
