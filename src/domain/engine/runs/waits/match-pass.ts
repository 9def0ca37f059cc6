import { breather } from "../../../../kit/breather.ts";
import type { Clock, Instant } from "../../../../kit/clock.ts";
import { inTurn } from "../../../../kit/in-turn.ts";
import type { Basics, Store } from "../../../../store/store.ts";
import { matcherBytesMax, matcherMovesMax, matcherSliceMax } from "../limits.ts";
import type { QueueHint } from "../wakes/due.ts";
import { applyMatches, type Compared, type Matches } from "./apply-matches.ts";
import { ComparedUntil } from "./compared-until.ts";
import { lookAhead } from "./look-ahead.ts";
import type { MatchedWait } from "./wait-conditions.ts";
import * as rows from "./wait-rows.ts";
import { comparison, type WaitRow } from "./wait-rows.ts";

export interface LookedBack {
  found: MatchedWait[];
  /** Waits that were compared with all events up to the head: they are fresh no longer. */
  finished: Compared[];
  /** Waits that were compared with a part of the events: they stay fresh, from a later position. */
  unfinished: Compared[];
}

/** Compares fresh waits with the events that were logged between their registration and `head`. */
async function lookBack(
  { store, clock }: { store: Store; clock: Clock },
  environmentId: string,
  fresh: readonly WaitRow[],
  head: number,
): Promise<LookedBack> {
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

export interface MatchPassDeps extends Basics<"store" | "clock"> {
  /** Called after the commit, with the queues that got runs. */
  onQueued: (lanes: readonly QueueHint[]) => void;
  /** Called after the commit, with the runs that an event cancelled. */
  onCancelled: (environmentId: string, runIds: readonly string[]) => void;
}

/** `lost`: another node moved the cursor first. */
export type PassOutcome = "done" | "more" | "lost";

/**
 * This node read up to `to` and found nothing; valid while the stored cursor still is `from`, in this
 * generation.
 */
interface Unmatched {
  from: number;
  generation: number;
  to: number;
}

/**
 * The cursor is written for events without a match only in steps of this size: else each flush of emits costs
 * a commit.
 */
const idleStepMin = 1_000;

/** One pass over a piece of an environment's log: read, compare, commit. */
export class MatchPass {
  readonly #deps: MatchPassDeps;
  readonly #unmatched = new Map<string, Unmatched>();
  readonly #comparedUntil = new ComparedUntil();
  readonly #inTurn = inTurn();

  constructor(deps: MatchPassDeps) {
    this.#deps = deps;
  }

  /** Passes of one environment take turns on this node: two at once would race for its cursor. */
  run(environmentId: string): Promise<PassOutcome> {
    return this.#inTurn(environmentId, () => this.#run(environmentId));
  }

  /** Comparing holds no lock: the commit checks that the cursor and each wait are as they were read. */
  async #run(environmentId: string): Promise<PassOutcome> {
    const { store, clock } = this.#deps;
    const beganAt = clock.now();
    const at = await rows.readCursor(store, environmentId);
    const seen = { head: at?.head ?? 0, at: beganAt };
    const reached = (position: number) => this.#comparedUntil.reached(environmentId, seen, position);
    const from = at ? this.readTo(environmentId, at) : 0;
    reached(from);
    // Without a cursor the environment never had a wait.
    if (!at) return "done";
    const fresh = await rows.freshWaits(store, environmentId, matcherSliceMax);
    if (from >= at.head && fresh.length === 0) return "done";
    const back = await lookBack(this.#deps, environmentId, fresh, at.head);
    // A wait that was compared with a part of its events is committed at once: it stays fresh, from a later
    // position.
    if (back.unfinished.length > 0)
      await this.#apply({ environmentId, cursor: null, found: [], compared: back.unfinished });
    // After a time without waits the log behind the cursor is long, and nobody waits for it. A short piece is
    // just read.
    const skips = at.head - from > matcherSliceMax && !(await rows.anyCompared(store, environmentId));
    const ahead = skips
      ? { found: [], to: at.head }
      : await lookAhead(this.#deps, environmentId, from, at.head);
    const found = [...back.found, ...ahead.found];
    const { generation } = at;
    if (fresh.length === 0 && found.length === 0 && ahead.to - at.position < idleStepMin) {
      this.#unmatched.set(environmentId, { from: at.position, generation, to: ahead.to });
      reached(ahead.to);
      return ahead.to < at.head ? "more" : "done";
    }
    const cursor = { from: at.position, to: ahead.to, generation };
    // Only the last slice moves the cursor. After a crash before it the same events are read again, and waits
    // that were resolved already no longer match.
    const slices = slicesOf(found);
    for (const [at, slice] of slices.entries()) {
      const isLast = at === slices.length - 1;
      const to = isLast ? cursor : { ...cursor, to: cursor.from };
      const compared = isLast ? back.finished : [];
      if (!(await this.#apply({ environmentId, cursor: to, found: slice, compared }))) return "lost";
    }
    reached(ahead.to);
    const rest = ahead.to < at.head || fresh.length === matcherSliceMax || back.unfinished.length > 0;
    return rest ? "more" : "done";
  }

  /** Where to read on from: the stored cursor, or the later position up to which this node found nothing. */
  readTo(environmentId: string, cursor: { position: number; generation: number }): number {
    const last = this.#unmatched.get(environmentId);
    return last?.from === cursor.position && last.generation === cursor.generation
      ? last.to
      : cursor.position;
  }

  /** Until when all that was logged has been compared with the environment's waits that are not fresh. */
  comparedUntil(environmentId: string): Instant | undefined {
    return this.#comparedUntil.of(environmentId);
  }

  /** Forgets what was read of environments that have no waits any more. */
  keepOnly(environmentIds: ReadonlySet<string>): void {
    this.#comparedUntil.keepOnly(environmentIds);
    for (const id of this.#unmatched.keys()) if (!environmentIds.has(id)) this.#unmatched.delete(id);
  }

  async #apply(matches: Matches): Promise<boolean> {
    const { store, clock, onQueued, onCancelled } = this.#deps;
    const applied = await store.write((session) => applyMatches(session, matches, clock.now()));
    if (!applied) return false;
    if (applied.lanes.length > 0) onQueued(applied.lanes);
    if (applied.cancelled.length > 0) onCancelled(matches.environmentId, applied.cancelled);
    return true;
  }
}

/** What one transaction moves, at least one slice: each run gets a copy of its event. */
function slicesOf(found: readonly MatchedWait[]): MatchedWait[][] {
  let slice: MatchedWait[] = [];
  let characters = 0;
  const slices = [slice];
  for (const one of found) {
    const { length } = one.event.data;
    if (slice.length === matcherMovesMax || (slice.length > 0 && characters + length > matcherBytesMax)) {
      slice = [];
      characters = 0;
      slices.push(slice);
    }
    slice.push(one);
    characters += length;
  }
  return slices;
}
