import type { Instant } from "../../../../kit/clock.ts";
import type { Basics } from "../../../../store/store.ts";
import { bucketOf, runPlace, signalPlace, streamPlace } from "../../waits/rules.ts";
import { stateChangesMax, statePlacesMax, stateSliceMax } from "../limits.ts";
import type { QueueHint } from "../run.ts";
import { ComparedLog, knownOf } from "../waits/compared-until.ts";
import { catchUpMsMax, openSlowWork } from "../waits/matcher.ts";
import type { MetCondition } from "../waits/wait-conditions.ts";
import { applyStates, type LookedAt } from "./apply-states.ts";
import type { FoundState, StateWait } from "./state-rows.ts";
import * as rows from "./state-rows.ts";

/**
 * What the state makes of a wait: it is met by `text`, JSON of what the handler gets; or it is looked at
 * again by then without a change, null needs a change.
 */
export type StateAnswer = { kind: "stream" | "key" | "run"; text: string } | { nextLookAt: Instant | null };

const unmet: StateAnswer = { nextLookAt: null };

/** Pure: `found` is what stands there now; undefined when there is nothing. */
function answerOf(wait: StateWait, found: FoundState | undefined, now: Instant): StateAnswer {
  if (wait.place === streamPlace) return ofStream(wait, found);
  if (wait.place === runPlace) return ofRun(wait, found);
  // The transaction that takes the signal answers.
  if (wait.place === signalPlace) return unmet;
  return ofKey(wait, found, now);
}

function ofStream({ subject, bound }: StateWait, found: FoundState | undefined): StateAnswer {
  if (found?.version == null || found.version < bound!) return unmet;
  const value = { entity_id: subject, entity_type: found.entity_type, version: found.version };
  return { kind: "stream", text: JSON.stringify(value) };
}

function ofRun({ subject }: StateWait, found: FoundState | undefined): StateAnswer {
  if (found?.status == null || found.status === "active") return unmet;
  const { function_id, status, cause, output, output_chars: chars } = found;
  const value = { run_id: subject, function_id, status, ...(cause !== null && { cause }) };
  const parts = [
    JSON.stringify(value).slice(1, -1),
    ...(output !== null ? [`"output":${output}`] : chars !== null ? [`"output_left_out":true`] : []),
    ...(found.error !== null ? [`"error":${found.error}`] : []),
  ];
  return { kind: "run", text: `{${parts.join(",")}}` };
}

/** A key without a row: its deletion may be one of those whose markers are gone, or its bucket is gone. */
const isForgotten = (found: FoundState | undefined, bound: number): boolean =>
  bound > 0 && (found === undefined || bound < (found.forgotten_revision ?? 0));

function ofKey(
  { place, subject, test, bound }: StateWait,
  found: FoundState | undefined,
  now: Instant,
): StateAnswer {
  const revision = found?.revision ?? null;
  const expiresAt = found?.expires_at ?? null;
  const isAlive = found?.operation === "put" && (expiresAt === null || expiresAt > now);
  const isMet = {
    exists: isAlive,
    equals: isAlive && found?.is_equal === 1,
    absent: !isAlive,
    changed: revision === null ? isForgotten(found, bound!) : revision > bound!,
  }[test as "exists" | "equals" | "absent" | "changed"];
  if (!isMet) return { nextLookAt: test === "absent" ? expiresAt : null };
  const value = {
    bucket: bucketOf(place),
    key: subject,
    exists: isAlive,
    ...(revision !== null && { revision }),
  };
  return { kind: "key", text: JSON.stringify(value) };
}

interface StatePassDeps extends Basics<"store" | "clock"> {
  /** Called after the commit, with the queues that got runs. */
  onQueued: (lanes: readonly QueueHint[]) => void;
}

/** How far this node has compared the waits of a place with what changed there. */
interface PlaceCursor {
  bucketId: string | null;
  at: number;
  /** Where the look at all waits of the place has come; null when it is over. */
  walk: rows.WalkedTo | null;
  /** When that look began. */
  walkedFrom?: Instant | undefined;
  /** Until when the place was compared with all its waits that are not due to be looked at. */
  compared: ComparedLog;
}

const beginning: rows.WalkedTo = { subject: "", run_id: "", step_id: "" };

/**
 * One pass over what an environment's runs wait for: new waits, expired keys, and what changed in each place
 * after a cursor in memory. A wait that is not stored yet when a change is looked up looks at the state once
 * it is stored, so that no change is missed. A node without a cursor for a place looks at all its waits.
 */
class StatePass {
  readonly #deps: StatePassDeps;
  readonly #cursors = new Map<string, Map<string, PlaceCursor>>();
  /** The last place that a pass came to, where it left others. */
  readonly #last = new Map<string, string>();
  /** Environments that have been looked at, each until when all its places were compared. */
  readonly #until = new Map<string, Instant>();

  constructor(deps: StatePassDeps) {
    this.#deps = deps;
  }

