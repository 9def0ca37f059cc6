import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { Fault } from "../../../kit/fault.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { historyMs, partitionsMax } from "./limits.ts";
import { type GenerationKey, type GenerationRow, type SessionReads, whereGeneration } from "./rows.ts";

/** One partition of a managed projection. */
export interface StateRow
  extends RowOf<
    "projection_states",
    `partition_key, last_event_id, last_position, last_event_at, error_event_id, error_position,
  updated_at`
  > {
  /** JSON text; null where the first event of the partition failed. */
  state: string | null;
  /** How often it was saved. */
  version: number;
  /** Set while the partition has stopped before the event whose handler failed. */
  error_message: string | null;
  /** An event that a resume passes over. */
  skipped_position: number | null;
}

export const noState = (partition: string): StateRow => ({
  ...{ partition_key: partition, state: null, last_event_id: null, last_position: 0, last_event_at: null },
  ...{ version: 0, error_message: null, error_event_id: null, error_position: null, skipped_position: null },
  updated_at: 0,
});

const names = [
  "partition_key",
  "state",
  "last_event_id",
  "last_position",
  "last_event_at",
  "version",
  "error_message",
  "error_event_id",
  "error_position",
  "skipped_position",
  "updated_at",
] as const satisfies readonly (keyof StateRow)[];
const columns = sql.raw(names.join(", "));
const ofStates = sql.raw(names.map((name) => `s.${name}`).join(", "));
const ofItems = sql.raw(names.map((name) => `i.${name}`).join(", "));

export const getState = (
  reads: Pick<SessionReads, "one">,
  key: GenerationKey,
  partition: string,
): Promise<StateRow | undefined> =>
  reads.one(sql`SELECT ${columns} FROM projection_states WHERE ${whereGeneration(key)}
    AND partition_key = ${partition}`);

/** Partitions that have a row. `CROSS JOIN` keeps SQLite from testing each row against the list. */
export const getStates = (
  session: Session,
  key: GenerationKey,
  partitions: readonly string[],
): Promise<StateRow[]> =>
  session.all(sql`SELECT ${ofStates}
    FROM ${session.seams.rowsFrom("i", { partition_key: column.text(partitions) })}
      CROSS JOIN projection_states s
    WHERE s.partition_key = i.partition_key AND s.environment_id = ${key.environment_id} AND s.name = ${key.name}
      AND s.generation = ${sql.bigint(key.generation)}`);

export const putStates = (session: Session, key: GenerationKey, rows: readonly StateRow[]): Promise<number> =>
  session.run(sql`INSERT INTO projection_states (environment_id, name, generation, ${columns})
    SELECT ${key.environment_id}, ${key.name}, ${sql.bigint(key.generation)}, ${ofItems}
    FROM ${session.seams.rowsFrom("i", {
      ...columnsOf(rows, {
        text: "partition_key state last_event_id error_message error_event_id",
        bigint: "last_position last_event_at version error_position skipped_position updated_at",
      }),
    })} WHERE true
    ON CONFLICT (environment_id, name, generation, partition_key) DO UPDATE SET state = excluded.state,
      last_event_id = excluded.last_event_id, last_position = excluded.last_position,
      last_event_at = excluded.last_event_at, version = excluded.version, error_message = excluded.error_message,
      error_event_id = excluded.error_event_id, error_position = excluded.error_position,
      skipped_position = excluded.skipped_position, updated_at = excluded.updated_at`);

export const deleteState = (session: Session, key: GenerationKey, partition: string): Promise<number> =>
  session.run(
    sql`DELETE FROM projection_states WHERE ${whereGeneration(key)} AND partition_key = ${partition}`,
  );

export type PartitionPlace = Pick<
  StateRow,
  "partition_key" | "last_position" | "error_position" | "skipped_position"
>;

