import type { Instant } from "../../../kit/clock.ts";
import { column, countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Seams, Session, Store } from "../../../store/store.ts";
import { tables } from "../../../store/tables/index.ts";
import { keyOf, type PurgePlace } from "../../../store/tables/table.ts";

/** A table whose rows belong to environments, and the way to those of one. */
export interface OwnedTable extends PurgePlace {
  name: string;
  key: readonly string[];
}

/** Every table with an `environment_id`, in the order in which a purge empties them. */
export const ownedTables: readonly OwnedTable[] = Object.entries(tables)
  .flatMap(([name, table]) => (table.purge ? [{ name, key: keyOf(table), ...table.purge }] : []))
  .sort((one, other) => one.at - other.at);

/** The rows that a query names by their keys. */
const deleteNamed = (session: Session, table: OwnedTable, which: Sql): Promise<number> =>
  session.run(
    sql`DELETE FROM ${sql.raw(table.name)} WHERE ${session.seams.chosen(table.name, table.key, which)}`,
  );

/** Of one environment, or of some of its runs. */
export type Owner = { environmentId: string } | { runIds: readonly string[] };

function owned(seams: Seams, table: OwnedTable, owner: Owner): Sql {
  if ("environmentId" in owner) return sql`WHERE environment_id = ${owner.environmentId}`;
  return sql`WHERE ${sql.raw(table.ofRun ?? "id")} ${seams.among(column.text(owner.runIds))}`;
}

/** At most so many rows; answers how many. */
export const purgeSlice = (
  session: Session,
  table: OwnedTable,
  owner: Owner,
  limit: number,
): Promise<number> => deleteNamed(session, table, sql`${owned(session.seams, table, owner)} LIMIT ${limit}`);

export const anyLeft = async (
  store: Pick<Store, "one" | "seams">,
  table: OwnedTable,
  owner: Owner,
): Promise<boolean> =>
  (await store.one(
    sql`SELECT 1 AS left_over FROM ${sql.raw(table.name)} ${owned(store.seams, table, owner)} LIMIT 1`,
  )) !== undefined;

/** Ids of runs of the environment, oldest first. */
export const someRuns = async (
  store: Pick<Store, "all">,
  environmentId: string,
  limit: number,
): Promise<string[]> =>
  (
    await store.all<{ id: string }>(sql`SELECT id FROM runs WHERE environment_id = ${environmentId}
      ORDER BY created_at, id LIMIT ${limit}`)
  ).map((row) => row.id);

export interface Tombstone {
  id: string;
  deletedAt: Instant;
}

/** Deleted environments of which rows may be left, longest deleted first. */
export const unpurged = async (store: Pick<Store, "all">, limit: number): Promise<Tombstone[]> =>
  (
    await store.all<{ id: string; deleted_at: number }>(sql`SELECT id, deleted_at FROM deleted_environments
      WHERE purged_at IS NULL ORDER BY deleted_at LIMIT ${limit}`)
  ).map((row) => ({ id: row.id, deletedAt: row.deleted_at }));

/** The first deleted of the org's, of those of which rows may be left. */
export const oldestUnpurged = async (
  store: Pick<Store, "one">,
  orgId: string,
): Promise<Tombstone | undefined> => {
  const row = await store.one<{ id: string; deleted_at: number }>(sql`SELECT id, deleted_at
    FROM deleted_environments WHERE org_id = ${orgId} AND purged_at IS NULL ORDER BY deleted_at LIMIT 1`);
  return row && { id: row.id, deletedAt: row.deleted_at };
};

/** At most `limit`; of one org, or of all. */
export const countUnpurged = async (
  store: Pick<Store, "one">,
  limit: number,
  orgId?: string,
): Promise<number> => {
  const ofOrg = orgId === undefined ? sql`` : sql`AND org_id = ${orgId}`;
  return countOf(store, sql`FROM deleted_environments WHERE purged_at IS NULL ${ofOrg}`, limit);
};

export const markPurged = (session: Session, id: string, at: Instant): Promise<number> =>
  session.run(sql`UPDATE deleted_environments SET purged_at = ${at} WHERE id = ${id}`);