  /** Answers whether there is more to look at. */
  async run(environmentId: string): Promise<boolean> {
    const { store, clock } = this.#deps;
    const beganAt = clock.now();
    const due = await rows.dueWaits(store, environmentId, clock.now(), stateSliceMax);
    await this.#compare(due);
    const places = await rows.placesWaitedIn(store, environmentId);
    this.#keepPlaces(environmentId, places);
    const moved = places.filter((place) => this.isMoved(place));
    const last = this.#last.get(environmentId) ?? "";
    const inTurn = [
      ...moved.filter(({ place }) => place > last),
      ...moved.filter(({ place }) => place <= last),
    ];
    let more = due.length === stateSliceMax || moved.length > statePlacesMax;
    for (const place of inTurn.slice(0, statePlacesMax)) {
      if (await this.#follow(place, beganAt)) more = true;
      this.#last.set(environmentId, place.place);
    }
    this.#noteUntil(environmentId, places, new Set(moved), beganAt);
    return more;
  }

  /** Until when all changes have been compared with the environment's waits that are not due for a look. */
  comparedUntil(environmentId: string): Instant | undefined {
    return this.#until.get(environmentId);
  }

  #noteUntil(
    environmentId: string,
    places: readonly rows.WaitedPlace[],
    moved: ReadonlySet<rows.WaitedPlace>,
    beganAt: Instant,
  ): void {
    let until = beganAt;
    for (const place of places) {
      const { at, compared } = this.#cursorOf(place);
      if (!moved.has(place)) compared.reached({ head: at, at: beganAt }, at);
      until = Math.min(until, compared.until ?? Number.NEGATIVE_INFINITY);
    }
    this.#until.set(environmentId, until);
  }

  /** Whether something may have changed in the place since this node looked. */
  isMoved(place: rows.WaitedPlace): boolean {
    const cursor = this.#cursorOf(place);
    return cursor.walk !== null || (place.end_at ?? 0) > cursor.at;
  }

  /** Forgets the environments in which no run waits any more. */
  keepOnly(environmentIds: ReadonlySet<string>): void {
    for (const map of [this.#cursors, this.#last, this.#until])
      for (const id of map.keys()) if (!environmentIds.has(id)) map.delete(id);
  }

  #keepPlaces(environmentId: string, places: readonly rows.WaitedPlace[]): void {
    const known = this.#cursors.get(environmentId);
    if (!known) return;
    const there = new Set(places.map(({ place }) => place));
    for (const place of known.keys()) if (!there.has(place)) known.delete(place);
  }

  /** A bucket that was deleted, or made again, is another one. */
  #cursorOf({
    environment_id: environmentId,
    place,
    bucket_id: bucketId,
    end_at,
  }: rows.WaitedPlace): PlaceCursor {
    const known = this.#cursors.get(environmentId)?.get(place);
    if (known?.bucketId === bucketId) return known;
    return { bucketId, at: end_at ?? 0, walk: beginning, compared: new ComparedLog() };
  }

  /** The cursor moves once what it passed is committed. */
  async #follow(place: rows.WaitedPlace, beganAt: Instant): Promise<boolean> {
    const { environment_id: environmentId } = place;
    const cursor = this.#cursorOf(place);
    const walkedFrom = cursor.walk ? (cursor.walkedFrom ?? beganAt) : beganAt;
    const next = cursor.walk ? await this.#walk(place, cursor) : await this.#changes(place, cursor);
    const end = place.end_at ?? 0;
    const isBehind = next.at < end;
    if (next.walk !== null) next.walkedFrom = walkedFrom;
    // A walk compares with what stands, whatever changes beside it.
    else if (cursor.walk) next.compared.reached({ head: next.at, at: walkedFrom }, next.at);
    else next.compared.reached({ head: end, at: beganAt }, next.at);
    const own = this.#cursors.get(environmentId) ?? new Map<string, PlaceCursor>();
    this.#cursors.set(environmentId, own.set(place.place, next));
    return next.walk !== null || isBehind;
  }

  async #walk(place: rows.WaitedPlace, cursor: PlaceCursor): Promise<PlaceCursor> {
    const waits = await rows.waitsOfPlace(this.#deps.store, place, cursor.walk!, stateSliceMax);
    await this.#compare(waits);
    return { ...cursor, walk: waits.length === stateSliceMax ? waits.at(-1)! : null };
  }

  async #changes(place: rows.WaitedPlace, cursor: PlaceCursor): Promise<PlaceCursor> {
    const { store } = this.#deps;
    const { subjects, to } = await rows.changedAfter(store, place, cursor.at, stateChangesMax);
    const waits = subjects.length === 0 ? [] : await rows.waitsAbout(store, place, subjects, stateSliceMax);
    await this.#compare(waits);
    // More wait for these than were read.
    return { ...cursor, at: to, walk: waits.length === stateSliceMax ? beginning : null };
  }

  async #compare(waits: readonly rows.StateWait[]): Promise<void> {
    const { store, clock, onQueued } = this.#deps;
    if (waits.length === 0) return;
    const now = clock.now();
    const states = await rows.statesOf(store, waits);
    const met: MetCondition<rows.StateWait>[] = [];
    const signalled: rows.StateWait[] = [];
    const unmet: LookedAt["unmet"][number][] = [];
    for (const wait of waits) {
      const found = states.get(wait);
      const answer = answerOf(wait, found, now);
      if (wait.place === signalPlace && found) {
        signalled.push(wait);
        continue;
      }
      if ("nextLookAt" in answer) {
        if (answer.nextLookAt !== wait.due_at) unmet.push({ wait, nextLookAt: answer.nextLookAt });
      } else met.push({ wait, ...answer, position: null, detail: { [answer.kind]: wait.subject } });
    }
    if (met.length + signalled.length + unmet.length === 0) return;
    const lanes = await store.write((session) =>
      applyStates(session, { met, signalled, unmet }, clock.now()),
    );
    if (lanes.length > 0) onQueued(lanes);
  }
}

