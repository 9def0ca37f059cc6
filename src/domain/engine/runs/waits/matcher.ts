import { breather } from "../../../../kit/breather.ts";
import type { Clock } from "../../../../kit/clock.ts";
import { matcherMatchesMax, matcherMovesMax, matcherSliceMax } from "../../../../kit/limits.ts";
import type { Store } from "../../../../store/store.ts";
import { anyPath, celPath, hashAt, holds } from "../../waits/rules.ts";
import type { QueueHint } from "../wakes/due.ts";
import { applyMatches, type Compared, type MatchedWait, type Matches } from "./apply-matches.ts";
import { openSlowWork } from "./slow-work.ts";
import type { MatchedEvent, WaitRow } from "./wait-rows.ts";
import * as rows from "./wait-rows.ts";

/** Follows the logs for runs that wait for events, and for those that events end (design section 5). */
export interface Matcher {
  /** Whether runs of the environment wait for events, as far as this node knows; a second behind at most. */
  wanted(environmentId: string): boolean;
  /** Something was logged there, or a run began to wait: look now. */
  wake(environmentId: string): void;
  /** The tick of loop `runs.matcher`: brings matchers to the heads of their logs; all of them once a second. */
  matchOnce(): Promise<void>;
  /**
   * Brings these forward by a few slices, beside the loop: what is far behind stays behind. Answers those that take longer than
   * others can wait for; they go on by themselves.
   */
  catchUp(environmentIds: Iterable<string>): Promise<ReadonlySet<string>>;
}

export interface MatcherDeps {
  store: Store;
  clock: Clock;
  onQueued: (lanes: readonly QueueHint[]) => void;
  onCancelled: (runIds: readonly string[]) => void;
  /** Asks for a tick now. */
  wakeLoop: () => void;
}

/** Every environment with waits is looked at this often, whatever was heard of it. */
const lookEveryMs = 1_000;
const catchUpPassesMax = 3;
/** Another node works on the same log: after so many lost races it has done what there was. */
const racesMax = 5;
/** With so many expressions to try, or paths to look at, a pass takes few events. */
const expressionsPageMax = 500;
const pathsOfManyEventsMax = 1_000;
const eventsOfManyMax = 10;
/** Events that nothing came of move the cursor only in such steps; it would be a commit for each flush of emits. */
const idleStepMin = 1_000;

/**
 * Expressions of one environment may take minutes. All passes of a round that take long are waited for so long together, each
 * one so long at least, and then go on beside it; and whoever asks to be brought forward waits so long.
 */
const patienceMs = 500;
const patienceMsMin = 25;
const catchUpMsMax = 250;
/** Each holds a slice of a log in memory. */
const slowWorkMax = 32;

type PassOutcome = "done" | "more" | "lost";

/** This node looked as far as `to`, and nothing came of it; good while the cursor and its generation are as they were. */
interface Seen {
  from: number;
  generation: number;
  to: number;
}

