import type { Instant } from "../../../../kit/clock.ts";
import type { Basics } from "../../../../store/store.ts";
import { signalPlace } from "../../waits/rules.ts";
import { stateChangesMax, statePlacesMax, stateSliceMax } from "../limits.ts";
import type { QueueHint } from "../run.ts";
import { ComparedLog } from "../waits/compared-until.ts";
import type { MetCondition } from "../waits/wait-conditions.ts";
import { applyStates, type LookedAt } from "./apply-states.ts";
import { answerOf } from "./state-answers.ts";
import * as rows from "./state-rows.ts";

export interface StatePassDeps extends Basics<"store" | "clock"> {
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
export class StatePass {
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