/** Wakes runs that wait for versions of entities, changes of keys and ends of children. */
export type States = ReturnType<typeof openStates>;

export interface StatesDeps extends StatePassDeps {
  /** Asks for a tick now. */
  wakeLoop: () => void;
}

/** Every awaited place is looked at this often, woken or not: a hint from another node may be lost. */
const lookEveryMs = 1_000;
const catchUpPassesMax = 3;

export function openStates(deps: StatesDeps) {
  const { store, clock, wakeLoop } = deps;
  const pass = new StatePass(deps);
  /** Environments with waits. */
  let known = new Set<string>();
  const woken = new Set<string>();
  let lookedAt = Number.NEGATIVE_INFINITY;
  let running: Promise<void> = Promise.resolve();

  /** Environments with a wait to look at, or a place that has moved. */
  async function look(): Promise<string[]> {
    const early = [...woken];
    woken.clear();
    try {
      return await placesToLookAt(early);
    } catch (error) {
      // The hints are still to be followed.
      for (const environmentId of early) woken.add(environmentId);
      throw error;
    }
  }

  async function placesToLookAt(early: readonly string[]): Promise<string[]> {
    const places = await rows.placesWaited(store);
    // Woken during the read: their waits may be younger than it.
    known = new Set([...places.map((place) => place.environment_id), ...early, ...woken]);
    pass.keepOnly(known);
    const moved = places.filter((place) => pass.isMoved(place)).map((place) => place.environment_id);
    return [...new Set([...early, ...moved, ...(await rows.environmentsWithDue(store, clock.now()))])];
  }

  async function next(): Promise<string[]> {
    const now = clock.elapsed();
    if (woken.size === 0 || now - lookedAt >= lookEveryMs) {
      lookedAt = now;
      return look();
    }
    const some = [...woken];
    woken.clear();
    return some;
  }

  async function round(): Promise<void> {
    let failure: { error: unknown } | undefined;
    // One pass of each environment in turn: what changes much in one holds up no other.
    for (let queue = await next(); queue.length > 0; ) {
      const again: string[] = [];
      for (const environmentId of queue) {
        // The failure of one environment is thrown once the others had their turn.
        const more = await pass.run(environmentId).catch((error: unknown) => {
          failure ??= { error };
          return false;
        });
        if (more) again.push(environmentId);
      }
      const isLookDue = again.length > 0 && (woken.size > 0 || clock.elapsed() - lookedAt >= lookEveryMs);
      queue = [...new Set([...again, ...(isLookDue ? await next() : [])])];
    }
    if (failure) throw failure.error;
  }

  async function lookOn(environmentId: string): Promise<void> {
    for (let passes = 0; passes < catchUpPassesMax; passes++) if (!(await pass.run(environmentId))) return;
  }

  const wake = (environmentId: string) => {
    woken.add(environmentId);
    wakeLoop();
  };
  const slowWork = openSlowWork(clock, wake);
  return {
    /** Runs of the environment began to wait for such. */
    awaited(environmentId: string) {
      known.add(environmentId);
      wake(environmentId);
    },
    /** Something was appended or put there: asks for a tick where a run waits. */
    changed(environmentId: string) {
      if (known.has(environmentId)) wake(environmentId);
    },
    /** The tick of loop `runs.states`: looks at woken environments; at all of them once a second. */
    lookOnce() {
      const turn = running.then(round);
      running = turn.catch(() => {});
      return turn;
    },
    /**
     * Looks at these environments beside the loop. Answers until when all changes have been compared with
     * waits that are not due for a look; an environment of which this node does not know it is left out. A
     * look that takes longer than `catchUpMsMax` continues in the background.
     */
    async catchUp(environmentIds: Iterable<string>): Promise<ReadonlyMap<string, Instant>> {
      const ids = [...environmentIds];
      // A failed environment must not hold up wakes of others; the loop meets and reports the same failure.
      await slowWork.each(catchUpMsMax, ids, lookOn);
      return knownOf(ids, (id) => pass.comparedUntil(id));
    },
  };
}
