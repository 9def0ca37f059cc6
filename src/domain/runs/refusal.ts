import type { Instant } from "../../kit/clock.ts";
import { column, sql } from "../../kit/sql.ts";
import type { Session } from "../../store/store.ts";
import type { RunError } from "./run.ts";

/**
 * A report that was refused, where that may not end the run at once: its fence was never read, as it was too large to be, or
 * its worker may still report otherwise. It is noted in the run's history, and is believed when the lease then ends without
 * another word of its holder.
 */
export interface Refusal {
  environmentId: string;
  runId: string;
  executionSeq: number;
  /** Who sent it must be the one that the run is leased to; by its fence where that was read, else by its name. */
  holder: { workerId: string } | { leaseHash: string };
  message: string;
  code: string;
}

const noted = "run.report_refused";

/** Answers whether it was noted; what the last row of the history says already is not said again. */
export async function noteRefusal(session: Session, refusal: Refusal, now: Instant): Promise<boolean> {
  const { environmentId, runId, executionSeq, holder, message, code } = refusal;
  const isHeld =
    "workerId" in holder ? sql`worker_id = ${holder.workerId}` : sql`lease_hash = ${holder.leaseHash}`;
  const held = await session.one<{ history_count: number }>(sql`SELECT history_count FROM executions
    WHERE run_id = ${runId} AND environment_id = ${environmentId} AND execution_seq = ${executionSeq}
      AND ${isHeld} AND state = 'leased' ${session.seams.holdRow}`);
  if (!held) return false;
  const last = await session.one<{ type: string }>(sql`SELECT type FROM run_history
    WHERE run_id = ${runId} AND sequence = ${held.history_count}`);
  if (last?.type === noted) return false;
  const detail = JSON.stringify({ execution_seq: executionSeq, message, code });
  await session.run(sql`UPDATE executions SET history_count = history_count + 1 WHERE run_id = ${runId}`);
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    VALUES (${runId}, ${held.history_count + 1}, ${environmentId}, ${noted}, ${now}, ${detail})`);
  return true;
}

/** Of leases that ended: those whose holder was last heard of by a report that could not be read, and what they fail with. */
export async function refusedLast(
  session: Session,
  rows: readonly { run_id: string; execution_seq: number; history_count: number }[],
): Promise<Map<string, RunError>> {
  const found = new Map<string, RunError>();
  if (rows.length === 0) return found;
  const last = await session.all<{ run_id: string; detail: string }>(sql`SELECT h.run_id, h.detail
    FROM ${session.seams.rowsFrom("v", {
      run_id: column.text(rows.map((row) => row.run_id)),
      sequence: column.bigint(rows.map((row) => row.history_count)),
    })} JOIN run_history h ON h.run_id = v.run_id AND h.sequence = v.sequence AND h.type = ${noted}`);
  const fenceOf = new Map(rows.map((row) => [row.run_id, row.execution_seq]));
  for (const { run_id, detail } of last) {
    const { execution_seq, message, code } = JSON.parse(detail) as {
      execution_seq: number;
      message: string;
      code: string;
    };
    if (fenceOf.get(run_id) === execution_seq) found.set(run_id, { message, code, retryable: false });
  }
  return found;
}
