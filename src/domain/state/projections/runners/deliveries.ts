import { sizedCache } from "../../../../kit/ttl-cache.ts";
import type { Basics, Session } from "../../../../store/store.ts";
import { type Advanced, advance } from "../advance.ts";
import { type EventBatch, type EventBatches, pendingIn } from "../batches.ts";
import { projectionBatchMax, projectionLiveMs, projectionPartSlicesMax } from "../limits.ts";
import {
  type GenerationKey,
  type GenerationRow,
  type HeldProjection,
  holdProjection,
  noteAsked,
  type ProjectionKey,
  type ProjectionRow,
  readProjection,
  type SessionReads,
} from "../rows.ts";
import { globalPartition, type Runner, unknownProjection } from "../rules.ts";
import { addPending, clearPending, getState, noState, type StateRow } from "../state-rows.ts";
import { stopBelowFloor } from "../sweep.ts";
import { generationOf, isAging, isFed, standingOf, takeLease } from "./leases.ts";

/** Partitions of which a node knows where a look found nothing, and characters of what it knows them by. */
const looksMax = 10_000;
const looksCharsMax = 8 * 1024 * 1024;

/** Of which events a runner is asked to fold, and which of them its partition has folded already. */
interface LookBasis {
  key: GenerationKey;
  partition: string;
  /** See `definitionText`. */
  definition: string;
  state: StateRow | undefined;
}

/** Behind `from` and up to `reached`, a runner has nothing to fold. */
interface EmptyLook {
  basis: string;
  from: number;
  reached: number;
}

/** A partition's events follow from these places: a save, failure, resume or rebuild of it changes one. */
const placeText = (state: StateRow | undefined): string => {
  const { last_position, error_position, skipped_position } = state ?? noState("");
  return `${last_position} ${error_position} ${skipped_position}`;
};

const keyText = ({ key, partition }: LookBasis): string =>
  JSON.stringify([key.environment_id, key.name, key.generation, partition]);

const basisText = ({ definition, state }: LookBasis): string => `${placeText(state)}\n${definition}`;

/**
 * How far polls of one partition have looked in vain. Without it each poll begins at the partition's place,
 * and an event after more of others' than one look covers is never given. What a look rests on is kept with
 * it. A look that rests on something else, or begins earlier, reads again what is forgotten or unknown here.
 */
class EmptyLooks {
  readonly #kept = sizedCache<EmptyLook>({ entriesMax: looksMax, charsMax: looksCharsMax });

  /** Where to look next instead of after `after`. */
  behind(basis: LookBasis, after: number): number {
    return Math.max(after, this.#find(basis, after)?.reached ?? after);
  }

  /** A look that was to begin after `after` found nothing up to `reached`. */
  note(basis: LookBasis, { after, reached }: { after: number; reached: number }): void {
    if (reached <= after) return;
    const text = basisText(basis);
    const key = keyText(basis);
    const from = this.#find(basis, after)?.from ?? after;
    this.#kept.set(key, { basis: text, from, reached }, key.length + text.length);
  }

  #find(basis: LookBasis, after: number): EmptyLook | undefined {
    const found = this.#kept.get(keyText(basis));
    return found && found.basis === basisText(basis) && after >= found.from ? found : undefined;
  }
}

export interface RunnerAsk {
  key: ProjectionKey;
  runner: Runner;
  limit: number;
  /** Only the events of this partition; undefined: of all. */
  partition: string | undefined;
  /** The event names, as they are stored, that the caller was asked about; undefined where no policy asks. */
  permitted?: string | undefined;
}

/** What one look for a runner came to. */
export interface Delivered {
  /** `idle`: paused, or stopped by an error; `standby`: another runner has it. */
  state: "given" | "idle" | "standby";
  held: HeldProjection;
  generation: GenerationRow;
  events: EventBatch["events"];
  /** Of the asked partition, without these events; for polls of managed projections. */
  current: StateRow | undefined;
  advanced: Advanced | undefined;
}

/** A connection that has the lease, and how the projection was defined when it took it. */
export interface OwnStream {
  streamId: string;
  definition: string;
}

export interface Deliveries {
  /** The projection and its generations as they are; throws `not_found`. */
  read(key: ProjectionKey): Promise<HeldProjection>;
  /** Events after the cursor for a runner that polls, with the lease. */
  poll(ask: RunnerAsk): Promise<Delivered>;
  /**
   * The next events after those that were delivered on this stream; undefined once it has lost the lease, or
   * the projection is defined otherwise.
   */
  next(ask: Omit<RunnerAsk, "partition">, stream: OwnStream, room: number): Promise<Delivered | undefined>;
  /**
   * Moves the cursor over events that are none of the projection's, for those who wait for it while no runner
   * asks. Answers whether it moved.
   */
  passOver(key: ProjectionKey): Promise<boolean>;
}

/** Looks that found the cursor moved meanwhile, before a runner gets an empty answer. */
const triesMax = 5;