export function openMatcher(deps: MatcherDeps): Matcher {
  const { store, clock } = deps;
  let known = new Set<string>();
  const dirty = new Set<string>();
  const seen = new Map<string, Seen>();
  let lookedAt = Number.NEGATIVE_INFINITY;
  let running: Promise<void> = Promise.resolve();
  const slowWork = openSlowWork(clock, (environmentId) => {
    // There may be more.
    dirty.add(environmentId);
    deps.wakeLoop();
  });

  async function apply(matches: Matches): Promise<boolean> {
    const applied = await store.write((session) => applyMatches(session, matches, clock.now()));
    if (!applied) return false;
    if (applied.lanes.length > 0) deps.onQueued(applied.lanes);
    if (applied.cancelled.length > 0) deps.onCancelled(applied.cancelled);
    return true;
  }

  /** Where to look on from: the cursor, or what lies behind it that nobody waited for. */
  function seenTo(environmentId: string, cursor: { position: number; generation: number }): number {
    const last = seen.get(environmentId);
    return last?.from === cursor.position && last.generation === cursor.generation
      ? last.to
      : cursor.position;
  }

  /**
   * Reads a piece of the log and what waits for it, compares, and commits. Comparing needs no lock: the commit checks that
   * the cursor and each wait are as they were read.
   */
  async function pass(environmentId: string): Promise<PassOutcome> {
    const at = await rows.readCursor(store, environmentId);
    if (!at) return "done";
    const fresh = await rows.freshWaits(store, environmentId, matcherSliceMax);
    const from = seenTo(environmentId, at);
    if (from >= at.head && fresh.length === 0) return "done";
    const back = await lookBack(environmentId, fresh, at.head);
    // What fresh waits did not come to the end of is committed by itself; they stay fresh, a part of the way further.
    if (back.unfinished.length > 0)
      await apply({ environmentId, cursor: null, found: [], compared: back.unfinished });
    // After a time without waits the log is long; otherwise reading it costs no more than the question.
    const skips = at.head - from > matcherSliceMax && !(await rows.anyCompared(store, environmentId));
    const ahead = skips ? { found: [], to: at.head } : await lookAhead(environmentId, from, at.head);
    const found = [...back.found, ...ahead.found];
    const { generation } = at;
    if (fresh.length === 0 && found.length === 0 && ahead.to - at.position < idleStepMin) {
      seen.set(environmentId, { from: at.position, generation, to: ahead.to });
      return ahead.to < at.head ? "more" : "done";
    }
    const cursor = { from: at.position, to: ahead.to, generation };
    // The cursor moves with the last slice: a crash before it only means to look again for what is already gone.
    for (let done = 0; ; done += matcherMovesMax) {
      const slice = found.slice(done, done + matcherMovesMax);
      const isLast = done + matcherMovesMax >= found.length;
      const to = isLast ? cursor : { ...cursor, to: cursor.from };
      const compared = isLast ? back.finished : [];
      if (!(await apply({ environmentId, cursor: to, found: slice, compared }))) return "lost";
      if (isLast) break;
    }
    const rest = ahead.to < at.head || fresh.length === matcherSliceMax || back.unfinished.length > 0;
    return rest ? "more" : "done";
  }

  /** Compares waits that were registered lately with what their runs have not seen, up to `head`. */
  async function lookBack(environmentId: string, fresh: readonly WaitRow[], head: number) {
    const found: MatchedWait[] = [];
    const finished: WaitRow[] = [];
    const unfinished: Compared[] = [];
    const breathe = breather(clock, environmentId);
    for (const [eventName, waits] of Map.groupBy(fresh, (wait) => wait.event_name)) {
      const from = waits.reduce((least, wait) => Math.min(least, wait.from_position), head);
      let left: readonly WaitRow[] = waits;
      let to = head;
      if (from < head) {
        const fromAt = await rows.timeAt(store, environmentId, from);
        const range = { environmentId, names: [eventName], from, to: head, fromAt };
        const page = await rows.readEvents(store, range, matcherSliceMax);
        if (page.cut) to = page.events.at(-1)!.position;
        for (const event of page.events) {
          const compare = comparison(event);
          const still: WaitRow[] = [];
          for (const wait of left) {
            if (wait.from_position < event.position && compare(wait)) found.push({ wait, event });
            else still.push(wait);
            await breathe();
          }
          left = still;
          if (left.length === 0) break;
        }
      }
      if (to < head) unfinished.push({ waits: left, to, isFresh: true });
      else finished.push(...left);
    }
    return { found, unfinished, finished: [{ waits: finished, to: head, isFresh: false }] };
  }

  /** Finds the waits for the next events; answers up to which of them all were found. */
  async function lookAhead(
    environmentId: string,
    from: number,
    head: number,
  ): Promise<{ found: MatchedWait[]; to: number }> {
    let to = Math.min(head, from + matcherSliceMax);
    const names = await rows.namesWaitedFor(store, environmentId, { from, to });
    if (names.length === 0) return { found: [], to };
    const paths = new Map<string, string[]>();
    for (const name of names) paths.set(name, await rows.pathsOf(store, environmentId, name));
    const expressions = new Map<string, WaitRow[]>();
    for (const name of names)
      if (paths.get(name)!.includes(celPath))
        expressions.set(name, await expressionPage(environmentId, name, undefined));
    const isLong =
      [...expressions.values()].some((page) => page.length === expressionsPageMax) ||
      [...paths.values()].some((list) => list.length > pathsOfManyEventsMax);
    const limit = isLong ? eventsOfManyMax : matcherSliceMax;
    const page = await rows.readEvents(store, { environmentId, names, from, to }, limit);
    if (page.cut) to = page.events.at(-1)!.position;

    const matched = new Map<number, MatchedWait[]>();
    const note = (wait: WaitRow, event: MatchedEvent) => {
      const list = matched.get(event.position);
      if (list) list.push({ wait, event });
      else matched.set(event.position, [{ wait, event }]);
    };
    for (const [name, first] of expressions) {
      const events = page.events.filter((event) => event.name === name);
      await tryExpressions(environmentId, first, events, note);
    }
    const cutAt = await lookUp(environmentId, page.events, paths, note);

    const found: MatchedWait[] = [];
    const taken = new Set<string>();
    for (const event of page.events) {
      for (const one of matched.get(event.position) ?? []) {
        const key = `${one.wait.run_id}\n${one.wait.kind}\n${one.wait.step_id}`;
        if (taken.has(key)) continue;
        taken.add(key);
        found.push(one);
      }
      // More runs wait for this event than are taken at once: it is looked at again when these are gone.
      if (event.position === cutAt || found.length >= matcherMatchesMax)
        return { found, to: event.position === cutAt ? event.position - 1 : event.position };
    }
    return { found, to };
  }

  const expressionPage = (environmentId: string, name: string, last: WaitRow | undefined) =>
    rows.expressionWaits(
      store,
      environmentId,
      name,
      { runId: last?.run_id ?? "", stepId: last?.step_id ?? "" },
      expressionsPageMax,
    );

  async function tryExpressions(
    environmentId: string,
    first: WaitRow[],
    events: readonly MatchedEvent[],
    note: (wait: WaitRow, event: MatchedEvent) => void,
  ): Promise<void> {
    const breathe = breather(clock, environmentId);
    const comparisons = events.map((event) => ({ event, compare: comparison(event) }));
    for (let page = first; page.length > 0; ) {
      for (const wait of page)
        for (const { event, compare } of comparisons) {
          await breathe();
          if (wait.from_position >= event.position || !compare(wait)) continue;
          note(wait, event);
          break;
        }
      if (page.length < expressionsPageMax) return;
      page = await expressionPage(environmentId, page[0]!.event_name, page.at(-1));
    }
  }

  /** By the values at the paths that are waited at; answers the position of an event that has more waits than were read. */
  async function lookUp(
    environmentId: string,
    events: readonly MatchedEvent[],
    paths: ReadonlyMap<string, readonly string[]>,
    note: (wait: WaitRow, event: MatchedEvent) => void,
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
        else note(wait, event);
      }
      if (cutAt !== undefined) return cutAt;
    }
    return undefined;
  }

  /** Environments whose logs may hold something for somebody. */
  async function look(): Promise<string[]> {
    dirty.clear();
    const waiting = await rows.environmentsWaiting(store);
    known = new Set([...waiting.map(({ id }) => id), ...dirty]);
    for (const id of seen.keys()) if (!known.has(id)) seen.delete(id);
    return waiting.flatMap(({ id, position, generation, head, fresh }) => {
      if (position === null || generation === null || head === null) return [];
      return fresh !== null || seenTo(id, { position, generation }) < head ? id : [];
    });
  }

  async function catchUpOne(environmentId: string): Promise<true> {
    for (let passes = 0; passes < catchUpPassesMax; passes++)
      if ((await pass(environmentId)) === "done") break;
    return true;
  }

  /** Whose turn it is besides those who had one and want more. */
  async function nextEnvironments(): Promise<string[]> {
    const now = clock.elapsed();
    if (dirty.size === 0 || now - lookedAt >= lookEveryMs) {
      lookedAt = now;
      return look();
    }
    const woken = [...dirty];
    dirty.clear();
    return woken;
  }

  async function round(): Promise<void> {
    let queue = await nextEnvironments();
    const races = new Map<string, number>();
    let failure: { error: unknown } | undefined;
    let patience = patienceMs;
    // One pass of each in turn: a long log holds up nobody else's.
    while (queue.length > 0) {
      const next: string[] = [];
      for (const environmentId of queue) {
        if (slowWork.has(environmentId)) continue;
        if (slowWork.size() >= slowWorkMax) await slowWork.oneOver();
        const beganAt = clock.elapsed();
        // What is wrong with one environment's log must not hold up the others.
        const passing = pass(environmentId).catch((error: unknown): PassOutcome => {
          failure ??= { error };
          return "done";
        });
        const outcome = await slowWork.within(Math.max(patienceMsMin, patience), environmentId, passing);
        if (outcome === undefined) patience -= clock.elapsed() - beganAt;
        const lost = (races.get(environmentId) ?? 0) + (outcome === "lost" ? 1 : 0);
        races.set(environmentId, lost);
        if (outcome === "more" || (outcome === "lost" && lost < racesMax)) next.push(environmentId);
      }
      // Who comes meanwhile does not wait until there is no more of the others.
      const isLookDue = clock.elapsed() - lookedAt >= lookEveryMs;
      const more = next.length > 0 && (dirty.size > 0 || isLookDue) ? await nextEnvironments() : [];
      queue = [...new Set([...next, ...more])];
    }
    if (failure) throw failure.error;
  }

  return {
    wanted: (environmentId) => known.has(environmentId),
    wake(environmentId) {
      known.add(environmentId);
      dirty.add(environmentId);
      deps.wakeLoop();
    },
    async catchUp(environmentIds) {
      const behind = new Set<string>();
      const one = async (environmentId: string) => {
        const done =
          !slowWork.has(environmentId) &&
          (await slowWork.within(catchUpMsMax, environmentId, catchUpOne(environmentId)));
        if (!done) behind.add(environmentId);
      };
      // What is wrong with one environment's log is told by the loop, and holds up nobody's wakes.
      await Promise.allSettled(Array.from(environmentIds, one));
      return behind;
    },
    matchOnce() {
      // A tick that is asked for beside the loop's own comes after it.
      const turn = running.then(round);
      running = turn.catch(() => {});
      return turn;
    },
  };
}

const probesMax = 50;

/** Whether a wait matches this event; what is looked at is read once. */
function comparison(event: MatchedEvent): (wait: WaitRow) => boolean {
  const data: unknown = JSON.parse(event.data);
  const hashes = new Map<string, string | undefined>();
  let seen: Parameters<typeof holds>[1] | undefined;
  return (wait) => {
    if (wait.match_path === anyPath) return true;
    if (wait.match_path === celPath) {
      seen ??= {
        id: event.id,
        name: event.name,
        data,
        metadata: event.metadata === null ? null : (JSON.parse(event.metadata) as unknown),
        version: event.version,
        source: event.source,
        timestamp: event.at,
      };
      return wait.expression !== null && holds(wait.expression, seen);
    }
    if (!hashes.has(wait.match_path)) hashes.set(wait.match_path, hashAt(data, wait.match_path));
    return hashes.get(wait.match_path) === wait.value_hash;
  };
}
