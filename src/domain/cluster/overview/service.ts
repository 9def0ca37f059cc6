import type { Instant } from "../../../kit/clock.ts";
import { countCap, workerSilenceMsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import { version } from "../../../kit/version.ts";
import type { Basics, StoreReader } from "../../../store/store.ts";
import type { Quotas, QuotaUse } from "../../engine/quotas/service.ts";
import { statusOf } from "../../engine/runs/rules.ts";
import type { ExecutionState } from "../../engine/runs/run.ts";
import type { Rates } from "../../record/flow/service.ts";
import type { ClusterHealth } from "../nodes/health.ts";

/** Executions of an environment by state, counted up to one more than the cap, along an index. */
const countStates = (
  reader: StoreReader,
  environmentId: string,
): Promise<{ state: string; count: number }[]> =>
  reader.all(sql`SELECT state, count(*) AS count FROM (
      SELECT state FROM executions WHERE environment_id = ${environmentId}
      ORDER BY function_id, state, wake_at, run_id LIMIT ${countCap + 1}) counted
    GROUP BY state`);

/** Since when the run waits that waits longest for a worker: a look at the head of each function's queue. */
const oldestQueued = (
  reader: StoreReader,
  environmentId: string,
): Promise<{ at: Instant | null } | undefined> =>
  reader.one(sql`SELECT min(wake_at) AS at FROM (
    SELECT (SELECT e.wake_at FROM executions e
      WHERE e.environment_id = f.environment_id AND e.function_id = f.id AND e.state = 'queued'
      ORDER BY e.wake_at LIMIT 1) AS wake_at
    FROM functions f WHERE f.environment_id = ${environmentId}) heads`);

const countFunctions = (
  reader: StoreReader,
  environmentId: string,
): Promise<{ status: string; count: number }[]> =>
  reader.all(
    sql`SELECT status, count(*) AS count FROM functions WHERE environment_id = ${environmentId} GROUP BY status`,
  );

const countWorkers = (
  reader: StoreReader,
  environmentId: string,
  since: Instant,
): Promise<{ count: number } | undefined> =>
  reader.one(sql`SELECT count(*) AS count FROM (SELECT 1 FROM workers
    WHERE environment_id = ${environmentId} AND last_heartbeat_at > ${since} LIMIT ${countCap}) counted`);

export interface OverviewDeps extends Basics<"store" | "clock"> {
  startedAt: Instant;
  ratesOf: (environmentId: string) => Promise<Rates>;
  quotasOf: Quotas["usesOf"];
  lastLook: (environmentId: string) => { at: Instant; balanced: boolean } | undefined;
  health: (detailed: boolean) => Promise<ClusterHealth>;
}

export interface Overview {
  version: string;
  uptimeMs: number;
  at: Instant;
  /** Runs that are not over, by status: exact while there are no more of them than the cap. */
  active: { count: number; isCut: boolean; byStatus: Map<string, number> };
  /** How long the run that waits longest for a worker has waited. */
  oldestWaitingMs: number | undefined;
  functions: Map<string, number>;
  workers: number;
  quotas: readonly QuotaUse[];
  rates: Rates;
  /** What this node last found of the invariants. */
  integrity: { at: Instant; balanced: boolean } | undefined;
  cluster: ClusterHealth;
}

export type ReadOverview = (environmentId: string, detailed: boolean) => Promise<Overview>;

export function openOverview(deps: OverviewDeps): ReadOverview {
  const { store, clock, startedAt } = deps;
  return async (environmentId, detailed) => {
    const now = clock.now();
    const [states, oldest, functions, workers, quotas, rates, cluster] = await Promise.all([
      countStates(store, environmentId),
      oldestQueued(store, environmentId),
      countFunctions(store, environmentId),
      countWorkers(store, environmentId, now - workerSilenceMsMax),
      deps.quotasOf(environmentId),
      deps.ratesOf(environmentId),
      deps.health(detailed),
    ]);
    const byStatus = new Map<string, number>();
    for (const { state, count } of states) {
      const { status } = statusOf("active", state as ExecutionState);
      byStatus.set(status, (byStatus.get(status) ?? 0) + count);
    }
    const active = states.reduce((sum, { count }) => sum + count, 0);
    return {
      ...{ version, at: now, uptimeMs: now - startedAt },
      active: { count: Math.min(active, countCap), isCut: active > countCap, byStatus },
      oldestWaitingMs: typeof oldest?.at === "number" ? Math.max(0, now - oldest.at) : undefined,
      functions: new Map(functions.map(({ status, count }) => [status, count])),
      workers: workers?.count ?? 0,
      ...{ quotas, rates, cluster },
      integrity: deps.lastLook(environmentId),
    };
  };
}
