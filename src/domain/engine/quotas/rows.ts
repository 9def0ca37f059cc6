import { countOf } from "../../../kit/count-of.ts";
import { runFailedEvent } from "../../../kit/event-names.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import { ledgerColumns } from "./charge.ts";
import type { Ledger, QuotaLimits, QuotaName } from "./rules.ts";

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
