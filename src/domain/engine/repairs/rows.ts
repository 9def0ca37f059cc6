import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { gaugeCountMax } from "../../../kit/limits.ts";
import type { Cursor } from "../../../kit/page.ts";
import { countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { RepairOutcome } from "./rules.ts";

export interface RepairKey {
  environment_id: string;
  id: string;
}

export interface RepairRow
  extends RepairKey,
    RowOf<
      "repairs",
      `action, status, phase, reason, request, starter, started_by, note, cursor_at, cursor_id, holder,
  fence, lease_until, due_at, created_at, updated_at, ended_at`
    > {
  /** How many runs are its items so far. */
  selected: number;
  /** JSON text; null until the repair is over. */
  counts: string | null;
}

const fields =
  sql.raw(`environment_id, id, action, status, phase, reason, request, starter, started_by, note, cursor_at,
  cursor_id, selected, counts, holder, fence, lease_until, due_at, created_at, updated_at, ended_at`);

const its = ({ environment_id, id }: RepairKey): Sql =>
  sql`environment_id = ${environment_id} AND id = ${id}`;

export const getRepair = (reader: StoreReader, key: RepairKey): Promise<RepairRow | undefined> =>
  reader.one(sql`SELECT ${fields} FROM repairs WHERE ${its(key)}`);

export const holdRepair = (session: Session, key: RepairKey): Promise<RepairRow | undefined> =>
  session.one(sql`SELECT ${fields} FROM repairs WHERE ${its(key)} ORDER BY id ${session.seams.holdRow}`);

export const listRepairs = (
  reader: StoreReader,
  environmentId: string,
  { after, limit }: { after: Cursor | undefined; limit: number },
): Promise<RepairRow[]> => {
  const where = [sql`environment_id = ${environmentId}`];
  if (after) where.push(sql`(created_at, id) < (${sql.bigint(after.at)}, ${after.id})`);
  return reader.all(sql`SELECT ${fields} FROM repairs ${sql.where(where)}
    ORDER BY created_at DESC, id DESC LIMIT ${limit}`);
};

export const countOpen = (reader: StoreReader, environmentId: string): Promise<number> =>
  countOf(reader, sql`FROM repairs WHERE environment_id = ${environmentId} AND ended_at IS NULL`);

export const insertRepair = (session: Session, row: RepairRow): Promise<number> =>
  session.run(sql`INSERT INTO repairs (${fields}) VALUES (${row.environment_id}, ${row.id}, ${row.action},
    ${row.status}, ${row.phase}, ${row.reason}, ${row.request}, ${row.starter}, ${row.started_by}, ${row.note},
    ${row.cursor_at}, ${row.cursor_id}, ${sql.bigint(row.selected)}, ${row.counts},
    ${row.holder}, ${sql.bigint(row.fence)}, ${sql.bigint(row.lease_until)}, ${sql.bigint(row.due_at)},
    ${sql.bigint(row.created_at)}, ${sql.bigint(row.updated_at)}, ${row.ended_at})`);

/** Changes a repair under the lock of its row; the node that works on it finds out by the fence. */
export const steerRepair = (
  session: Session,
  key: RepairKey,
  { status, note, at }: { status: string; note: string; at: Instant },
): Promise<RepairRow | undefined> =>
  session.one(sql`UPDATE repairs SET status = ${status}, note = ${note}, fence = fence + 1, lease_until = 0,
      holder = NULL, due_at = ${sql.bigint(at)}, updated_at = ${sql.bigint(at)}
    WHERE ${its(key)} RETURNING ${fields}`);

/**
 * Repairs with work that no node holds: of each environment the one that waited longest, so that one with
 * many does not displace the others.
 */
export const dueRepairs = (reader: StoreReader, now: Instant, limit: number): Promise<RepairKey[]> =>
  reader.all(sql`SELECT environment_id, id FROM (SELECT environment_id, id, due_at,
        row_number() OVER (PARTITION BY environment_id ORDER BY due_at, id) AS nth
      FROM repairs WHERE ended_at IS NULL AND status IN ('running', 'stopping')
        AND due_at <= ${sql.bigint(now)} AND lease_until < ${sql.bigint(now)}) due
    WHERE nth = 1 ORDER BY due_at, environment_id LIMIT ${limit}`);

/**
 * Undefined when another node was first, or works on another repair of the environment. A repair whose turn
 * fails, or takes longer than its lease, is due after the others of its environment.
 */
export const claimRepair = (
  session: Session,
  key: RepairKey,
  { holder, now, until }: { holder: string; now: Instant; until: Instant },
): Promise<RepairRow | undefined> =>
  session.one(sql`UPDATE repairs SET holder = ${holder}, fence = fence + 1, lease_until = ${sql.bigint(until)},
      due_at = ${sql.bigint(now)}
    WHERE ${its(key)} AND ended_at IS NULL AND status IN ('running', 'stopping')
      AND lease_until < ${sql.bigint(now)} AND NOT EXISTS (SELECT 1 FROM repairs o
        WHERE o.environment_id = ${key.environment_id} AND o.ended_at IS NULL AND o.lease_until >= ${sql.bigint(now)})
    RETURNING ${fields}`);

export type RepairChange = Pick<
  RepairRow,
  | "status"
  | "phase"
  | "note"
  | "cursor_at"
  | "cursor_id"
  | "selected"
  | "counts"
  | "lease_until"
  | "due_at"
  | "ended_at"
>;

/** 0 when the repair is no longer held under this fence. */
export const saveRepair = (
  session: Session,
  key: RepairKey & { fence: number },
  row: RepairChange,
  at: Instant,
): Promise<number> =>
  session.run(sql`UPDATE repairs SET status = ${row.status}, phase = ${row.phase}, note = ${row.note},
      cursor_at = ${row.cursor_at}, cursor_id = ${row.cursor_id}, selected = ${sql.bigint(row.selected)},
      counts = ${row.counts}, lease_until = ${sql.bigint(row.lease_until)}, due_at = ${sql.bigint(row.due_at)},
      ended_at = ${row.ended_at}, updated_at = ${sql.bigint(at)}
      ${row.lease_until === 0 ? sql.raw(", holder = NULL") : sql.empty}
    WHERE ${its(key)} AND fence = ${sql.bigint(key.fence)}`);

const heldBy = ({ environment_id, id, fence }: RepairKey & { fence: number }): Sql =>
  sql`EXISTS (SELECT 1 FROM repairs r WHERE r.environment_id = ${environment_id} AND r.id = ${id}
    AND r.fence = ${sql.bigint(fence)})`;

const itemsOf = ({ environment_id, id }: RepairKey): Sql =>
  sql`environment_id = ${environment_id} AND repair_id = ${id}`;

export interface NewItem {
  runId: string;
  functionId: string;
  outcome: RepairOutcome;
  error?: string;
  /** Of a replay. */
  eventId?: string;
}

export const insertItems = (
  session: Session,
  { environment_id, id }: RepairKey,
  items: readonly NewItem[],
  at: Instant,
): Promise<number> =>
  session.run(sql`INSERT INTO repair_items (environment_id, repair_id, run_id, function_id, outcome, error,
      tries, at, event_id)
    SELECT ${environment_id}, ${id}, i.run_id, i.function_id, i.outcome, i.error, 0, ${sql.bigint(at)}, i.event_id
    FROM ${session.seams.rowsFrom("i", {
      ...columnsOf(items, { text: "runId functionId outcome error eventId" }),
    })} WHERE 1 = 1 ON CONFLICT (environment_id, repair_id, run_id) DO NOTHING`);

/** A run whose turn it is, as it is now; `status` is null when it has expired. */
export interface PendingItem {
  run_id: string;
  function_id: string;
  tries: number;
  status: string | null;
}

/** The next runs of one function, the first after `functionsAfter`. */
export async function pendingItems(
  reader: StoreReader,
  key: RepairKey,
  { functionsAfter, limit }: { functionsAfter: string; limit: number },
): Promise<PendingItem[]> {
  const next = await reader.one<{ function_id: string }>(sql`SELECT function_id FROM repair_items
    WHERE ${itemsOf(key)} AND outcome = 'pending' AND function_id > ${functionsAfter}
    ORDER BY environment_id, repair_id, function_id, run_id LIMIT 1`);
  if (!next) return [];
  return reader.all(sql`SELECT i.run_id, i.function_id, i.tries, r.status
    FROM repair_items i LEFT JOIN runs r ON r.id = i.run_id AND r.environment_id = i.environment_id
    WHERE i.environment_id = ${key.environment_id} AND i.repair_id = ${key.id} AND i.outcome = 'pending'
      AND i.function_id = ${next.function_id}
    ORDER BY i.run_id LIMIT ${limit}`);
}

/** How many runs of the function are queued, counted up to `most`. */
export const countQueued = (
  reader: StoreReader,
  { environmentId, functionId }: { environmentId: string; functionId: string },
  most: number,
): Promise<number> =>
  countOf(
    reader,
    sql`FROM executions
    WHERE environment_id = ${environmentId} AND function_id = ${functionId} AND state = 'queued'`,
    most,
  );

/** In the transaction of the action; 0 when the run is no longer this holder's to act on. */
export const takeItem = (
  session: Session,
  key: RepairKey & { fence: number },
  runId: string,
  at: Instant,
): Promise<number> =>
  session.run(sql`UPDATE repair_items SET outcome = 'done', error = NULL, at = ${sql.bigint(at)}
    WHERE ${itemsOf(key)} AND run_id = ${runId} AND outcome = 'pending' AND ${heldBy(key)}`);

export const settleItem = (
  session: Session,
  key: RepairKey & { fence: number },
  item: { runId: string; outcome: RepairOutcome; error: string | null; from: RepairOutcome },
  at: Instant,
): Promise<number> =>
  session.run(sql`UPDATE repair_items SET outcome = ${item.outcome}, error = ${item.error}, tries = tries + 1,
      at = ${sql.bigint(at)}
    WHERE ${itemsOf(key)} AND run_id = ${item.runId} AND outcome = ${item.from} AND ${heldBy(key)}`);

export const undoPending = (
  session: Session,
  key: RepairKey & { fence: number },
  limit: number,
  at: Instant,
): Promise<number> =>
  session.run(sql`UPDATE repair_items SET outcome = 'undone', at = ${sql.bigint(at)}
    WHERE ${itemsOf(key)} AND outcome = 'pending' AND run_id IN (SELECT run_id FROM repair_items
      WHERE ${itemsOf(key)} AND outcome = 'pending' ORDER BY function_id, run_id LIMIT ${limit}) AND ${heldBy(key)}`);

export const countItems = (
  reader: StoreReader,
  key: RepairKey,
): Promise<{ outcome: RepairOutcome; count: number }[]> =>
  reader.all(sql`SELECT outcome, count(*) AS count FROM repair_items WHERE ${itemsOf(key)} GROUP BY outcome`);

export type ItemRow = RowOf<"repair_items", "run_id, function_id, outcome, error, at, event_id">;

export const listItems = (
  reader: StoreReader,
  key: RepairKey,
  { outcome, after, limit }: { outcome: string | undefined; after: string; limit: number },
): Promise<ItemRow[]> =>
  reader.all(sql`SELECT run_id, function_id, outcome, error, at, event_id FROM repair_items
    WHERE ${itemsOf(key)} AND run_id > ${after} ${outcome === undefined ? sql.empty : sql`AND outcome = ${outcome}`}
    ORDER BY run_id LIMIT ${limit}`);

/** The items of repairs that ended before, then the repairs that have none left. */
export async function forget(session: Session, before: Instant, limit: number): Promise<number> {
  const old = sql`SELECT environment_id, id FROM repairs WHERE ended_at < ${sql.bigint(before)} ORDER BY ended_at, id
    LIMIT ${limit}`;
  const items = await session.run(sql`DELETE FROM repair_items WHERE (environment_id, repair_id, run_id) IN (
      SELECT i.environment_id, i.repair_id, i.run_id FROM (${old}) o JOIN repair_items i
        ON i.environment_id = o.environment_id AND i.repair_id = o.id LIMIT ${limit})`);
  if (items === limit) return items;
  await session.run(sql`DELETE FROM repairs WHERE (environment_id, id) IN (${old}) AND NOT EXISTS (
    SELECT 1 FROM repair_items i WHERE i.environment_id = repairs.environment_id AND i.repair_id = repairs.id)`);
  return items;
}

export const countsByStatus = (store: Pick<Store, "all">): Promise<{ status: string; count: number }[]> =>
  store.all(sql`SELECT status, count(*) AS count FROM (SELECT status FROM repairs WHERE ended_at IS NULL
    LIMIT ${gaugeCountMax}) counted GROUP BY status`);
