import type { Instant } from "../../../kit/clock.ts";
import { countCap } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { StoreReader } from "../../../store/store.ts";

/** Executions of an environment by state, counted up to one more than the cap, along an index. */
export const countStates = (
  reader: StoreReader,
  environmentId: string,
): Promise<{ state: string; count: number }[]> =>
  reader.all(sql`SELECT state, count(*) AS count FROM (
      SELECT state FROM executions WHERE environment_id = ${environmentId}
      ORDER BY function_id, state, wake_at, run_id LIMIT ${countCap + 1}) counted
    GROUP BY state`);

/** Since when the run waits that waits longest for a worker: a look at the head of each function's queue. */
export const oldestQueued = (
  reader: StoreReader,
  environmentId: string,
): Promise<{ at: Instant | null } | undefined> =>
  reader.one(sql`SELECT min(wake_at) AS at FROM (
    SELECT (SELECT e.wake_at FROM executions e
      WHERE e.environment_id = f.environment_id AND e.function_id = f.id AND e.state = 'queued'
      ORDER BY e.wake_at LIMIT 1) AS wake_at
    FROM functions f WHERE f.environment_id = ${environmentId}) heads`);

export const countFunctions = (
  reader: StoreReader,
  environmentId: string,
): Promise<{ status: string; count: number }[]> =>
  reader.all(
    sql`SELECT status, count(*) AS count FROM functions WHERE environment_id = ${environmentId} GROUP BY status`,
  );

export const countWorkers = (
  reader: StoreReader,
  environmentId: string,
  since: Instant,
): Promise<{ count: number } | undefined> =>
  reader.one(sql`SELECT count(*) AS count FROM (SELECT 1 FROM workers
    WHERE environment_id = ${environmentId} AND last_heartbeat_at > ${since} LIMIT ${countCap}) counted`);
