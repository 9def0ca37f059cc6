import type { Clock, Instant } from "../../../../kit/clock.ts";
import { Fault, invalid } from "../../../../kit/fault.ts";
import type { Session, Store } from "../../../../store/store.ts";
import { type Advanced, advance } from "../advance.ts";
import { projectionErrorCharsMax, projectionLeaseMs } from "../limits.ts";
import {
  type GenerationRow,
  getHead,
  type HeldProjection,
  holdProjection,
  type ProjectionKey,
  updateProjection,
} from "../rows.ts";
import { type Runner, unknownProjection } from "../rules.ts";
import {
  firstPending,
  getState,
  getStates,
  noState,
  putStates,
  record,
  type StateRow,
  settlePartitions,
  settlePending,
} from "../state-rows.ts";
import { generationOf, requireLease, touch } from "./leases.ts";

/** The state of one partition, folded up to one of its events. */
export interface SavedState {
  partition: string;
  /** JSON text. */
  state: string;
  lastEventId: string;
  lastPosition: number;
  lastEventAt: Instant | null;
}

/** A runner has folded events of these partitions, each named once. */
export interface Save {
  key: ProjectionKey;
  runner: Runner;
  states: readonly SavedState[];
}

/** A runner of an external projection has handled all events up to one. */
export interface ProjectionAck {
  key: ProjectionKey;
  runner: Runner;
  lastEventId: string;
  lastPosition: number;
}

/** A handler failed for good at one event. */
export interface Failure {
  key: ProjectionKey;
  runner: Runner;
  partition: string;
  eventId: string;
  position: number;
  message: string;
}

export interface Saved {
  held: HeldProjection;
  generation: GenerationRow;
  /** The states as they were stored, without partitions that are at that position already. */
  stored: readonly StateRow[];
  advanced: Advanced;
  /** A handler failed, which no report had said before. */
  hasFailed: boolean;
}

/** What runners tell of their work: each checked against the lease in the transaction of the write. */
export interface Saves {
  save(save: Save): Promise<Saved>;
  ack(ack: ProjectionAck): Promise<Saved>;
  fail(failure: Failure): Promise<Saved>;
}

/** Written although the answer is a refusal. */
interface Refused {
  refusal: Fault;
}

export class StoredSaves implements Saves {
  readonly #store: Store;
  readonly #clock: Clock;

  constructor({ store, clock }: { store: Store; clock: Clock }) {
    this.#store = store;
    this.#clock = clock;
  }

  async save(save: Save): Promise<Saved> {
    const saved = await this.#store.write((session) => this.#applySave(session, save));
    if ("refusal" in saved) throw saved.refusal;
    return saved;
  }

