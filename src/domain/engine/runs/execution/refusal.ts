import type { Instant } from "../../../../kit/clock.ts";
import { Fault, missing, tryAgain } from "../../../../kit/fault.ts";
import { column, sql } from "../../../../kit/sql.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Session, Store } from "../../../../store/store.ts";
import type { DeviatingStep, Fence, RunError } from "../run.ts";

/**
 * A report that was refused, but does not end the run at once: it was too large for its fence to be read, or
 * its worker may send another one. It is noted in the run's history. The run fails by it when the lease then
 * ends without another report or heartbeat of the worker.
 */
export interface ReportRefusal {
  environmentId: string;
  runId: string;
  executionSeq: number;
  /**
   * The sender must hold the lease: compared by the token's hash, or by the worker's id when no token was
   * read.
   */
  holder: { workerId: string } | { leaseHash: string };
  message: string;
  code: string;
}

const noted = "run.report_refused";

/** The detail of its history row. */
interface RefusalNote {
  execution_seq: number;
  message: string;
  code: string;
  /** The end of the lease when the report was refused: a later end means that the worker renewed it. */
  lease_until: Instant;
}

/** Answers whether it was noted; a repeat of the last history row is not written again. */
export async function noteRefusal(session: Session, refusal: ReportRefusal, now: Instant): Promise<boolean> {
  const { environmentId, runId, executionSeq, holder, message, code } = refusal;
  const isHeld =
    "workerId" in holder ? sql`worker_id = ${holder.workerId}` : sql`lease_hash = ${holder.leaseHash}`;
  const held = await session.one<{
    history_count: number;
    wake_at: number;
  }>(sql`SELECT history_count, wake_at FROM executions
    WHERE run_id = ${runId} AND environment_id || '' = ${environmentId} AND execution_seq = ${executionSeq}
      AND ${isHeld} AND state = 'leased' ${session.seams.holdRow}`);
  if (!held) return false;
  const note: RefusalNote = { execution_seq: executionSeq, message, code, lease_until: held.wake_at };
  const detail = JSON.stringify(note);
  const lastRow = sql`run_id = ${runId} AND sequence = ${held.history_count}`;
  const last = await session.one<{ type: string; detail: string }>(
    sql`SELECT type, detail FROM run_history WHERE ${lastRow}`,
  );
  if (last?.type === noted) {
    if ((JSON.parse(last.detail) as RefusalNote).lease_until >= held.wake_at) return false;
    await session.run(sql`UPDATE run_history SET detail = ${detail} WHERE ${lastRow}`);
    return true;
  }
  await session.run(sql`UPDATE executions SET history_count = history_count + 1 WHERE run_id = ${runId}`);
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    VALUES (${runId}, ${held.history_count + 1}, ${environmentId}, ${noted}, ${now}, ${detail})`);
  return true;
}

/**
 * Of leases that ended: those whose holder was last heard of by a report that could not be read, and what
 * they fail with.
 */
export async function refusedLast(
  session: Session,
  rows: readonly { run_id: string; execution_seq: number; history_count: number; wake_at: number }[],
): Promise<Map<string, RunError>> {
  const found = new Map<string, RunError>();
  if (rows.length === 0) return found;
  const { rowsFrom, byKey } = session.seams;
  const run_id = column.text(rows.map((row) => row.run_id));
  const last = await session.all<{ run_id: string; detail: string }>(sql`SELECT h.run_id, h.detail
    FROM ${rowsFrom("v", { run_id, sequence: column.bigint(rows.map((row) => row.history_count)) })}
      JOIN run_history h ON h.run_id = v.run_id AND h.sequence = v.sequence AND h.type = ${noted}
        ${byKey("h.run_id", run_id)}`);
  const rowOf = new Map(rows.map((row) => [row.run_id, row]));
  for (const { run_id, detail } of last) {
    const note = storedJson<RefusalNote>(detail);
    if (!note) continue;
    const { execution_seq, message, code, lease_until } = note;
    const row = rowOf.get(run_id)!;
    if (row.execution_seq === execution_seq && row.wake_at <= lease_until)
      found.set(run_id, { message, code, retryable: false });
  }
  return found;
}

/** The current or last fence of a run: tells a late worker why its report is refused. */
interface LastFence {
  run_id: string;
  execution_seq: number;
  lease_hash: string | null;
}

async function lastFences(
  store: Store,
  targets: readonly { environmentId: string; runId: string }[],
): Promise<Map<string, LastFence>> {
  const { rowsFrom, byKey } = store.seams;
  const run_id = column.text(targets.map((target) => target.runId));
  const rows =
    await store.all<LastFence>(sql`SELECT r.id AS run_id, COALESCE(e.execution_seq, r.execution_seq) AS execution_seq,
      CASE WHEN e.run_id IS NULL THEN r.lease_hash ELSE e.lease_hash END AS lease_hash
    FROM ${rowsFrom("v", {
      run_id,
      environment_id: column.text(targets.map((target) => target.environmentId)),
    })} JOIN runs r ON r.id = v.run_id AND r.environment_id || '' = v.environment_id ${byKey("r.id", run_id)}
    LEFT JOIN executions e ON e.run_id = r.id ${byKey("e.run_id", run_id)}`);
  return new Map(rows.map((row) => [row.run_id, row]));
}

/** Why the fences of these reports do not hold: compares each with the last fence that its run stored. */
export async function whyRefused(
  store: Store,
  fences: readonly (Fence & { environmentId: string })[],
): Promise<Fault[]> {
  // The other reports of the flush are committed: a failed read here must not fail them.
  const known = await lastFences(store, fences).catch(() => undefined);
  return fences.map((fence) => {
    if (!known) return unread();
    const last = known.get(fence.runId);
    if (!last) return missing("run", fence.runId);
    const held = last.execution_seq === fence.executionSeq && last.lease_hash === fence.leaseHash;
    return held ? runNotRunning() : staleExecution();
  });
}

const unread = (): Fault => tryAgain("unavailable", "the run cannot be read now, send it again");

export const staleExecution = (): Fault =>
  new Fault("aborted", "this execution was recovered or superseded", {
    code: "STALE_EXECUTION",
  });

export const runNotRunning = (): Fault =>
  new Fault("aborted", "the run is not running", { code: "RUN_NOT_RUNNING" });

/** Stored steps that a run's handler did not reach as before, reported by the worker that holds its lease. */
export interface ReportedDeviations extends Fence {
  environmentId: string;
  steps: readonly DeviatingStep[];
}

/** Notes them on the run; undefined when the fence does not hold. */
export async function noteDeviations(
  session: Session,
  { environmentId, runId, executionSeq, leaseHash, steps }: ReportedDeviations,
): Promise<{ functionId: string; functionVersion: number } | undefined> {
  const [row] = await session.all<{ function_id: string; function_version: number }>(sql`UPDATE runs
    SET nondeterminism = ${JSON.stringify(steps)}
    WHERE id = ${runId} AND environment_id = ${environmentId} AND EXISTS (
      SELECT 1 FROM executions e
      WHERE e.run_id = ${runId} AND e.environment_id || '' = ${environmentId} AND e.state = 'leased'
        AND e.execution_seq = ${executionSeq} AND e.lease_hash = ${leaseHash})
    RETURNING function_id, function_version`);
  return row && { functionId: row.function_id, functionVersion: row.function_version };
}
