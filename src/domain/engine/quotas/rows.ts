import type { Instant } from "../../../kit/clock.ts";
import { runFailedEvent } from "../../../kit/event-names.ts";
import { column, countOf, type Sql, sql } from "../../../kit/sql.ts";
import {
  raiseMark,
  type Seams,
  type Session,
  type Store,
  StoreError,
  type StoreReader,
  type SyncSession,
} from "../../../store/store.ts";
import {
  charged,
  type Demand,
  type Ledger,
  minuteOf,
  overrun,
  type QuotaLimits,
  type QuotaName,
  quotaSpent,
} from "./rules.ts";

const ledgerColumns =
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

export interface QuotaRow extends Ledger {
  /** JSON texts of `QuotaLimits`. */
  platform: string;
  own: string;
}

export const readQuotas = (reader: StoreReader, environmentId: string): Promise<QuotaRow | undefined> =>
  reader.one(sql`SELECT ${ledgerColumns}, platform, own FROM quotas WHERE environment_id = ${environmentId}`);

export const holdQuotas = (session: Session, environmentId: string): Promise<QuotaRow | undefined> =>
  session.one(sql`SELECT ${ledgerColumns}, platform, own FROM quotas WHERE environment_id = ${environmentId}
    ${session.seams.holdRow}`);

/** Those of the environments that have quotas. */
export const limitedAmong = (
  store: Store,
  environmentIds: readonly string[],
): Promise<{ environment_id: string }[]> =>
  store.all(sql`SELECT environment_id FROM quotas WHERE environment_id ${store.seams.among(column.text(environmentIds))}
    ORDER BY environment_id`);

/** Runs that are not over, counted up to `most`. */
export const countActive = (reader: StoreReader, environmentId: string, most: number): Promise<number> =>
  countOf(reader, sql`FROM executions WHERE environment_id = ${environmentId}`, most);

export async function countBytes(session: Session, environmentId: string): Promise<number> {
  const ofPayloads = sql`SELECT sum(octet_length(data) + COALESCE(octet_length(metadata), 0)) AS bytes`;
  const ofKeys = sql`SELECT sum(bytes) AS bytes`;
  const all = [
    ...["events", "delayed_events", "topic_messages"].map(
      (table) => sql`${ofPayloads} FROM ${sql.raw(table)}`,
    ),
    ...["kv_keys", "kv_history"].map((table) => sql`${ofKeys} FROM ${sql.raw(table)}`),
  ].map(
    (one, at) => sql`${one} WHERE environment_id = ${environmentId}
      ${at === 0 ? sql`AND name <> ${runFailedEvent}` : sql.empty}`,
  );
  const row = await session.one<{ bytes: number | null }>(
    sql`SELECT CAST(sum(bytes) AS BIGINT) AS bytes FROM (${sql.join(all, " UNION ALL ")}) stored`,
  );
  return row?.bytes ?? 0;
}

export const putLedger = (session: Session, ledger: Ledger): Promise<number> =>
  session.run(sql`UPDATE quotas SET minute = ${ledger.minute}, minute_runs = ${ledger.minute_runs},
    active_runs = ${ledger.active_runs} WHERE environment_id = ${ledger.environment_id}`);

/** A ledger without limits, in which nothing is counted yet. */
export const insertLedger = (session: Session, environmentId: string, now: number): Promise<number> =>
  session.run(sql`INSERT INTO quotas (environment_id, platform, own, minute, minute_runs, active_runs, bytes, updated_at,
      counts_all)
    VALUES (${environmentId}, '{}', '{}', 0, 0, 0, 0, ${now}, 0) ON CONFLICT (environment_id) DO NOTHING`);

/** What is written without the head's lock goes by one of these. */
export async function awaitWriters(session: Session, environmentId: string): Promise<void> {
  const { holdRow } = session.seams;
  await session.all(sql`SELECT id FROM environments WHERE id = ${environmentId} ${holdRow}`);
  await session.all(sql`SELECT position FROM topic_heads WHERE environment_id = ${environmentId} ${holdRow}`);
  await session.all(
    sql`SELECT id FROM kv_buckets WHERE environment_id = ${environmentId} ORDER BY id ${holdRow}`,
  );
}

export const putLimits = (
  session: Session,
  environmentId: string,
  limits: { platform: QuotaLimits; own: QuotaLimits; lower: Record<QuotaName, number | null> },
  first: { activeRuns: number; bytes: number; now: number },
): Promise<number> =>
  session.run(sql`INSERT INTO quotas (environment_id, platform, own, runs_per_minute, stored_bytes, concurrent_runs,
      minute, minute_runs, active_runs, bytes, updated_at, counts_all)
    VALUES (${environmentId}, ${JSON.stringify(limits.platform)}, ${JSON.stringify(limits.own)},
      ${limits.lower.runs_per_minute}, ${limits.lower.stored_bytes}, ${limits.lower.concurrent_runs},
      0, 0, ${first.activeRuns}, ${first.bytes}, ${first.now}, 1)
    ON CONFLICT (environment_id) DO UPDATE SET platform = excluded.platform, own = excluded.own,
      runs_per_minute = excluded.runs_per_minute, stored_bytes = excluded.stored_bytes,
      concurrent_runs = excluded.concurrent_runs, active_runs = excluded.active_runs, bytes = excluded.bytes, updated_at = excluded.updated_at,
      counts_all = 1`);

export const deleteQuotas = (session: Session, environmentId: string): Promise<number> =>
  session.run(sql`DELETE FROM quotas WHERE environment_id = ${environmentId}`);

/**
 * The payloads of these events are no longer stored, but for so many bytes of each: call before they go.
 * `which` are conditions on `events`.
 */
export const forgetBytes = (
  session: Session,
  environmentId: string,
  { which, left }: { which: Sql; left: number },
): Promise<number> =>
  session.run(sql`UPDATE quotas
  SET bytes = bytes - COALESCE((
    SELECT CAST(sum(octet_length(data) + COALESCE(octet_length(metadata), 0) - ${sql.bigint(left)}) AS BIGINT)
    FROM events WHERE ${which} AND name <> ${runFailedEvent}), 0)
  WHERE environment_id = ${environmentId}`);

export const addActive = (session: Session, environmentId: string): Promise<number> =>
  session.run(sql`UPDATE quotas SET active_runs = active_runs + 1 WHERE environment_id = ${environmentId}`);

/** Undefined when there is no such environment. */
export const orgOf = (
  reader: StoreReader,
  environmentId: string,
): Promise<{ org_id: string; project_id: string | null } | undefined> =>
  reader.one(sql`SELECT org_id, project_id FROM environments WHERE id = ${environmentId}`);
