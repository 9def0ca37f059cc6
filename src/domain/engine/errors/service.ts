import type { Instant } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import { type Cursor, pageOf, pageSize, readCursor, timeBound, writeCursor } from "../../../kit/page.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import { checkedGroupsMax, checkedRunsMax } from "./limits.ts";

export type ErrorGroupRow = RowOf<
  "error_groups",
  "id, function_id, code, message, frame, count, first_seen_at, last_seen_at, sample_run_id"
>;

const fields = sql.raw(
  "id, function_id, code, message, frame, count, first_seen_at, last_seen_at, sample_run_id",
);

const getGroup = (
  reader: StoreReader,
  environmentId: string,
  id: string,
): Promise<ErrorGroupRow | undefined> =>
  reader.one(sql`SELECT ${fields} FROM error_groups WHERE environment_id = ${environmentId} AND id = ${id}`);

export interface ErrorGroupFilter {
  environmentId: string;
  functionId: string | undefined;
  since: Instant | undefined;
}

/** Seen last first. */
export function listGroups(
  reader: StoreReader,
  { environmentId, functionId, since }: ErrorGroupFilter,
  { after, limit }: { after: Cursor | undefined; limit: number },
): Promise<ErrorGroupRow[]> {
  const where = [sql`environment_id = ${environmentId}`];
  if (functionId !== undefined) where.push(sql`function_id = ${functionId}`);
  if (since !== undefined) where.push(sql`last_seen_at >= ${sql.bigint(since)}`);
  if (after) where.push(sql`(last_seen_at, id) < (${sql.bigint(after.at)}, ${after.id})`);
  return reader.all(sql`SELECT ${fields} FROM error_groups ${sql.where(where)}
    ORDER BY last_seen_at DESC, id DESC LIMIT ${limit}`);
}

/** Groups with fewer failures than runs, among the groups seen last; `runs` are counted for each. */
const miscounted = (
  reader: StoreReader,
  environmentId: string,
  { limit, runs }: { limit: number; runs: number },
): Promise<{ id: string; at: Instant }[]> =>
  reader.all(sql`SELECT g.id, g.last_seen_at AS at, g.function_id AS function, g.count AS counted FROM (
      SELECT id, function_id, count, last_seen_at FROM error_groups WHERE environment_id = ${environmentId}
      ORDER BY last_seen_at DESC, id DESC LIMIT ${limit}) g
    WHERE (SELECT count(*) FROM (SELECT 1 FROM runs r WHERE r.environment_id = ${environmentId}
      AND r.error_group = g.id LIMIT ${runs}) counted) > g.count`);

/** Failed runs whose group is not there, among the newest runs. */
const ungrouped = (
  reader: StoreReader,
  environmentId: string,
  limit: number,
): Promise<{ id: string; at: Instant }[]> =>
  reader.all(sql`SELECT r.id, r.created_at AS at, r.function_id AS function, r.error_group AS "group" FROM (
      SELECT id, function_id, error_group, created_at FROM runs WHERE environment_id = ${environmentId}
      ORDER BY created_at DESC, id DESC LIMIT ${limit}) r
    WHERE r.error_group IS NOT NULL AND (SELECT 1 FROM error_groups g
      WHERE g.environment_id = ${environmentId} AND g.id = r.error_group LIMIT 1) IS NULL`);

export interface ListGroupsInput {
  functionId?: string;
  since?: string;
  limit?: number;
  cursor?: string;
}

/** Groups of failures that look alike; the flush that ends a run counts it. */
export type ErrorGroups = ReturnType<typeof openErrorGroups>;

export const openErrorGroups = (store: Store) => ({
  async list(
    environmentId: string,
    { functionId, since, limit, cursor }: ListGroupsInput,
  ): Promise<{ groups: ErrorGroupRow[]; nextCursor: string | undefined }> {
    const filter = {
      environmentId,
      functionId: functionId || undefined,
      since: timeBound("since", since),
    };
    const size = pageSize(limit);
    const after = cursor ? readCursor("cursor", cursor) : undefined;
    const found = await listGroups(store, filter, { after, limit: size + 1 });
    const { items, nextCursor } = pageOf(found, size, ({ last_seen_at: at, id }) => writeCursor({ at, id }));
    return { groups: items, nextCursor };
  },

  async get(environmentId: string, id: string): Promise<ErrorGroupRow> {
    const group = await getGroup(store, environmentId, id);
    if (!group) throw missing("error group", id);
    return group;
  },
});

/** A run that failed is counted in its group, in the transaction of its end. */
export const errorChecks = (store: Store): IntegrityCheck[] => [
  {
    name: "errors.miscounted",
    about: "Groups of failures that count fewer than they have runs, among those seen last.",
    run: async (environmentId) =>
      violationsOf(await miscounted(store, environmentId, { limit: checkedGroupsMax, runs: checkedRunsMax })),
  },
  {
    name: "errors.ungrouped",
    about: "Failed runs whose group of failures is not there, among the newest runs.",
    run: async (environmentId) => violationsOf(await ungrouped(store, environmentId, integrityRowsMax)),
  },
];
