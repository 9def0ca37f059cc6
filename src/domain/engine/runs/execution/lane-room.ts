import type { Instant } from "../../../../kit/clock.ts";
import { type Ctes, type Sql, sql } from "../../../../kit/sql.ts";
import type { SyncSession } from "../../../../store/store.ts";

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