/** How far these partitions are folded, and where they have stopped; those without a row are left out. */
export const partitionsAt = (
  reads: Pick<Store, "all" | "seams">,
  key: GenerationKey,
  partitions: readonly string[],
): Promise<PartitionPlace[]> =>
  reads.all(sql`SELECT s.partition_key, s.last_position, s.error_position, s.skipped_position
    FROM ${reads.seams.rowsFrom("i", { partition_key: column.text(partitions) })}
      CROSS JOIN projection_states s
    WHERE s.partition_key = i.partition_key AND s.environment_id = ${key.environment_id} AND s.name = ${key.name}
      AND s.generation = ${sql.bigint(key.generation)}`);

/** The partition that has stopped at the lowest position. */
export const firstStopped = (
  reads: Pick<SessionReads, "one">,
  key: GenerationKey,
): Promise<StateRow | undefined> =>
  reads.one(sql`SELECT ${columns} FROM projection_states WHERE ${whereGeneration(key)}
    AND error_position IS NOT NULL ORDER BY error_position LIMIT 1`);

/** Passes over one event in the partition that has stopped at it. Answers 0 when none has. */
export const skipEvent = (
  session: Session,
  key: GenerationKey,
  { eventId, position }: { eventId: string; position: number },
): Promise<number> =>
  session.run(sql`UPDATE projection_states SET skipped_position = ${sql.bigint(position)}
    WHERE ${whereGeneration(key)} AND error_position IS NOT NULL AND error_event_id = ${eventId}`);

/** Lets all partitions of the generation continue. */
export const clearErrors = (session: Session, key: GenerationKey): Promise<number> =>
  session.run(sql`UPDATE projection_states SET error_message = NULL, error_event_id = NULL, error_position = NULL
    WHERE ${whereGeneration(key)} AND error_position IS NOT NULL`);

/** By key; `search` is a part of it. Looked through in slices: any number may have to be passed over. */
export async function listPartitions(
  reads: Pick<Store, "all">,
  key: GenerationKey,
  { search, limit }: { search: string; limit: number },
): Promise<string[]> {
  const found: string[] = [];
  let after: string | undefined;
  for (;;) {
    const behind = after === undefined ? sql`` : sql`AND partition_key > ${after}`;
    const slice = await reads.all<{
      partition_key: string;
      has_state: number | boolean;
    }>(sql`SELECT partition_key,
        state IS NOT NULL AS has_state FROM projection_states WHERE ${whereGeneration(key)} ${behind}
      ORDER BY partition_key LIMIT ${partitionsMax}`);
    for (const { partition_key: partition, has_state } of slice)
      if (has_state && partition.includes(search) && found.length < limit) found.push(partition);
    if (found.length >= limit || slice.length < partitionsMax) return found;
    after = slice.at(-1)!.partition_key;
  }
}

