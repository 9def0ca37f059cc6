import type { Instant } from "../../../../kit/clock.ts";
import { pacedOfPin } from "../../../../kit/limits.ts";
import { type Ctes, type Sql, sql } from "../../../../kit/sql.ts";
import type { Session, Store, SyncSession } from "../../../../store/store.ts";
import { lanePrefix } from "../../functions/rules.ts";

/**
 * Makes a limit exact on any number of nodes. For a statement with `asked` (lane_id, environment_id,
 * function_id; sorted by lane), `open` holds the lanes whose leases the statement's snapshot counts right,
 * until it commits.
 *
 * Each lease of a lane raises `claims` in the lane's row. The row is locked here: a lease since the snapshot
 * shows as another number than the snapshot's, and the lane is left out. Leases that ended since then only
 * make the count too high. Locks are never waited for, but for a row that another statement is inserting.
 */
export const holdLanes = (now: Instant): Ctes => ({
  "seen AS MATERIALIZED": sql`SELECT id AS lane_id, claims FROM lanes WHERE id = ANY (ARRAY(SELECT lane_id FROM asked))`,
  "held AS MATERIALIZED": sql`SELECT a.lane_id, x.claims FROM asked a CROSS JOIN LATERAL (
        SELECT l.claims FROM lanes l WHERE l.id = a.lane_id FOR UPDATE SKIP LOCKED) x`,
  "opened AS": sql`INSERT INTO lanes (id, environment_id, function_id, claims, created_at, last_used_at)
      SELECT a.lane_id, a.environment_id, a.function_id, 1, ${now}::bigint, ${now}::bigint FROM asked a
      WHERE a.lane_id NOT IN (SELECT lane_id FROM seen) AND (SELECT count(*) FROM held) >= 0
      ORDER BY a.lane_id ON CONFLICT (id) DO NOTHING RETURNING id`,
  "open AS MATERIALIZED": sql`SELECT h.lane_id FROM held h JOIN seen s ON s.lane_id = h.lane_id AND s.claims = h.claims
      UNION ALL SELECT id FROM opened`,
});

/** Leases of a lane, in the statement's snapshot. */
export const leasedIn = (lane: Sql): Sql =>
  sql`(SELECT count(*) FROM executions x WHERE x.lane_id = ${lane} AND x.state = 'leased')`;

/** Makes concurrent claims of these lanes see that leases were given. */
export const noteLeases = (laneIds: Sql, now: Instant): Sql => sql`UPDATE lanes l
      SET claims = l.claims + 1, last_used_at = ${now}::bigint WHERE l.id = ANY (ARRAY(${laneIds}))`;

/** The same for libSQL, whose one writer makes every count exact. */
export const countLeased = (session: SyncSession, laneId: string): number =>
  session.one<{ count: number }>(sql`SELECT ${leasedIn(sql`${laneId}`)} AS count`)!.count;

export function noteLeasesSync(
  session: SyncSession,
  lane: { environmentId: string; functionId: string; laneId: string },
  now: Instant,
): void {
  session.run(sql`INSERT INTO lanes (id, environment_id, function_id, claims, created_at, last_used_at)
    VALUES (${lane.laneId}, ${lane.environmentId}, ${lane.functionId}, 1, ${now}, ${now})
    ON CONFLICT (id) DO UPDATE SET claims = lanes.claims + 1, last_used_at = excluded.last_used_at`);
}

export interface LaneLook {
  /** Undefined: the function has no limit any more, or is gone; its runs are claimed without lanes. */
  limit: number | undefined;
  paced?: boolean;
  /** Its runs stay with a deployment. */
  pins?: boolean;
  /** Lanes with queued runs, by id, from behind `after`; none while the function is paused. */
  lanes: { id: string; leased: number }[];
}

/**
 * At most `most` concurrency queues of a function that hold queued runs, with their leases: one index probe
 * for each.
 */
export async function lookAtLanes(
  store: Store,
  target: { environmentId: string; functionId: string },
  { after, most }: { after: string; most: number },
): Promise<LaneLook> {
  const { environmentId, functionId } = target;
  const row = await store.one<{
    lane_limit: number | null;
    paced: number | null;
    status: string;
  }>(sql`SELECT lane_limit, paced, status FROM functions
    WHERE environment_id = ${environmentId} AND id = ${functionId}`);
  if (!row || row.lane_limit === null) return { limit: undefined, lanes: [] };
  const pins = row.paced === pacedOfPin;
  const rules = { limit: row.lane_limit, ...(row.paced !== null && { paced: true }), ...(pins && { pins }) };
  if (row.status === "paused") return { ...rules, lanes: [] };
  const prefix = lanePrefix(environmentId, functionId);
  // No hex digit and no kind of lane comes behind `z`.
  const next = (behind: Sql) => sql`(SELECT e.lane_id FROM executions e
      WHERE e.state = 'queued' AND e.lane_id > ${behind} AND e.lane_id < ${`${prefix}z`} ORDER BY e.lane_id LIMIT 1)`;
  const lanes = await store.all<{ id: string; leased: number }>(sql`WITH RECURSIVE lane (id, place) AS (
      SELECT ${next(sql`${after === "" ? prefix : after}`)}, 1
      UNION ALL SELECT ${next(sql.raw("lane.id"))}, lane.place + 1 FROM lane WHERE lane.id IS NOT NULL AND lane.place < ${most})
    SELECT lane.id, (SELECT count(*) FROM executions x WHERE x.lane_id = lane.id AND x.state = 'leased') AS leased
    FROM lane WHERE lane.id IS NOT NULL`);
  return { ...rules, lanes };
}

/**
 * Puts at most `most` runs that were created before the function had a limit into its shared queue; answers
 * how many.
 */
export async function adoptRuns(
  session: Session,
  target: { environmentId: string; functionId: string; laneId: string; most: number },
): Promise<number> {
  return session.run(sql`UPDATE executions SET lane_id = ${target.laneId} WHERE run_id IN (
    SELECT run_id FROM executions WHERE environment_id = ${target.environmentId} AND function_id = ${target.functionId}
      AND lane_id IS NULL ORDER BY run_id LIMIT ${target.most} ${session.seams.holdRow})`);
}

/**
 * Functions with a limit: nodes of a version without limits may queue runs of them outside any concurrency
 * queue.
 */
export const limitedFunctions = (store: Store): Promise<{ environment_id: string; id: string }[]> =>
  store.all(sql`SELECT environment_id, id FROM functions WHERE lane_limit IS NOT NULL`);

/**
 * Deletes at most `most` queues that were not used since `before`, hold no lease and owe their throttle no
 * pause; answers how many.
 */
export async function forgetLanes(session: Session, before: Instant, most: number): Promise<number> {
  const idle = await session.all<{ id: string }>(sql`SELECT id FROM lanes l WHERE last_used_at < ${before}
      AND (paced_until_us IS NULL OR paced_until_us < ${sql.bigint(before * 1000)})
      AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.lane_id = l.id AND e.state = 'leased')
    ORDER BY id LIMIT ${most} ${session.seams.skipLocked}`);
  if (idle.length === 0) return 0;
  return session.run(sql`DELETE FROM lanes WHERE id IN ${sql.list(idle.map((row) => row.id))}`);
}