  ack({ key, runner, lastPosition }: ProjectionAck): Promise<Saved> {
    return this.#store.write(async (session) => {
      const { held, generation } = await this.#begin(session, key, runner);
      if (held.mode !== "external")
        throw new Fault("failed_precondition", `projection "${key.name}" is managed: save its state`);
      await this.#requireOffered(session, generation, lastPosition);
      const processed = await settlePending(session, generation, lastPosition);
      const advanced = await this.#advance(session, held, generation, processed);
      return { held, generation, stored: [], advanced, hasFailed: false };
    });
  }

  fail(failure: Failure): Promise<Saved> {
    return this.#store.write((session) => this.#applyFailure(session, failure));
  }

  async #begin(session: Session, key: ProjectionKey, runner: Runner) {
    const held = await holdProjection(session, key);
    if (!held) throw unknownProjection(key.name);
    const generation = generationOf(held, runner);
    requireLease(held, generation, runner);
    return { held, generation };
  }

  /** Throws for a position that was never handed out. */
  async #requireOffered(session: Session, generation: GenerationRow, position: number) {
    if (position <= generation.offered) return;
    const head = await getHead(session, generation.environment_id);
    if (position > (head?.position ?? 0))
      throw invalid("last_event_seq", `must not be above the end of the log, ${head?.position ?? 0}`);
    throw new Fault(
      "aborted",
      `event ${position} of projection "${generation.name}" was not delivered since it was last rebuilt or ` +
        `resumed (delivered up to ${generation.offered})`,
    );
  }

  #advance(
    session: Session,
    held: HeldProjection,
    generation: GenerationRow,
    processed: number,
  ): Promise<Advanced> {
    const now = this.#clock.now();
    touch(generation, now);
    // A late save of a runner that has left keeps nobody out.
    if (generation.lease_until > now)
      generation.lease_until = Math.max(generation.lease_until, now + projectionLeaseMs);
    return advance(session, held, generation, { now, processed });
  }

  async #applySave(session: Session, save: Save): Promise<Saved | Refused> {
    const { key, runner, states } = save;
    const { held, generation } = await this.#begin(session, key, runner);
    if (held.mode !== "managed")
      throw new Fault("failed_precondition", `projection "${key.name}" is external: acknowledge its events`);
    if (held.refuses_save === 1 && held.stale_holder === runner.holder) {
      held.refuses_save = 0;
      await updateProjection(session, held);
      const message = `projection "${key.name}" was rebuilt: read its state again`;
      return { refusal: new Fault("aborted", message) };
    }
    for (const { lastPosition } of states) await this.#requireOffered(session, generation, lastPosition);
    const rows = await getStates(
      session,
      generation,
      states.map(({ partition }) => partition),
    );
    const before = new Map(rows.map((row) => [row.partition_key, row]));
    const now = this.#clock.now();
    const stored = states.flatMap((one) => {
      const row = before.get(one.partition);
      return isNew(row, one.lastPosition) ? storedOf(one, row, now) : [];
    });
    if (stored.length > 0) await putStates(session, generation, stored);
    if (generation.recorded_since !== null) await record(session, generation, stored);
    const saved = states.map(({ partition, lastPosition: upTo }) => ({ partition, upTo }));
    const processed = await settlePartitions(session, generation, saved);
    const advanced = await this.#advance(session, held, generation, processed);
    return { held, generation, stored, advanced, hasFailed: false };
  }

  async #applyFailure(session: Session, failure: Failure): Promise<Saved> {
    const { key, runner, position, eventId } = failure;
    const { held, generation } = await this.#begin(session, key, runner);
    await this.#requireOffered(session, generation, position);
    const now = this.#clock.now();
    const message = failure.message.slice(0, projectionErrorCharsMax).toWellFormed().replaceAll("\0", " ");
    const partition = held.mode === "managed" ? failure.partition : "";
    const isManaged = held.mode === "managed";
    if (isManaged) {
      const before = await getState(session, generation, partition);
      if (before && (before.last_position >= position || before.error_position !== null)) {
        const advanced = await this.#advance(session, held, generation, 0);
        return { held, generation, stored: [], advanced, hasFailed: false };
      }
      // What was delivered before the event and is not saved comes again with it.
      const unsaved = await firstPending(session, generation, partition);
      const stopped = Math.min(position, unsaved ?? position);
      // All before `stopped` is saved, so that an event that was passed over there needs no place of its own.
      const skipped = unsaved === undefined ? 0 : (before?.skipped_position ?? 0);
      const passed = skipped < stopped ? skipped : 0;
      const failed = {
        last_position: Math.max(before?.last_position ?? 0, passed),
        error_message: message,
        error_event_id: eventId,
        error_position: stopped,
        updated_at: now,
      };
      await putStates(session, generation, [{ ...(before ?? noState(partition)), ...failed }]);
    }
    if (generation.generation === held.generation) {
      if (held.status !== "rebuilding") held.status = "error";
      held.error_message = message;
      held.error_event_id = eventId;
      held.error_position = position;
      held.error_partition = partition || null;
      held.updated_at = now;
      await updateProjection(session, held);
    }
    // Of an external projection nothing behind the event is done; of a managed one its partition waits.
    const processed = isManaged
      ? await settlePartitions(session, generation, [{ partition, upTo: generation.offered }])
      : await settlePending(session, generation, position - 1);
    return {
      held,
      generation,
      stored: [],
      advanced: await this.#advance(session, held, generation, processed),
      hasFailed: true,
    };
  }
}

/** Behind what its partition has, and before the event at which that has stopped. */
const isNew = (before: StateRow | undefined, position: number): boolean =>
  before === undefined ||
  ((before.state === null || position > before.last_position) &&
    (before.error_position === null || position < before.error_position));

const storedOf = (one: SavedState, before: StateRow | undefined, now: Instant): StateRow => ({
  ...(before ?? noState(one.partition)),
  state: one.state,
  last_event_id: one.lastEventId || null,
  last_position: one.lastPosition,
  last_event_at: one.lastEventAt,
  version: (before?.version ?? 0) + 1,
  updated_at: now,
});
