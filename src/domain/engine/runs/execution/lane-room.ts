import type { Instant } from "../../../../kit/clock.ts";
import { type Sql, sql } from "../../../../kit/sql.ts";
import type { SyncSession } from "../../../../store/store.ts";

/**
 * Who may lease in a lane, for a statement with `asked` (lane_id, environment_id, function_id; sorted by lane): `open` has
 * the lanes whose leases in the statement's snapshot are all there are, until it commits.
 *
 * A lane's row is locked, and every lease given there raises its `claims`. Were any given since the snapshot, the locked
 * row shows another number than the snapshot. Leases given up since only make a count too high. Rows are never waited for,
 * but for one that another statement is just inserting.
 */
export const holdLanes = (now: Instant): Sql => sql`seen AS MATERIALIZED (
      SELECT id AS lane_id, claims FROM lanes WHERE id = ANY (ARRAY(SELECT lane_id FROM asked))),
    held AS MATERIALIZED (
      SELECT a.lane_id, x.claims FROM asked a CROSS JOIN LATERAL (
        SELECT l.claims FROM lanes l WHERE l.id = a.lane_id FOR UPDATE SKIP LOCKED) x),
    opened AS (
      INSERT INTO lanes (id, environment_id, function_id, claims, created_at, last_used_at)
      SELECT a.lane_id, a.environment_id, a.function_id, 1, ${now}::bigint, ${now}::bigint FROM asked a
      WHERE a.lane_id NOT IN (SELECT lane_id FROM seen) AND (SELECT count(*) FROM held) >= 0
      ORDER BY a.lane_id ON CONFLICT (id) DO NOTHING RETURNING id),
    open AS MATERIALIZED (
      SELECT h.lane_id FROM held h JOIN seen s ON s.lane_id = h.lane_id AND s.claims = h.claims
      UNION ALL SELECT id FROM opened)`;

/** Leases of a lane, in the statement's snapshot. */
export const leasedIn = (lane: Sql): Sql =>
  sql`(SELECT count(*) FROM executions x WHERE x.lane_id = ${lane} AND x.state = 'leased')`;

/** Tells every other claim that leases were given in these lanes. */
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
