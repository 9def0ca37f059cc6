import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { StoredEvent } from "../../../kit/stored-event.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { batchTakeMax } from "./limits.ts";

/** What a function and a key have open, and due. */
export interface DueBatch
  extends RowOf<
    "batches",
    "id, environment_id, function_id, function_version, size, timeout_ms, count, first_position"
  > {
  /** Null when the function is deleted. */
  function_status: string | null;
  /** Number of the turn, in a slice by turns. */
  turn: number;
}

const due = (now: Instant): DueRows => ({
  table: "batches",
  columns: sql`d.id, d.environment_id, d.function_id, d.function_version, d.size, d.timeout_ms, d.count, d.first_position,
    (SELECT f.status FROM functions f WHERE f.environment_id = d.environment_id AND f.id = d.function_id)
      AS function_status`,
  where: sql`d.closes_at >= 0`,
  dueAt: "closes_at",
  until: now,
});

export const dueBatches = (store: Store, now: Instant, slice: Slice): Promise<DueBatch[]> =>
  store.all(sliceOf(store.seams, due(now), slice));

export const environmentsDueNow = (store: Store, now: Instant): Promise<WorkScope[]> =>
  store.all(environmentsDue(due(now)));

export interface BatchedRow {
  position: number;
  event_id: string;
  bytes: number;
  at: Instant;
  /** Number of the batch among those asked for, from 1. */
  turn: number;
}

/** The first events of each of these, in no order, and one more than is taken out at once. */
export const waitingIn = (store: Store, batches: readonly DueBatch[]): Promise<BatchedRow[]> =>
  store.all(
    store.seams.firstOfEach({
      places: store.seams.rowsFrom("p", {
        ...columnsOf(batches, { text: "environment_id", bigint: "first_position" }),
        batch_id: column.text(batches.map((one) => one.id)),
        quota: column.bigint(batches.map(() => batchTakeMax + 1)),
      }),
      table: "batch_events",
      columns: sql.raw("d.position, d.event_id, d.bytes, d.at"),
      where: sql.raw(
        "d.environment_id = p.environment_id AND d.batch_id = p.batch_id AND d.position >= p.first_position",
      ),
      order: sql.raw("d.position"),
      most: batchTakeMax + 1,
    }),
  );

/** The part of an event that its run is made of. */
export interface BatchHead {
  id: string;
  name: string;
  data: string;
}

export const eventsById = async (store: Store, ids: readonly string[]): Promise<BatchHead[]> =>
  ids.length === 0
    ? []
    : store.all(sql`SELECT id, name, data FROM events WHERE id ${store.seams.among(column.text(ids))}`);

type EventOfRun = StoredEvent & { position: number; entity_id: string | null };

/** The events that a run was given, in their order; none for a run of one event. */
export const eventsOfRun = (store: Store, runId: string): Promise<EventOfRun[]> =>
  store.all(sql`SELECT v.id, v.position, v.name, v.version, v.data, v.metadata, v.source, v.at, v.idempotency_key,
      v.entity_id
    FROM batch_events b JOIN events v ON v.environment_id = b.environment_id AND v.position = b.position
    WHERE b.run_id = ${runId} ORDER BY b.position`);

/** Puts off what was not changed since it was read. */
export const putOff = (session: Session, batches: readonly DueBatch[], until: Instant): Promise<number> =>
  session.run(
    sql`UPDATE batches SET closes_at = ${sql.bigint(until)} FROM ${session.seams.rowsFrom("v", {
      ...columnsOf(batches, { text: "id", bigint: "first_position" }),
    })} WHERE batches.id = v.id AND batches.first_position = v.first_position`,
  );

export async function nextCloseAt(store: Store): Promise<Instant | undefined> {
  const row = await store.one<{ at: number | null }>(sql`SELECT min(closes_at) AS at FROM batches`);
  return row?.at ?? undefined;
}

/** Locks: batches, after the head of their environment. */
export async function deleteBatchesOf(
  session: Session,
  { environmentId, functionId }: { environmentId: string; functionId: string },
): Promise<void> {
  const own = sql`SELECT id FROM batches WHERE environment_id = ${environmentId} AND function_id = ${functionId}`;
  await session.run(sql`DELETE FROM batch_events WHERE environment_id = ${environmentId} AND run_id IS NULL
    AND batch_id IN (${own})`);
  await session.run(
    sql`DELETE FROM batches WHERE environment_id = ${environmentId} AND function_id = ${functionId}`,
  );
}

/** The lowest position of the environment's log that an open batch has. */
export async function leastPosition(store: Store, environmentId: string): Promise<number | undefined> {
  const row = await store.one<{ position: number | null }>(
    sql`SELECT min(first_position) AS position FROM batches WHERE environment_id = ${environmentId}`,
  );
  return row?.position ?? undefined;
}

/** What a function and a key have open, as it is listed. */
export interface BatchListing
  extends Pick<DueBatch, "id" | "function_id" | "function_version" | "size" | "count"> {
  bytes: number;
  closes_at: Instant;
  /** Null while the batch is taken out of. */
  first_event_id: string | null;
  first_at: Instant | null;
}

/** By function and id, from behind `after`. */
export function listBatches(
  store: Pick<Store, "all">,
  environmentId: string,
  page: {
    functionId: string | undefined;
    after: { functionId: string; id: string } | undefined;
    limit: number;
  },
): Promise<BatchListing[]> {
  const { functionId, after, limit } = page;
  const where = [sql`b.environment_id = ${environmentId}`];
  if (functionId !== undefined) where.push(sql`b.function_id = ${functionId}`);
  if (after) where.push(sql`(b.function_id, b.id) > (${after.functionId}, ${after.id})`);
  return store.all(sql`SELECT b.id, b.function_id, b.function_version, b.size, b.count, b.bytes, b.closes_at,
      e.event_id AS first_event_id, e.at AS first_at
    FROM (SELECT * FROM batches b ${sql.where(where)} ORDER BY b.function_id, b.id LIMIT ${limit}) b
      LEFT JOIN batch_events e ON e.environment_id = b.environment_id AND e.batch_id = b.id
        AND e.position = b.first_position
    ORDER BY b.function_id, b.id`);
}
