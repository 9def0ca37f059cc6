import type { Instant } from "../../../kit/clock.ts";
import type { Cursor } from "../../../kit/page.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import { type RowOf, tables } from "../../../store/tables/index.ts";

export interface EnvironmentRetention {
  id: string;
  retention_days: number | null;
}

export const retentionsAfter = (
  store: Store,
  after: string,
  limit: number,
): Promise<EnvironmentRetention[]> =>
  store.all(sql`SELECT id, retention_days FROM environments WHERE id > ${after} ORDER BY id LIMIT ${limit}`);

export const retentionOf = (store: Store, environmentId: string): Promise<EnvironmentRetention | undefined> =>
  store.one(sql`SELECT id, retention_days FROM environments WHERE id = ${environmentId}`);

export const retentionWithFloor = (
  store: Store,
  environmentId: string,
): Promise<(EnvironmentRetention & { retention_floor: number }) | undefined> =>
  store.one(sql`SELECT e.id, e.retention_days, h.retention_floor FROM environments e
    JOIN heads h ON h.environment_id = e.id WHERE e.id = ${environmentId}`);

export const setDays = (
  session: Session,
  environmentId: string,
  days: number | null,
  now: Instant,
): Promise<number> =>
  session.run(sql`UPDATE environments SET retention_days = CAST(${days} AS BIGINT), updated_at = ${now}
    WHERE id = ${environmentId}`);

/**
 * The lowest position at or after the instant `at`; the position after the end when there is none. `+ 0`
 * keeps the planner from reading the log by position for one time.
 */
export async function positionAt(store: Store, environmentId: string, at: Instant): Promise<number> {
  const first = await store.one<{ at: number }>(sql`SELECT at FROM events
    WHERE environment_id = ${environmentId} AND at >= ${at} ORDER BY at, id LIMIT 1`);
  const row = first
    ? await store.one<{ position: number }>(sql`SELECT min(position + 0) AS position FROM events
        WHERE environment_id = ${environmentId} AND at = ${first.at}`)
    : await store.one<{ position: number }>(sql`SELECT position + 1 AS position FROM heads
        WHERE environment_id = ${environmentId}`);
  return row?.position ?? 0;
}

/** The first events below `below`: the last one of a slice, and the first that an active run needs. */
export async function expirable(
  store: Store,
  environmentId: string,
  { below, limit }: { below: number; limit: number },
): Promise<{ last: number | null; needed: number | null; count: number }> {
  const slice = sql`SELECT position, id FROM events WHERE environment_id = ${environmentId} AND position < ${below}
      AND entity_id IS NULL ORDER BY position LIMIT ${limit}`;
  const row = await store.one<{ last: number | null; needed: number | null; count: number }>(sql`SELECT
      max(v.position) AS last, count(*) AS count,
      min(CASE WHEN EXISTS (SELECT 1 FROM runs r JOIN executions e ON e.run_id = r.id WHERE r.event_id = v.id)
        THEN v.position END) AS needed
    FROM (${slice}) v`);
  return row ?? { last: null, needed: null, count: 0 };
}

/**
 * Runs in its own transaction before the deletes: a reader from below the floor is refused, and never sees a
 * gap.
 */
export const raiseFloor = (session: Session, environmentId: string, floor: number): Promise<number> =>
  session.run(sql`UPDATE heads SET retention_floor = ${sql.bigint(floor)}
    WHERE environment_id = ${environmentId} AND retention_floor < ${sql.bigint(floor)}`);

/** `forget` is called first, with the events that go. */
export async function deleteEvents(
  session: Session,
  environmentId: string,
  { last, limit }: { last: number; limit: number },
  forget: (which: Sql) => Promise<void>,
): Promise<number> {
  const which = sql`environment_id = ${environmentId} AND position IN (
    SELECT position FROM events WHERE environment_id = ${environmentId} AND position <= ${last}
      AND entity_id IS NULL ORDER BY position LIMIT ${limit})`;
  await forget(which);
  return session.run(sql`DELETE FROM events WHERE ${which}`);
}

export type OldRun = RowOf<"runs", "id, function_id, function_version, status, created_at, ended_at">;

/** Oldest first by (created, id). */
export function oldRuns(
  store: Store,
  environmentId: string,
  { after, before, limit }: { after: Cursor | undefined; before: Instant; limit: number },
): Promise<OldRun[]> {
  const where = [sql`environment_id = ${environmentId}`, sql`created_at < ${before}`];
  if (after)
    where.push(
      sql`(created_at > ${after.at} OR (created_at = ${after.at} AND id > ${after.id}))`,
      sql`created_at >= ${after.at}`,
    );
  return store.all(sql`SELECT id, function_id, function_version, status, created_at, ended_at FROM runs
    ${sql.where(where)} ORDER BY created_at, id LIMIT ${limit}`);
}

/** Tables whose rows go with their run, and the column with its id, in the order of their places. */
export const tablesOfRuns: readonly { table: string; ofRun: string }[] = Object.entries(tables)
  .flatMap(([table, { purge }]) => (purge?.ofRun ? [{ table, at: purge.at, ofRun: purge.ofRun }] : []))
  .sort((one, other) => one.at - other.at)
  .concat({ table: "batch_events", at: 0, ofRun: "run_id" });

/**
 * Runs that are over, with all that is theirs. Locks: their rows first, so that a resume either comes before,
 * and the run stays whole, or finds it gone.
 */
export async function deleteRuns(session: Session, runIds: readonly string[]): Promise<number> {
  const { among, holdRow } = session.seams;
  const over = await session.all<{ id: string }>(sql`SELECT id FROM runs
    WHERE id ${among(column.text(runIds))} AND status <> 'active' ORDER BY id ${holdRow}`);
  if (over.length === 0) return 0;
  const gone = among(column.text(over.map(({ id }) => id)));
  const counts = await session.runAll([
    ...tablesOfRuns.map(
      ({ table, ofRun }) => sql`DELETE FROM ${sql.raw(table)} WHERE ${sql.raw(ofRun)} ${gone}`,
    ),
    sql`DELETE FROM runs WHERE id ${gone}`,
  ]);
  return counts.at(-1)!;
}

/**
 * Groups without a run, seen before that. A failure that is counted meanwhile raises `last_seen_at`, which
 * this looks at again once it has the row.
 */
export const deleteErrorGroups = (
  session: Session,
  { environmentId, before, limit }: { environmentId: string; before: Instant; limit: number },
): Promise<number> =>
  session.run(sql`DELETE FROM error_groups WHERE environment_id = ${environmentId} AND last_seen_at < ${sql.bigint(before)}
    AND id IN (SELECT g.id FROM error_groups g WHERE g.environment_id = ${environmentId}
      AND g.last_seen_at < ${sql.bigint(before)} AND (SELECT 1 FROM runs r WHERE r.environment_id = ${environmentId}
        AND r.error_group = g.id LIMIT 1) IS NULL
      ORDER BY g.last_seen_at, g.id LIMIT ${limit})`);

/** So that plans do not go by rows that are gone. */
export async function analyze(session: Session, tables: readonly string[]): Promise<void> {
  for (const table of tables) await session.run(sql.raw(`ANALYZE ${table}`));
}
