import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { Basics, LeaderWrite, Session, Store } from "../../../store/store.ts";
import type { EventDraft } from "../../engine/emit/rules.ts";
import type { EmitOrigin, Emitted, Events } from "../../engine/emit/service.ts";
import type { ForgetBytes } from "../../engine/quotas/service.ts";
import type { EventRun } from "../../engine/runs/event-runs.ts";
import * as rows from "./rows.ts";
import { isEntityId } from "./rules.ts";
import {
  type HistoryPage,
  openStreamReads,
  type Snapshot,
  type StreamEvent,
  type StreamInfo,
  type StreamList,
  type StreamPage,
  type StreamReadsDeps,
  streamNotFound,
} from "./stream-reads.ts";

export type { Emitted, EventRun, HistoryPage, Snapshot, StreamEvent, StreamInfo, StreamList, StreamPage };

/** What happened to a stream, for those who follow it. */
export interface StreamFrame {
  change: "appended" | "snapshotted";
  environmentId: string;
  entityId: string;
  entityType: string;
  entityVersion: number;
  at: Instant;
  eventId?: string;
  eventName?: string;
  runId?: string | null;
  snapshotId?: string;
}

/** Entities as streams of versioned events. */
export type Streams = ReturnType<typeof openStreams>;

export interface StreamsDeps extends Basics<"clock" | "ids">, StreamReadsDeps {
  events: Pick<Events, "emit">;
  /**
   * Locks the environment against deletion until the transaction ends; throws `not_found` when it is gone.
   */
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  /** Takes what is overwritten out of the quotas. */
  forgetBytes: ForgetBytes;
  /** Overwrites what else has the payload of an event, in the transaction that redacts it. */
  redactCopies: (session: Session, environmentId: string, eventId: string) => Promise<void>;
  /** Called after the commit. */
  onFrame: (frame: StreamFrame) => void;
}

/** Also a deleted one; throws for one that never was. */
async function lockStream(
  session: Session,
  environmentId: string,
  entityId: string,
): Promise<rows.StreamRow> {
  const stream = isEntityId(entityId) ? await rows.lockStream(session, environmentId, entityId) : undefined;
  if (!stream) throw streamNotFound();
  return stream;
}

export function openStreams(deps: StreamsDeps) {
  const { store, clock, ids, events, shareEnvironment, forgetBytes, onFrame } = deps;

  return {
    ...openStreamReads(deps),

    /**
     * Commits the events in order, all or none of them. `aborted` with `version conflict` when a stream is
     * not where it is expected, `invalid_argument` for another type than the stream's, `failed_precondition`
     * for a deleted one; faults of `Events.emit` besides.
     */
    append: (drafts: readonly EventDraft[], origin: EmitOrigin) => events.emit(drafts, origin),

    /**
     * Stores the state of an entity at a version; a second one of a version replaces the first. Answers its
     * id. `invalid_argument` above the head and for another type than the stream's.
     */
    async createSnapshot(
      environmentId: string,
      input: { entityId: string; entityType: string; entityVersion: number; state: string },
    ): Promise<string> {
      const { entityId, entityType, entityVersion, state } = input;
      const id = ids.next("snap");
      const at = clock.now();
      await store.write(async (session) => {
        await shareEnvironment(session, environmentId);
        const stream = await lockStream(session, environmentId, entityId);
        if (stream.deleted_at !== null) throw streamNotFound();
        if (stream.entity_type !== entityType)
          throw invalid("entityType", `stream ${entityId} is of type "${stream.entity_type}"`);
        if (entityVersion > stream.version)
          throw invalid("entityVersion", `must be at most the stream's version, ${stream.version}`);
        const snapshot = { id, entity_id: entityId, entity_version: entityVersion, state, created_at: at };
        await rows.putSnapshot(session, environmentId, snapshot);
      });
      onFrame({
        change: "snapshotted",
        snapshotId: id,
        ...{ environmentId, entityId, entityType, entityVersion, at },
      });
      return id;
    },

    /** Deletes the stream for good; a second time answers the first. */
    async delete(environmentId: string, entityId: string, { purge }: { purge: boolean }) {
      const now = clock.now();
      const row = await store.write(async (session) => {
        const stream = await lockStream(session, environmentId, entityId);
        await rows.markDeleted(session, environmentId, entityId, { now, purgeFrom: purge ? 1 : null });
        if (purge) await rows.deleteSnapshots(session, environmentId, entityId, 0);
        return stream;
      });
      // Once this is answered nothing of it can be read. What a crash leaves is for loop `streams.purge`.
      const one = { environment_id: environmentId, entity_id: entityId };
      for (let isLeft = purge; isLeft; ) isLeft = await purgeSlice(deps, store.write, one);
      return { version: row.version, deletedAt: row.deleted_at ?? now };
    },

    /** Overwrites the payload of one event; `not_found` when the stream has no such event. */
    async redact(environmentId: string, entityId: string, eventId: string) {
      const now = clock.now();
      const redacted = await store.write(async (session) => {
        await lockStream(session, environmentId, entityId);
        const row = await rows.redactEvent(
          session,
          environmentId,
          { entityId, eventId, now },
          (which, left) => forgetBytes(session, environmentId, which, left),
        );
        if (!row) return undefined;
        await rows.deleteSnapshots(session, environmentId, entityId, row.entity_version);
        await deps.redactCopies(session, environmentId, eventId);
        return row;
      });
      if (!redacted) throw new Fault("not_found", `event ${eventId.slice(0, 80)} not found in the stream`);
      return { entityVersion: redacted.entity_version, redactedAt: redacted.redacted_at };
    },

    /** The tick of loop `streams.purge`: overwrites the payloads of streams that were deleted with them. */
    purgeOnce: (write: LeaderWrite) => purgeDeleted(deps, write),
  };
}

/** Streams of one slice, each with a slice of its payloads. */
const purgedAtOnce = 100;

/** Answers whether payloads may be left. */
const purgeSlice = (
  { clock, forgetBytes }: Pick<StreamsDeps, "clock" | "forgetBytes">,
  write: Store["write"],
  one: rows.PurgedStream,
): Promise<boolean> =>
  write((session) =>
    rows.purgePayloads(session, one, { now: clock.now(), limit: purgeSliceMax }, (which, left) =>
      forgetBytes(session, one.environment_id, which, left),
    ),
  );

/** A stream comes again until all of its payloads are overwritten. */
async function purgeDeleted(deps: StreamsDeps, write: LeaderWrite): Promise<void> {
  const { store, clock } = deps;
  let purged: number;
  const purgeSome = async (slice: Slice) => {
    const found = await rows.streamsToPurge(store, clock.now(), slice);
    for (const one of found) await purgeSlice(deps, write, one);
    purged += found.length;
    return found;
  };
  const work = workOn(purgeSome, () => rows.environmentsToPurge(store, clock.now()));
  do {
    purged = 0;
    await roundRobin([work], { clock, limit: purgedAtOnce });
  } while (purged > 0);
}
