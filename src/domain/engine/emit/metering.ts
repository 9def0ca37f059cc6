import type { Clock, Instant } from "../../../kit/clock.ts";
import { runFailedEvent } from "../../../kit/event-names.ts";
import type { Fault } from "../../../kit/fault.ts";
import { type Ctes, column, sql } from "../../../kit/sql.ts";
import type { Watch } from "../../../kit/watch.ts";
import type { Seams, StoreError, SyncSession } from "../../../store/store.ts";
import { chargeQuotas, chargeQuotasSync } from "../quotas/rows.ts";
import { charged, type Demand, overrun, quotaFault, quotaSpent } from "../quotas/rules.ts";
import type { Quotas } from "../quotas/service.ts";

/** What a flush takes out of the quotas of its environments. */

interface MeteredEvent {
  environmentId: string;
  name: string;
  data: string;
  metadata: string | null;
  isAccepted?: true | undefined;
  runs: readonly unknown[];
}

/** An event that the server emits by itself costs its tenant no bytes. */
const bytesOf = ({ name, data, metadata }: MeteredEvent): number =>
  name === runFailedEvent
    ? 0
    : Buffer.byteLength(data) + (metadata === null ? 0 : Buffer.byteLength(metadata));

const demandOf = (events: readonly MeteredEvent[], runs: number): Demand => {
  const sum = (some: readonly MeteredEvent[]) => some.reduce((all, event) => all + bytesOf(event), 0);
  const accepted = sum(events.filter(({ isAccepted }) => isAccepted));
  return { runs, bytes: sum(events) - accepted, accepted };
};

export const meteredColumns = (events: readonly MeteredEvent[]) => ({
  bytes: column.bigint(events.map((event) => (event.isAccepted ? 0 : bytesOf(event)))),
  accepted: column.bigint(events.map((event) => (event.isAccepted ? bytesOf(event) : 0))),
});

/** As further expressions of the flush, after the gates of its runs. */
export const chargedFor = (
  { among }: Pick<Seams, "among">,
  environmentIds: readonly string[],
  { hasRuns, now }: { hasRuns: boolean; now: Instant },
): Ctes => {
  const runs = hasRuns
    ? "(SELECT count(*) FROM run n WHERE n.environment_id = a.environment_id)"
    : "CAST(0 AS BIGINT)";
  return {
    "demand AS MATERIALIZED": sql`SELECT a.environment_id, CAST(sum(a.bytes) AS BIGINT) AS bytes, CAST(sum(a.accepted) AS BIGINT) AS accepted,
        ${sql.raw(runs)} AS runs
      FROM alive a JOIN moved m ON m.environment_id = a.environment_id
      WHERE a.environment_id ${among(column.text(environmentIds))} GROUP BY a.environment_id ORDER BY a.environment_id`,
    "charged AS": chargeQuotas(now),
  };
};

/** The same for libSQL: `events` were written, `runs` passed their gates. */
export function chargeSync(
  session: SyncSession,
  environmentIds: readonly string[],
  written: { events: readonly MeteredEvent[]; runs: readonly { environmentId: string }[] },
  now: Instant,
): void {
  const demands = new Map<string, Demand>();
  for (const environmentId of environmentIds) {
    const own = written.events.filter((event) => event.environmentId === environmentId);
    const runs = written.runs.filter((run) => run.environmentId === environmentId).length;
    if (own.length > 0) demands.set(environmentId, demandOf(own, runs));
  }
  chargeQuotasSync(session, demands, now);
}

/**
 * Refuses units, in their order, that the quotas of the environment that a mark names have no room for:
 * `going` are those of the flush that raised it.
 */
export function openQuotaRefusals({ quotas, clock, watch }: QuotaRefusalsDeps) {
  const refused = watch.metrics.counter({
    name: "svc_quota_refusals_total",
    help: "Emits and invokes refused because a quota of their environment was used up.",
  })();
  return async <Unit>(
    { detail }: StoreError,
    going: Iterable<readonly [Unit, readonly MeteredEvent[]]>,
    over: Map<Unit, Fault>,
  ): Promise<void> => {
    const environmentId = detail.slice(quotaSpent.length);
    let left = await quotas.recounted(environmentId);
    if (!left) return;
    const now = clock.now();
    for (const [unit, events] of going) {
      if (events[0]?.environmentId !== environmentId) continue;
      const demand = demandOf(
        events,
        events.reduce((sum, { runs }) => sum + runs.length, 0),
      );
      const name = overrun(left, demand, now);
      if (!name) left = charged(left, demand, now);
      else {
        over.set(unit, quotaFault(name, left, now));
        refused.add(1);
      }
    }
  };
}

export interface QuotaRefusalsDeps {
  quotas: Pick<Quotas, "recounted">;
  clock: Pick<Clock, "now">;
  watch: Pick<Watch, "metrics">;
}
