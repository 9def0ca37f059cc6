import type { Instant } from "../../../../kit/clock.ts";
import { column, sql } from "../../../../kit/sql.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Session } from "../../../../store/store.ts";
import type { RunError } from "../run.ts";

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
