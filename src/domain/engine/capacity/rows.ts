import { type Sql, sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export interface CapacityFilter {
  environmentId: string | undefined;
  functionId: string | undefined;
  limit: number;
}

type CapacityScope = Pick<CapacityFilter, "environmentId" | "functionId">;

function conditions({ environmentId, functionId }: CapacityScope, table: string): Sql[] {
  const list: Sql[] = [];
  if (environmentId !== undefined) list.push(sql`${sql.raw(table)}.environment_id = ${environmentId}`);
  if (functionId !== undefined) list.push(sql`${sql.raw(table)}.function_id = ${functionId}`);
  return list;
}

export interface LaneRow extends RowOf<"lanes", "id, environment_id, function_id, created_at, last_used_at"> {
  lane_limit: number | null;
  version: number | null;
  leased: number;
}

export const listLanes = (store: Store, filter: CapacityFilter): Promise<LaneRow[]> =>
  store.all(sql`SELECT l.id, l.environment_id, l.function_id, f.lane_limit, f.version, l.created_at, l.last_used_at,
      (SELECT count(*) FROM executions e WHERE e.lane_id = l.id AND e.state = 'leased') AS leased
    FROM lanes l LEFT JOIN functions f ON f.environment_id = l.environment_id AND f.id = l.function_id
    ${sql.where(conditions(filter, "l"))}
    ORDER BY l.environment_id, l.function_id, l.id LIMIT ${filter.limit}`);

export interface LeaseRow
  extends RowOf<"executions", "run_id, execution_seq, environment_id, worker_id, lane_id, wake_at"> {
  lease_hash: string;
  claimed_at: number;
}

/** Those that end soonest first. */
export const listLeases = (store: Store, filter: CapacityFilter): Promise<LeaseRow[]> =>
  store.all(sql`SELECT run_id, execution_seq, environment_id, lease_hash, worker_id, lane_id, claimed_at, wake_at
    FROM executions e ${sql.where([sql`state = 'leased' AND lease_hash IS NOT NULL`, ...conditions(filter, "e")])}
    ORDER BY wake_at, run_id LIMIT ${filter.limit}`);

export interface QueueRow
  extends RowOf<
    "executions",
    "run_id, execution_seq, environment_id, function_id, function_version, lane_id, wake_at, timeout_at"
  > {
  mode: string;
  created_at: number;
  lane_limit: number | null;
  function_status: string | null;
  leased: number | null;
}

/** By queue, and in each the oldest first. */
export const listQueue = (store: Store, filter: CapacityFilter): Promise<QueueRow[]> =>
  store.all(sql`SELECT q.*, r.mode, r.created_at, f.lane_limit, f.status AS function_status,
      CASE WHEN q.lane_id IS NOT NULL THEN (
        SELECT count(*) FROM executions x WHERE x.lane_id = q.lane_id AND x.state = 'leased') END AS leased
    FROM (SELECT run_id, execution_seq, environment_id, function_id, function_version, lane_id, wake_at, timeout_at
        FROM executions e ${sql.where([sql`state = 'queued'`, ...conditions(filter, "e")])}
        ORDER BY environment_id, function_id, state, wake_at, run_id LIMIT ${filter.limit}) q
      JOIN runs r ON r.id = q.run_id
      LEFT JOIN functions f ON f.environment_id = q.environment_id AND f.id = q.function_id
    ORDER BY q.environment_id, q.function_id, q.wake_at, q.run_id`);

export interface StatRow {
  environment_id: string;
  function_id: string;
  leased: number;
  queued: number;
  oldest_at: number | null;
  lane_limit: number | null;
}

/** Every function that has runs queued or leased, of all tenants. */
export const countAll = (store: Store): Promise<StatRow[]> =>
  store.all(sql`SELECT n.*, f.lane_limit FROM (
      SELECT environment_id, function_id, count(CASE WHEN state = 'leased' THEN 1 END) AS leased,
        count(CASE WHEN state = 'queued' THEN 1 END) AS queued, min(CASE WHEN state = 'queued' THEN wake_at END) AS oldest_at
      FROM executions WHERE state IN ('leased', 'queued') GROUP BY environment_id, function_id) n
    LEFT JOIN functions f ON f.environment_id = n.environment_id AND f.id = n.function_id
    ORDER BY n.environment_id, n.function_id`);

/** Labels and transport of workers, as they registered. */
export const workersOf = (
  store: Store,
  environmentIds: readonly string[],
): Promise<
  { environment_id: string; id: string; labels: string; transport: string; last_heartbeat_at: number }[]
> =>
  store.all(sql`SELECT environment_id, id, labels, transport, last_heartbeat_at FROM workers
    WHERE environment_id IN ${sql.list(environmentIds)}`);