export const deleteStates = (session: Session, key: GenerationKey, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM projection_states WHERE (environment_id, name, generation, partition_key) IN (
    SELECT environment_id, name, generation, partition_key FROM projection_states
    WHERE ${whereGeneration(key)} ORDER BY partition_key LIMIT ${limit})`);

/** Delivered events of one partition that are not saved. */
export interface PendingPartition {
  partition: string;
  first: number;
  last: number;
  count: number;
}

export const clearPending = (session: Session, key: GenerationKey): Promise<number> =>
  session.run(sql`DELETE FROM projection_pending WHERE ${whereGeneration(key)}`);

export const addPending = (
  session: Session,
  key: GenerationKey,
  list: readonly PendingPartition[],
): Promise<number> =>
  session.run(sql`INSERT INTO projection_pending (environment_id, name, generation, partition_key, first_position,
      last_position, event_count)
    SELECT ${key.environment_id}, ${key.name}, ${sql.bigint(key.generation)}, i.partition_key, i.first_position,
      i.last_position, i.event_count
    FROM ${session.seams.rowsFrom("i", {
      partition_key: column.text(list.map((one) => one.partition)),
      first_position: column.bigint(list.map((one) => one.first)),
      last_position: column.bigint(list.map((one) => one.last)),
      event_count: column.bigint(list.map((one) => one.count)),
    })} WHERE true
    ON CONFLICT (environment_id, name, generation, partition_key) DO UPDATE SET
      last_position = excluded.last_position,
      event_count = projection_pending.event_count + excluded.event_count`);

/** Where what is delivered and not saved begins; undefined for nothing. */
export async function firstUnsaved(
  session: Pick<Session, "one">,
  key: GenerationKey,
): Promise<number | undefined> {
  const row = await session.one<{ first: number | null }>(
    sql`SELECT min(first_position) AS first FROM projection_pending WHERE ${whereGeneration(key)}`,
  );
  return row?.first ?? undefined;
}

/** Where the unsaved events of one partition begin. */
export const firstPending = async (
  session: Pick<Session, "one">,
  key: GenerationKey,
  partition: string,
): Promise<number | undefined> =>
  (
    await session.one<{ first_position: number }>(sql`SELECT first_position FROM projection_pending
      WHERE ${whereGeneration(key)} AND partition_key = ${partition}`)
  )?.first_position;

/** Up to where the events of one partition are saved. */
export interface SavedPartition {
  partition: string;
  upTo: number;
}

const sumOf = (rows: readonly { event_count: number }[]): number =>
  rows.reduce((sum, { event_count }) => sum + event_count, 0);

/**
 * The saved events are done with. Answers how many were delivered. A partition of which more was delivered
 * keeps its row, from the next position on.
 */
export async function settlePartitions(
  session: Session,
  key: GenerationKey,
  saved: readonly SavedPartition[],
): Promise<number> {
  const items = session.seams.rowsFrom("i", {
    partition_key: column.text(saved.map(({ partition }) => partition)),
    up_to: column.bigint(saved.map(({ upTo }) => upTo)),
  });
  // Each row by its whole key: a test of each pending one against the list takes a second for a thousand.
  const found = await session.all<{ partition_key: string; last_position: number; up_to: number }>(
    sql`SELECT q.partition_key, q.last_position, i.up_to FROM ${items}
        CROSS JOIN projection_pending q
      WHERE q.partition_key = i.partition_key AND q.environment_id = ${key.environment_id} AND q.name = ${key.name}
        AND q.generation = ${sql.bigint(key.generation)} AND q.first_position <= i.up_to`,
  );
  const done = found.filter((row) => row.last_position <= row.up_to);
  const rest = found.filter((row) => row.last_position > row.up_to);
  if (rest.length > 0)
    await session.run(sql`UPDATE projection_pending SET first_position = i.up_to + 1
      FROM ${session.seams.rowsFrom("i", {
        ...columnsOf(rest, { text: "partition_key", bigint: "up_to" }),
      })} WHERE ${whereGeneration(key)} AND projection_pending.partition_key = i.partition_key`);
  if (done.length === 0) return 0;
  const wanted = column.text(done.map((row) => row.partition_key));
  return sumOf(
    await session.all<{
      event_count: number;
    }>(sql`DELETE FROM projection_pending WHERE ${whereGeneration(key)}
      AND partition_key IN (SELECT i.wanted FROM ${session.seams.rowsFrom("i", { wanted })}) RETURNING event_count`),
  );
}

/** All events up to `upTo` are done with. Answers how many were delivered. */
export async function settlePending(session: Session, key: GenerationKey, upTo: number): Promise<number> {
  const mine = whereGeneration(key);
  const done = await session.all<{ event_count: number }>(
    sql`DELETE FROM projection_pending WHERE ${mine} AND last_position <= ${upTo} RETURNING event_count`,
  );
  await session.run(sql`UPDATE projection_pending SET first_position = ${sql.bigint(upTo + 1)}
    WHERE ${mine} AND first_position <= ${upTo}`);
  return sumOf(done);
}

/** Keeps states as they were after the last event folded into them; without its time, as of the save. */
export async function record(
  session: Session,
  { environment_id, name, generation }: GenerationKey,
  states: readonly StateRow[],
): Promise<void> {
  const kept = states.filter(({ state }) => state !== null);
  if (kept.length === 0) return;
  await session.run(sql`INSERT INTO projection_history (environment_id, name, generation, partition_key, at, position,
      event_id, version, saved_at, state)
    SELECT ${environment_id}, ${name}, ${sql.bigint(generation)}, i.partition_key, i.at, i.position, i.event_id,
      i.version, i.saved_at, i.state
    FROM ${session.seams.rowsFrom("i", {
      ...columnsOf(kept, { text: "partition_key state", bigint: "version" }),
      at: column.bigint(kept.map((row) => row.last_event_at ?? row.updated_at)),
      position: column.bigint(kept.map((row) => row.last_position)),
      event_id: column.text(kept.map((row) => row.last_event_id)),
      saved_at: column.bigint(kept.map((row) => row.updated_at)),
    })} WHERE true
    ON CONFLICT (environment_id, name, generation, partition_key, at, position) DO UPDATE SET
      event_id = excluded.event_id, version = excluded.version, saved_at = excluded.saved_at, state = excluded.state`);
}

/**
 * The state of a partition as it was saved last with no event after `asOf`; undefined where nothing was
 * folded by then. Throws `failed_precondition` where no history is kept of that time.
 */
export async function stateAt(
  reads: Pick<SessionReads, "one">,
  generation: GenerationRow,
  { partition, asOf, now }: { partition: string; asOf: Instant; now: Instant },
): Promise<StateRow | undefined> {
  const since = generation.recorded_since;
  const refused = (why: string) =>
    new Fault("failed_precondition", `as_of: projection "${generation.name}" ${why}`, { field: "as_of" });
  if (since === null) throw refused("is not recording: register it with recording");
  if (asOf < since) throw refused(`is recording since ${new Date(since).toISOString()}`);
  if (asOf < now - historyMs) throw refused(`keeps the states of ${historyMs / 86_400_000} days`);
  const row = await reads.one<{
    at: Instant;
    position: number;
    event_id: string | null;
    version: number;
    saved_at: Instant;
    state: string;
  }>(sql`SELECT at, position, event_id, version, saved_at, state FROM projection_history
    WHERE ${whereGeneration(generation)} AND partition_key = ${partition} AND at <= ${sql.bigint(asOf)}
    ORDER BY at DESC, position DESC LIMIT 1`);
  return (
    row && {
      ...noState(partition),
      ...{ state: row.state, last_event_id: row.event_id, last_position: row.position },
      ...{ last_event_at: row.at, version: row.version, updated_at: row.saved_at },
    }
  );
}

/** Of each partition the newest state that is older than `before` stays: it is what holds then. */
export const forgetHistory = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM projection_history
    WHERE (environment_id, name, generation, partition_key, at, position) IN (
      SELECT h.environment_id, h.name, h.generation, h.partition_key, h.at, h.position FROM projection_history h
      WHERE h.at < ${sql.bigint(before)} AND EXISTS (
        SELECT 1 FROM projection_history n
        WHERE n.environment_id = h.environment_id AND n.name = h.name AND n.generation = h.generation
          AND n.partition_key = h.partition_key AND (n.at, n.position) > (h.at, h.position)
          AND n.at <= ${sql.bigint(before)})
      ORDER BY h.at LIMIT ${limit})`);

export const deleteHistory = (session: Session, key: GenerationKey, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM projection_history
    WHERE (environment_id, name, generation, partition_key, at, position) IN (
      SELECT environment_id, name, generation, partition_key, at, position FROM projection_history
      WHERE ${whereGeneration(key)} ORDER BY partition_key, at, position LIMIT ${limit})`);
