import { breather } from "../../../../kit/breather.ts";
import type { Basics, Store } from "../../../../store/store.ts";
import { celPath, hashAt } from "../../waits/rules.ts";
import { matcherMatchesMax, matcherMovesMax, matcherSliceMax } from "../limits.ts";
import type { MatchedWait } from "./wait-conditions.ts";
import * as rows from "./wait-rows.ts";
import { comparison, type MatchedEvent, type WaitRow } from "./wait-rows.ts";

/**
 * A pass reads only `eventsOfManyMax` events when as many expressions, or paths, as these would be tried on
 * each.
 */
const expressionsPageMax = 500;
const pathsOfManyEventsMax = 1_000;
const eventsOfManyMax = 10;
const probesMax = 50;

export interface LookedAhead {
  found: MatchedWait[];
  /** Position up to which `found` is complete. */
  to: number;
}

type Reading = Basics<"store" | "clock">;

/** Finds the waits that the next events behind `from` match. */
export async function lookAhead(
  reading: Reading,
  environmentId: string,
  from: number,
  head: number,
): Promise<LookedAhead> {
  const { store } = reading;
  const to = Math.min(head, from + matcherSliceMax);
  const names = await rows.namesWaitedFor(store, environmentId, { from, to });
  if (names.length === 0) return { found: [], to };
  const paths = new Map<string, string[]>();
  for (const name of names) paths.set(name, await rows.pathsOf(store, environmentId, name));
  const expressions = new Map<string, WaitRow[]>();
  for (const name of names)
    if (paths.get(name)!.includes(celPath))
      expressions.set(name, await expressionPage(store, environmentId, name, undefined));
  const isLong =
    [...expressions.values()].some((page) => page.length === expressionsPageMax) ||
    [...paths.values()].some((list) => list.length > pathsOfManyEventsMax);
  const limit = isLong ? eventsOfManyMax : matcherSliceMax;
  const page = await rows.readEvents(store, { environmentId, names, from, to }, limit);

  const matched = new MatchesByEvent();
  for (const [name, first] of expressions) {
    const events = page.events.filter((event) => event.name === name);
    await tryExpressions(reading, environmentId, first, events, matched);
  }
  const cutAt = await probeValues(reading, environmentId, page.events, paths, matched);
  return inOrder(page.events, matched, { to: page.cut ? page.events.at(-1)!.position : to, cutAt });
}

/** The waits that matched, by the position of their event. */
class MatchesByEvent {
  #byPosition = new Map<number, MatchedWait[]>();

  add(wait: WaitRow, event: MatchedEvent): void {
    const list = this.#byPosition.get(event.position);
    if (list) list.push({ wait, event });
    else this.#byPosition.set(event.position, [{ wait, event }]);
  }

  of(event: MatchedEvent): readonly MatchedWait[] {
    return this.#byPosition.get(event.position) ?? [];
  }
}

/** Each wait once, with its first event; stops at an event that more runs wait for than one pass may move. */
function inOrder(
  events: readonly MatchedEvent[],
  matched: MatchesByEvent,
  { to, cutAt }: { to: number; cutAt: number | undefined },
): LookedAhead {
  const found: MatchedWait[] = [];
  const taken = new Set<string>();
  for (const event of events) {
    for (const one of matched.of(event)) {
      const key = `${one.wait.run_id}\n${one.wait.kind}\n${one.wait.step_id}`;
      if (taken.has(key)) continue;
      taken.add(key);
      found.push(one);
    }
    // Not all waits of the event at `cutAt` were read: the cursor stays before it, and the next pass reads
    // the rest.
    if (event.position === cutAt) return { found, to: event.position - 1 };
    if (found.length >= matcherMatchesMax) return { found, to: event.position };
  }
  return { found, to };
}

const expressionPage = (store: Store, environmentId: string, name: string, last: WaitRow | undefined) =>
  rows.expressionWaits(
    store,
    environmentId,
    name,
    { runId: last?.run_id ?? "", stepId: last?.step_id ?? "" },
    expressionsPageMax,
  );

/**
 * Evaluates every waiting expression on every event until it holds for one; `first` is the first page of the
 * waits.
 */
async function tryExpressions(
  { store, clock }: Reading,
  environmentId: string,
  first: WaitRow[],
  events: readonly MatchedEvent[],
  matched: MatchesByEvent,
): Promise<void> {
  const breathe = breather(clock, environmentId);
  const comparisons = events.map((event) => ({ event, compare: comparison(event) }));
  for (let page = first; page.length > 0; ) {
    for (const wait of page)
      for (const { event, compare } of comparisons) {
        await breathe();
        if (wait.from_position >= event.position || !compare(wait)) continue;
        matched.add(wait, event);
        break;
      }
    if (page.length < expressionsPageMax) return;
    page = await expressionPage(store, environmentId, page[0]!.event_name, page.at(-1));
  }
}

/**
 * Looks waits up by the hash of each event's value at each path that is waited for. Answers the position of
 * the first event whose waits were not all read.
 */
async function probeValues(
  { store, clock }: Reading,
  environmentId: string,
  events: readonly MatchedEvent[],
  paths: ReadonlyMap<string, readonly string[]>,
  matched: MatchesByEvent,
): Promise<number | undefined> {
  const breathe = breather(clock, environmentId);
  const probes: (rows.Probe & { event: MatchedEvent })[] = [];
  for (const event of events) {
    await breathe();
    const data: unknown = JSON.parse(event.data);
    for (const path of paths.get(event.name) ?? []) {
      const valueHash = path === celPath ? undefined : hashAt(data, path);
      if (valueHash !== undefined)
        probes.push({ event, eventName: event.name, path, valueHash, position: event.position });
    }
  }
  for (let done = 0; done < probes.length; done += probesMax) {
    const slice = probes.slice(done, done + probesMax);
    const counts = new Map<number, number>();
    let cutAt: number | undefined;
    for (const wait of await rows.probeWaits(store, environmentId, slice)) {
      const { event } = slice[wait.probe - 1]!;
      const count = (counts.get(wait.probe) ?? 0) + 1;
      counts.set(wait.probe, count);
      if (count > matcherMovesMax) cutAt = Math.min(cutAt ?? event.position, event.position);
      else matched.add(wait, event);
    }
    if (cutAt !== undefined) return cutAt;
  }
  return undefined;
}
