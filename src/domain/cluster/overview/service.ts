import type { Instant } from "../../../kit/clock.ts";
import { countCap, workerSilenceMsMax } from "../../../kit/limits.ts";
import { version } from "../../../kit/version.ts";
import type { Basics } from "../../../store/store.ts";
import type { Quotas, QuotaUse } from "../../engine/quotas/service.ts";
import { statusOf } from "../../engine/runs/rules.ts";
import type { ExecutionState } from "../../engine/runs/run.ts";
import type { Rates } from "../../record/flow/service.ts";
import type { ClusterHealth } from "../nodes/health.ts";
import * as rows from "./rows.ts";

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
      rows.countStates(store, environmentId),
      rows.oldestQueued(store, environmentId),
      rows.countFunctions(store, environmentId),
      rows.countWorkers(store, environmentId, now - workerSilenceMsMax),
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
