import type { Instant } from "../../kit/clock.ts";
import { integrityRowsMax, overdueMs, sweepSliceMax } from "../../kit/limits.ts";
import { column, type Sql, sql } from "../../kit/sql.ts";
import type { Session, Store } from "../../store/store.ts";
import type { IntegrityCheck, Offence } from "../integrity/service.ts";

interface Lost {
  id: string;
  at: Instant;
}

const offence = (rows: readonly Lost[]): Offence => {
  const [oldest] = [...rows].sort((a, b) => a.at - b.at);
  return { count: rows.length, oldest: oldest ?? null };
};

/** The balances of runs: every active run has an execution, every execution an active run, and no wake is late. */
export const runChecks = (store: Store, clock: { now(): Instant }): IntegrityCheck[] => [
  {
    name: "runs.without_execution",
    about: "Active runs that nothing would ever move, among the newest runs.",
    run: async (environmentId) =>
      offence(
        await store.all<Lost>(sql`SELECT r.id, r.created_at AS at FROM (
          SELECT id, status, created_at FROM runs WHERE environment_id = ${environmentId}
          ORDER BY created_at DESC, id DESC LIMIT ${integrityRowsMax}) r
        WHERE r.status = 'active' AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.run_id = r.id)`),
      ),
  },
  {
    name: "executions.without_run",
    about: "Executions whose run has ended or is not there.",
    run: async (environmentId) =>
      offence(
        await store.all<Lost>(sql`SELECT e.run_id AS id, COALESCE(e.claimed_at, e.started_at, 0) AS at FROM (
          SELECT run_id, claimed_at, started_at FROM executions WHERE environment_id = ${environmentId}
          LIMIT ${integrityRowsMax}) e
        WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = e.run_id AND r.status = 'active')`),
      ),
  },
  {
    name: "timers.overdue",
    about: "Leases, sleeps, retries and waits whose time passed without anyone moving them.",
    run: async (environmentId) => {
      const late = clock.now() - overdueMs;
      return offence(
        await store.all<Lost>(sql`SELECT run_id AS id, wake_at AS at FROM (
          SELECT run_id, environment_id, wake_at FROM executions WHERE state <> 'queued' AND wake_at <= ${late}
          ORDER BY wake_at LIMIT ${integrityRowsMax}) due WHERE environment_id = ${environmentId}
        UNION ALL SELECT run_id, timeout_at FROM (
          SELECT run_id, environment_id, timeout_at FROM executions
          WHERE timeout_at IS NOT NULL AND timeout_at <= ${late}
          ORDER BY timeout_at LIMIT ${integrityRowsMax}) ended WHERE environment_id = ${environmentId}`),
      );
    },
  },
];

export interface Found {
  id: string;
  environment_id: string;
}

/** The next slice of runs by id, from behind `after`: those that are active without an execution, and where the slice ended. */
export async function lostRuns(
  store: Store,
  after: string,
): Promise<{ found: Found[]; last: string | undefined }> {
  const end = await endOf(
    store,
    sql`SELECT id FROM runs WHERE id > ${after} ORDER BY id LIMIT ${sweepSliceMax}`,
  );
  const found = await store.all<Found>(sql`SELECT r.id, r.environment_id FROM (
      SELECT id, environment_id, status FROM runs WHERE id > ${after} ORDER BY id LIMIT ${sweepSliceMax}) r
    WHERE r.status = 'active' AND NOT EXISTS (SELECT 1 FROM executions e WHERE e.run_id = r.id)`);
  return { found, last: end };
}

/** The same of executions. */
export async function orphans(
  store: Store,
  after: string,
): Promise<{ found: Found[]; last: string | undefined }> {
  const end = await endOf(
    store,
    sql`SELECT run_id AS id FROM executions WHERE run_id > ${after} ORDER BY run_id LIMIT ${sweepSliceMax}`,
  );
  const found = await store.all<Found>(sql`SELECT e.run_id AS id, e.environment_id FROM (
      SELECT run_id, environment_id FROM executions WHERE run_id > ${after} ORDER BY run_id LIMIT ${sweepSliceMax}) e
    WHERE NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = e.run_id AND r.status = 'active')`);
  return { found, last: end };
}

