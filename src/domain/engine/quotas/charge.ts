import type { Instant } from "../../../kit/clock.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import { raiseMark, type Seams, StoreError, type SyncSession } from "../../../store/store.ts";
import { charged, type Demand, type Ledger, minuteOf, overrun, quotaSpent } from "./rules.ts";

export const ledgerColumns =
  sql.raw(`environment_id, runs_per_minute, stored_bytes, concurrent_runs, minute, minute_runs,
    active_runs, bytes, counts_all`);

/**
 * Takes what a flush needs out of the ledgers of its environments, all of it or nothing of the flush.
 * `demand` has rows (environment_id, runs, bytes, accepted), computed after the heads. The ledger's row is
 * locked and read again, so that the sums are exact on any number of nodes.
 */
export const chargeQuotas = (now: Instant): Sql => {
  const minute = sql`${sql.bigint(minuteOf(now))}`;
  const runs = sql`(CASE WHEN q.minute >= ${minute} THEN q.minute_runs ELSE 0 END + d.runs)`;
  return sql`UPDATE quotas q SET minute = GREATEST(q.minute, ${minute}), minute_runs = ${runs},
        active_runs = q.active_runs + d.runs, bytes = CASE
          WHEN (d.runs > 0 AND (${runs} > q.runs_per_minute OR q.active_runs + d.runs > q.concurrent_runs))
            OR (d.bytes > 0 AND q.bytes + d.bytes > q.stored_bytes)
          THEN ${raiseMark(quotaSpent, sql.raw("q.environment_id"))} ELSE q.bytes + d.bytes + d.accepted END
      FROM demand d
      WHERE q.environment_id || '' = d.environment_id AND q.environment_id = ANY (ARRAY(SELECT environment_id FROM demand))`;
};

/**
 * Notes bytes other than events' that came or went, in the transaction of the change; `grown` is a sum over
 * what stands for environment `q.environment_id`. Nothing is refused here: writers call `requireRoom` first.
 * A ledger that counts only events is locked but unchanged, so that a count behind its lock misses nothing.
 */
export const noteBytes = ({ among, holdRow }: Seams, environmentIds: readonly string[], grown: Sql): Sql => {
  const [only] = environmentIds;
  const own = sql`environment_id ${among(column.text(environmentIds))}`;
  const held = sql`IN (SELECT environment_id FROM quotas WHERE ${own} ORDER BY environment_id ${holdRow})`;
  return sql`UPDATE quotas AS q SET bytes = q.bytes + CASE WHEN q.counts_all = 1 THEN COALESCE((${grown}), 0) ELSE 0 END
    WHERE q.environment_id ${environmentIds.length === 1 ? sql`= ${only}` : held}`;
};

/** The same where the sums are known. */
export const noteGrown = (seams: Seams, grown: ReadonlyMap<string, number>): Sql => {
  const ids = [...grown.keys()];
  if (ids.length === 1) return noteBytes(seams, ids, sql`${sql.bigint(grown.get(ids[0]!)!)}`);
  const rows = seams.rowsFrom("g", {
    environment_id: column.text(ids),
    bytes: column.bigint([...grown.values()]),
  });
  return noteBytes(seams, ids, sql`SELECT g.bytes FROM ${rows} WHERE g.environment_id = q.environment_id`);
};

/** The same for libSQL. */
export function chargeQuotasSync(
  session: SyncSession,
  demands: ReadonlyMap<string, Demand>,
  now: Instant,
): void {
  for (const [environmentId, demand] of demands) {
    const ledger = session.one<Ledger>(
      sql`SELECT ${ledgerColumns} FROM quotas WHERE environment_id = ${environmentId}`,
    );
    if (!ledger) continue;
    if (overrun(ledger, demand, now)) throw new StoreError("marked", quotaSpent + environmentId);
    const after = charged(ledger, demand, now);
    session.run(sql`UPDATE quotas SET minute = ${after.minute}, minute_runs = ${after.minute_runs},
      active_runs = ${after.active_runs}, bytes = ${after.bytes} WHERE environment_id = ${environmentId}`);
  }
}