/** What a batch was read by: once that changes, other events or partitions belong to the projection. */
export const definitionText = ({ mode, events, partition_path }: ProjectionRow): string =>
  `${mode}\n${partition_path}\n${events}`;

export interface DeliveriesDeps extends Basics<"store" | "clock"> {
  batches: EventBatches;
}

const nothing = (state: Delivered["state"], held: HeldProjection, generation: GenerationRow): Delivered => ({
  ...{ state, held, generation, events: [] },
  ...{ current: undefined, advanced: undefined },
});

/** What a look read; of one partition, also what it rests on, and up to where it found nothing. */
interface LookBatch extends EventBatch {
  empty?: { basis: LookBasis; after: number; reached: number };
}

const isIdle = ({ cursor_position, delivered }: GenerationRow): boolean => cursor_position >= delivered;

export class StoredDeliveries implements Deliveries {
  readonly #deps: DeliveriesDeps;
  readonly #emptyLooks = new EmptyLooks();

  constructor(deps: DeliveriesDeps) {
    this.#deps = deps;
  }

  async read(key: ProjectionKey): Promise<HeldProjection> {
    const held = await readProjection(this.#deps.store, key);
    if (!held) throw unknownProjection(key.name);
    return held;
  }

  async poll(ask: RunnerAsk): Promise<Delivered> {
    for (let tries = 0; tries < triesMax; tries++) {
      const delivered = await this.#look(ask);
      if (delivered) return delivered;
    }
    const held = await this.read(ask.key);
    return nothing("given", held, generationOf(held, ask.runner));
  }

  async next(
    ask: Omit<RunnerAsk, "partition">,
    { streamId, definition }: OwnStream,
    room: number,
  ): Promise<Delivered | undefined> {
    const { store, batches } = this.#deps;
    const { key, runner } = ask;
    const seen = await this.read(key);
    const mine = seen.generations.find((one) => one.stream_id === streamId);
    if (!mine || mine.holder !== runner.holder || definitionText(seen) !== definition) return undefined;
    if (!isFed(seen)) return nothing("idle", seen, mine);
    const limit = Math.min(ask.limit, room);
    if (limit <= 0) return nothing("given", seen, mine);
    const request = { row: seen, generation: mine, after: mine.delivered, limit, partition: undefined };
    const batch = await batches.read(request);
    if (batch.floor !== undefined) {
      await stopBelowFloor(this.#deps, seen, batch.floor);
      return nothing("idle", seen, mine);
    }
    if (batch.reached <= mine.delivered) return nothing("given", seen, mine);
    const given = { streamId, definition, mine, batch };
    return store.write((session) => this.#giveNext(session, ask, given));
  }

  async passOver(key: ProjectionKey): Promise<boolean> {
    const { store, clock, batches } = this.#deps;
    const seen = await this.read(key);
    const mine = seen.generations.find((one) => one.generation === seen.generation);
    if (!mine || !isFed(seen) || !isIdle(mine)) return false;
    const request = {
      row: seen,
      generation: mine,
      after: mine.cursor_position,
      limit: 1,
      partition: undefined,
    };
    const { events, reached, floor } = await batches.read(request);
    const upTo = Math.max(mine.cursor_position, (events[0]?.position ?? reached + 1) - 1);
    if (floor !== undefined || upTo <= mine.cursor_position) return false;
    return store.write(async (session) => {
      const held = await holdProjection(session, key);
      const generation = held?.generations.find((one) => one.generation === mine.generation);
      if (!held || !generation || !isFed(held)) return false;
      if (definitionText(held) !== definitionText(seen)) return false;
      if (!isIdle(generation) || generation.cursor_position !== mine.cursor_position) return false;
      generation.delivered = upTo;
      return (await advance(session, held, generation, { now: clock.now() })).hasMoved;
    });
  }

  /** One look of a poll; undefined when it has to be taken again. */
  async #look(ask: RunnerAsk): Promise<Delivered | undefined> {
    const { store, clock } = this.#deps;
    const { key, runner, partition, limit, permitted } = ask;
    const seen = await this.read(key);
    const generation = generationOf(seen, runner);
    if (!isFed(seen) || (permitted !== undefined && permitted !== seen.events)) {
      await this.#noteAsked(generation);
      return nothing("idle", seen, generation);
    }
    const standing = standingOf(generation, runner, { streamId: null, now: clock.now() });
    if (standing === "another") return nothing("standby", seen, generation);
    const batch = await this.#read(seen, generation, { partition, limit });
    if (batch.floor !== undefined) {
      await stopBelowFloor(this.#deps, seen, batch.floor);
      return nothing("idle", seen, generation);
    }
    const isFresh = standing === "mine" && !isAging(generation, clock.now());
    const isStill = batch.events.length === 0 && batch.reached <= generation.cursor_position;
    if (isFresh && isStill && generation.target === null)
      return {
        ...nothing("given", seen, generation),
        current: await stateFor(store, seen, generation, partition),
      };
    const given = { seen: generation, definition: definitionText(seen), batch };
    return store.write((session) => this.#give(session, ask, given));
  }

  /** What a poll may be given: of one partition, as far as a look goes through the events of the others. */
  async #read(
    row: HeldProjection,
    generation: GenerationRow,
    { partition, limit }: Pick<RunnerAsk, "partition" | "limit">,
  ): Promise<LookBatch> {
    const { store, batches } = this.#deps;
    const { cursor_position: cursor } = generation;
    if (partition === undefined) return batches.read({ row, generation, after: cursor, limit, partition });
    const state = await getState(store, generation, partition);
    const begin = Math.max(cursor, state?.last_position ?? 0);
    const basis = { key: generation, partition, definition: definitionText(row), state };
    let after = this.#emptyLooks.behind(basis, begin);
    for (let slices = 1; ; slices++) {
      const batch = await batches.read({ row, generation, after, limit: projectionBatchMax, partition });
      const hasFound = batch.events.length > 0;
      const isEnd = batch.floor !== undefined || batch.reached <= after || slices === projectionPartSlicesMax;
      if (hasFound || isEnd) {
        const empty = { basis, after: begin, reached: hasFound ? after : batch.reached };
        return { ...batch, events: batch.events.slice(0, limit), empty };
      }
      after = batch.reached;
    }
  }

  /** What a runner asks for is kept from expiring, also while it is paused. */
  async #noteAsked(generation: GenerationRow): Promise<void> {
    const { store, clock } = this.#deps;
    const now = clock.now();
    if (now - generation.asked_at > projectionLiveMs / 7)
      await store.write((session) => noteAsked(session, generation, now));
  }

  async #give(
    session: Session,
    { key, runner, partition }: RunnerAsk,
    { seen, definition, batch }: { seen: GenerationRow; definition: string; batch: LookBatch },
  ): Promise<Delivered | undefined> {
    const now = this.#deps.clock.now();
    const held = await holdProjection(session, key);
    if (!held) throw unknownProjection(key.name);
    const generation = generationOf(held, runner);
    if (!isFed(held)) return nothing("idle", held, generation);
    const standing = standingOf(generation, runner, { streamId: null, now });
    if (standing === "another") return nothing("standby", held, generation);
    // A save since then may have folded what the batch holds: it would be folded twice.
    if (!isSame(generation, seen) || definitionText(held) !== definition) return undefined;
    const { events, reached } = batch;
    takeLease(generation, runner, { streamId: null, now, hasWork: events.length > 0 });
    generation.offered = Math.max(generation.offered, events.at(-1)?.position ?? 0);
    // A poll of one partition says nothing of others: the cursor stays, and the node notes how far it looked.
    if (partition === undefined) {
      await clearPending(session, generation);
      if (events.length > 0) await addPending(session, generation, pendingIn(events));
      generation.delivered = reached;
    }
    const advanced = await advance(session, held, generation, { now });
    const current = await stateFor(session, held, generation, partition);
    // A failure during the look hides events that a resume brings back: it must not count as empty then.
    const { empty } = batch;
    if (empty && placeText(current) === placeText(empty.basis.state))
      this.#emptyLooks.note(empty.basis, empty);
    return { state: "given", held, generation, events, current, advanced };
  }

  async #giveNext(
    session: Session,
    { key, runner }: Omit<RunnerAsk, "partition">,
    { streamId, definition, mine, batch }: OwnStream & { mine: GenerationRow; batch: EventBatch },
  ): Promise<Delivered | undefined> {
    const now = this.#deps.clock.now();
    const held = await holdProjection(session, key);
    const generation = held?.generations.find((one) => one.stream_id === streamId);
    if (!held || !generation || definitionText(held) !== definition) return undefined;
    if (!isFed(held) || generation.delivered !== mine.delivered) return nothing("idle", held, generation);
    const { events, reached } = batch;
    takeLease(generation, runner, { streamId, now, hasWork: events.length > 0 });
    if (events.length > 0) await addPending(session, generation, pendingIn(events));
    generation.offered = Math.max(generation.offered, events.at(-1)?.position ?? 0);
    generation.delivered = reached;
    const advanced = await advance(session, held, generation, { now });
    return { state: "given", held, generation, events, current: undefined, advanced };
  }
}

const isSame = (generation: GenerationRow, seen: GenerationRow): boolean =>
  generation.generation === seen.generation &&
  generation.cursor_position === seen.cursor_position &&
  generation.saved_at === seen.saved_at;

/** What a poll brings along: runners fold onto it. */
const stateFor = async (
  reads: SessionReads,
  { mode }: HeldProjection,
  generation: GenerationRow,
  partition = globalPartition,
): Promise<StateRow | undefined> => (mode === "managed" ? getState(reads, generation, partition) : undefined);
