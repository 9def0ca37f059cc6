import type { Instant } from "../../../../kit/clock.ts";
import { pacedOfPin } from "../../../../kit/limits.ts";
import { type Sql, sql } from "../../../../kit/sql.ts";
import type { Session, Store } from "../../../../store/store.ts";
import { lanePrefix } from "../../functions/rules.ts";

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
