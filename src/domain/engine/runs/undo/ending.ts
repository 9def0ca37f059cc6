import { undoBits } from "../../functions/rules.ts";
import { readEnding } from "../rules.ts";
import type { RunEnding, RunError } from "../run.ts";

export interface RunEnd {
  runId: string;
  status: RunEnding["status"];
  error: RunError | null;
  /** Why it was cancelled: `user`, `function_deleted`. */
  cause: string | null;
  /** What the caller that cancelled it said: kept in its history. */
  reason?: string;
  /** Who cancelled it: a caller, or a repair. */
  actorId?: string;
}

/** An execution whose run is to end, and what its function asks for before. */
export interface EndingRow {
  state: string;
  /** JSON text; null before the run is compensating. */
  ending: string | null;
  undo_count: number;
  lost_count: number;
  /** `undoOnOf`; null when the function is gone, or asks for nothing. */
  undo_on: number | null;
  /** Compensations that are stored, by how they went. */
  undone_count: number;
  not_undone_count: number;
}

export type EndDecision =
  | { kind: "undo"; ending: RunEnding }
  | { kind: "end"; end: RunEnd; undoFailed: number | null };

/** Whether a run that ends without a report of its worker is undone first: a pure decision. */
export function decideEnd(end: RunEnd, row: EndingRow | undefined): EndDecision {
  if (row === undefined) return { kind: "end", end, undoFailed: null };
  if (row.ending !== null) return { kind: "end", ...endOfUnfinished(end, row, readEnding(row.ending)) };
  // A worker that was lost may have done what it had no time to tell.
  const isCutOff = row.state === "leased" || row.lost_count > 0;
  const hasUndo = row.undo_count > 0 || row.lost_count > 0;
  const bits = row.undo_on ?? 0;
  const asks =
    end.status === "cancelled"
      ? (bits & undoBits.cancel) !== 0 && hasUndo
      : ((bits & undoBits.failure) !== 0 && hasUndo) || (bits & undoBits.onFailure) !== 0;
  if (asks) {
    const { status, error, cause } = end;
    const lost = row.lost_count > 0 && { lostBefore: true as const };
    return { kind: "undo", ending: { status, error, cause, interrupted: isCutOff, ...lost, tries: 0 } };
  }
  const isLeft = end.status === "failed" && row.undo_count > 0;
  return { kind: "end", end, undoFailed: isLeft ? row.undo_count : null };
}

/** The phase ended early: out of time, or its workers were lost. What is not known to be undone is not. */
function endOfUnfinished({ runId }: RunEnd, row: EndingRow, { status, error, cause }: RunEnding) {
  const undoFailed = Math.max(1, row.not_undone_count, row.undo_count - row.undone_count);
  return { end: { runId, status, error, cause }, undoFailed };
}
