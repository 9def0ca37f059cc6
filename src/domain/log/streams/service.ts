import { screenOfKinds, thingsOf, thingsOfEvent } from "../../../gate/things.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { integrityEnvironmentsMax, purgeSliceMax } from "../../../kit/limits.ts";
import type { Call } from "../../../kit/operation.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import { sql } from "../../../kit/sql.ts";
import type { Basics, LeaderWrite, Session, Store } from "../../../store/store.ts";
import type { EventDraft } from "../../engine/emit/rules.ts";
import type { EmitOrigin, Emitted, Events } from "../../engine/emit/service.ts";
import type { ForgetBytes } from "../../engine/quotas/service.ts";
import type { EventRun } from "../../engine/runs/list-runs.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
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

/** Streams of one look, and the newest versions of each that are compared: an index has all that is read. */
const streamsAtOnce = 200;
const versionsCompared = 50;

interface StreamLook {
  entity_id: string;
  version: number;
  at: number;
  /** The version of its last event; null when it has none. */
  last: number | null;
  /** The lowest version of its newest events. */
  lowest: number | null;
}

const ofStream = sql.raw("v.environment_id = s.environment_id AND v.entity_id = s.entity_id");

/** Walks over the streams of an environment: the version of each is compared with its newest events. */
export function streamsCheck(store: Pick<Store, "all">): IntegrityCheck {
  /** The last stream that was looked at, by environment. */
  const walks = new Map<string, string>();
  const isWell = ({ version, last, lowest }: StreamLook) =>
    last === version && lowest === Math.max(1, version - versionsCompared + 1);
  return {
    name: "streams.heads",
    about: `Streams whose version is not that of their last event, or with a gap in their newest ${versionsCompared}: another ${streamsAtOnce} streams each time.`,
    async run(environmentId) {
      const after = walks.get(environmentId) ?? "";
      const looked = await store.all<StreamLook>(sql`SELECT s.entity_id, s.version, s.updated_at AS at,
          (SELECT max(v.entity_version) FROM events v WHERE ${ofStream}) AS last,
          (SELECT min(n.entity_version) FROM (SELECT v.entity_version FROM events v WHERE ${ofStream}
            ORDER BY v.entity_version DESC LIMIT ${versionsCompared}) n) AS lowest
        FROM (SELECT environment_id, entity_id, version, updated_at FROM streams
          WHERE environment_id = ${environmentId} AND entity_id > ${after}
          ORDER BY entity_id LIMIT ${streamsAtOnce}) s ORDER BY s.entity_id`);
      const broken = looked.filter((stream) => !isWell(stream));
      walks.delete(environmentId);
      if (walks.size >= integrityEnvironmentsMax) walks.delete(walks.keys().next().value!);
      // It stays where something is broken, so that this is seen until it is put right.
      if (broken.length > 0) walks.set(environmentId, after);
      else if (looked.length === streamsAtOnce) walks.set(environmentId, looked.at(-1)!.entity_id);
      return violationsOf(broken.map(({ entity_id, ...rest }) => ({ id: entity_id, ...rest })));
    },
  };
}

/** Throws the refusal of an event of the page: folding a stream takes all events, so none is left out. */
export async function requireReadable({ events }: StreamPage, call: Pick<Call, "screen">): Promise<void> {
  const screen = await screenOfKinds(call, "event");
  for (const event of screen ? events : []) {
    const refused = await screen!.refusalOf(thingsOfEvent(event));
    if (refused) throw refused;
  }
}

/** Leaves out the events and the runs that deny policies keep from the caller. */
export async function withoutHidden(page: HistoryPage, call: Pick<Call, "screen">): Promise<HistoryPage> {
  const screen = await screenOfKinds(call, "event", "run");
  if (!screen) return page;
  const entries = [];
  for (const { event, runs } of page.entries) {
    if (await screen.refusalOf(thingsOfEvent(event))) continue;
    const allowed = [];
    for (const run of runs) if (!(await screen.refusalOf(thingsOf("run", run.id)))) allowed.push(run);
    entries.push({ event, runs: allowed });
  }
  return { ...page, entries };
}