/** Undefined when the slice was the last. */
async function endOf(store: Store, slice: Sql): Promise<string | undefined> {
  const row = await store.one<{ last: string | null; count: number }>(
    sql`SELECT max(id) AS last, count(*) AS count FROM (${slice}) slice`,
  );
  return row && row.count === sweepSliceMax ? (row.last ?? undefined) : undefined;
}

/** Rows of history after which a run stands still because a person wants it to. */
const heldTypes: readonly string[] = ["run.paused", "run.held"];

/**
 * Gives a run its execution back, queued, behind every fence that it ever had: whoever still holds the old lease is stale.
 * Answers false when the run is well meanwhile, or is held by a person. Locks: the run's row; there is no execution to lock.
 */
export async function restoreExecution(session: Session, runId: string, now: Instant): Promise<boolean> {
  const run = await session.one(sql`SELECT id FROM runs WHERE id = ${runId} AND status = 'active'
    AND NOT EXISTS (SELECT 1 FROM executions WHERE run_id = ${runId}) ${session.seams.holdRow}`);
  if (!run) return false;
  const history = await session.all<{ sequence: number; type: string; detail: string }>(
    sql`SELECT sequence, type, detail FROM run_history WHERE run_id = ${runId} ORDER BY sequence`,
  );
  if (heldTypes.includes(history.at(-1)?.type ?? "")) return false;
  let attempt = 1;
  let seq = 0;
  for (const row of history) {
    const detail = JSON.parse(row.detail) as { attempt?: number; execution_seq?: number };
    if (row.type !== "run.lease_expired") attempt = Math.max(attempt, detail.attempt ?? 1);
    seq = Math.max(seq, detail.execution_seq ?? 0);
  }
  const sequence = (history.at(-1)?.sequence ?? 0) + 1;
  const inserted = await session.run(sql`INSERT INTO executions
      (run_id, environment_id, function_id, function_version, state, wake_at, execution_seq, attempt, max_attempts,
       step_count, history_count, lost_count, timeout_at)
    SELECT r.id, r.environment_id, r.function_id, r.function_version, 'queued', ${sql.bigint(now)}, ${sql.bigint(seq + 1)},
      ${sql.bigint(attempt)}, r.max_attempts,
      COALESCE((SELECT max(s.sequence) + 1 FROM steps s WHERE s.run_id = r.id), 0), ${sql.bigint(sequence)}, 0, r.timeout_at
    FROM runs r WHERE r.id = ${runId} ON CONFLICT (run_id) DO NOTHING`);
  if (inserted === 0) return false;
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT r.id, ${sql.bigint(sequence)}, r.environment_id, 'run.restored', ${sql.bigint(now)}, '{}'
    FROM runs r WHERE r.id = ${runId}`);
  return true;
}

/** Executions that belong to no active run lead nowhere: they go. */
export const dropOrphans = (session: Session, runIds: readonly string[]): Promise<number> =>
  session.run(sql`DELETE FROM executions WHERE run_id IN (
      SELECT run_id FROM ${session.seams.rowsFrom("v", { run_id: column.text(runIds) })})
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = executions.run_id AND r.status = 'active')`);

/** Environments of what is overdue; a slice. */
export const overdue = (store: Store, now: Instant): Promise<Found[]> => {
  const late = now - overdueMs;
  return store.all<Found>(sql`SELECT run_id AS id, environment_id FROM (
      SELECT run_id, environment_id FROM executions WHERE state <> 'queued' AND wake_at <= ${late}
      ORDER BY wake_at LIMIT ${sweepSliceMax}) due
    UNION SELECT run_id, environment_id FROM (
      SELECT run_id, environment_id FROM executions WHERE timeout_at IS NOT NULL AND timeout_at <= ${late}
      ORDER BY timeout_at LIMIT ${sweepSliceMax}) ended`);
};

/** Which of these are still due. */
export async function stillOverdue(
  store: Store,
  runIds: readonly string[],
  now: Instant,
): Promise<Set<string>> {
  const rows = await store.all<{ run_id: string }>(sql`SELECT e.run_id
    FROM ${store.seams.rowsFrom("v", { run_id: column.text(runIds) })} JOIN executions e ON e.run_id = v.run_id
    WHERE (e.state <> 'queued' AND e.wake_at <= ${now - overdueMs}) OR e.timeout_at <= ${now - overdueMs}`);
  return new Set(rows.map((row) => row.run_id));
}
