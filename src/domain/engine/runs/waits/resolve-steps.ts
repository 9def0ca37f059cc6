import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/row.ts";
import type { QueueHint } from "../run.ts";
import { noteSteps, tookUntil } from "../step-moves.ts";
import { countedRanks } from "./rank-met.ts";

/** An execution under its row's lock, with the step that it waits at. */
export interface WaitingRow
  extends RowOf<"executions", "run_id, environment_id, function_id, state, waiting_step_id, history_count"> {
  /** For a run with several waits: others that are met within that time are handed over with it. */
  gather_ms: number | null;
}

/** Locks: executions sorted by run. Runs that are over have none. */
export async function lockWaiting(
  session: Session,
  runIds: readonly string[],
): Promise<Map<string, WaitingRow>> {
  const rows =
    await session.all<WaitingRow>(sql`SELECT run_id, environment_id, function_id, state, waiting_step_id, history_count,
      gather_ms
    FROM executions WHERE run_id ${session.seams.among(column.text(runIds))}
    ORDER BY run_id ${session.seams.holdRow}`);
  return new Map(rows.map((row) => [row.run_id, row]));
}

/** Stands for the step of a run that is met and continues once more has been gathered, within its attempt. */
export const gathering = "";

/** Whether what is met brings the run on; under a lease, and between attempts, it only ends its step. */
export const isParked = ({
  state,
  waiting_step_id,
}: Pick<WaitingRow, "state" | "waiting_step_id">): boolean =>
  state === "waiting" ||
  state === "invoking" ||
  state === "sleeping" ||
  (state === "retrying" && waiting_step_id !== null && waiting_step_id !== gathering);

/** A person holds the run: what it waits for is compared again when it is resumed. */
export const isHeld = (row: Pick<WaitingRow, "state"> | undefined): boolean =>
  row?.state === "held" || row?.state === "resuming";

/** The outcome with which a waiting run continues. */
export interface Resolution {
  row: WaitingRow;
  stepId: string;
  status: "completed" | "failed" | "timed_out";
  /** Index of the output in `texts`, from 1, because many waits end with one event. Null for none. */
  output: number | null;
  /** JSON text. */
  error: string | null;
  /** The position that the run has seen now; null: the head of its log; `kept`: as far as before. */
  seenPosition: number | null | "kept";
  /** JSON text of the history row `run.woken`. */
  detail: string;
}

/** Others may have come since it was asked for: its rank is after theirs. */
const isOneOfSeveral = ({ row, stepId }: Resolution): boolean =>
  row.gather_ms !== null || row.waiting_step_id !== stepId;

/** Stands for `kept`: no log has such a position. */
const keptPosition = -1;

/**
 * Writes the outcomes of steps, and queues their runs as far as they are parked. A run may have several: it
 * waits for all of its open steps. The caller holds the executions' locks.
 */
export async function resolveSteps(
  session: Session,
  list: readonly Resolution[],
  texts: readonly string[],
  now: Instant,
): Promise<void> {
  if (list.length === 0) return;
  const { rowsFrom, byKey } = session.seams;
  const run_id = column.text(list.map((r) => r.row.run_id));
  const at = sql.bigint(now);
  const seen_position = column.bigint(
    list.map((r) => (r.seenPosition === "kept" ? keptPosition : r.seenPosition)),
  );
  const rankOf = countedRanks(now);
  await session.run(sql`UPDATE steps SET status = v.status, output = o.output, error = v.error, ended_at = ${at},
      updated_at = ${at}, duration_ms = ${tookUntil(now)}, seen_position = ${seenFrom("steps")},
      sequence = COALESCE(v.sequence, steps.sequence)
    FROM ${rowsFrom("v", {
      run_id,
      seen_position,
      ...columnsOf(list, { text: "stepId status error" }),
      sequence: column.bigint(list.map((r) => (isOneOfSeveral(r) ? rankOf(r.row.run_id) : null))),
      place: column.bigint(list.map((r) => r.output)),
    })} LEFT JOIN ${rowsFrom("o", { output: column.text(texts) })} ON o.ord = v.place
    WHERE steps.run_id = v.run_id AND steps.step_id = v.step_id AND steps.status = 'waiting'
      ${byKey("steps.run_id", run_id)}`);
  noteSteps(
    session,
    list.map(({ row, stepId }) => ({ ...row, step_id: stepId })),
    now,
  );
  // The last of a run's: what it has seen then is the most.
  const parked = [
    ...new Map(list.filter(({ row }) => isParked(row)).map((one) => [one.row.run_id, one])).values(),
  ];
  if (parked.length === 0) return;
  const parkedIds = column.text(parked.map((r) => r.row.run_id));
  await session.run(sql`UPDATE executions SET state = CASE WHEN gather_ms IS NULL THEN 'queued' ELSE 'retrying' END,
      wake_at = ${at} + COALESCE(gather_ms, 0), lease_hash = NULL, worker_id = NULL,
      waiting_step_id = CASE WHEN gather_ms IS NOT NULL THEN ${gathering} END, history_count = executions.history_count + 1,
      seen_position = CASE WHEN gather_ms IS NULL THEN ${seenFrom("executions")} ELSE executions.seen_position END
    FROM ${rowsFrom("v", {
      run_id: parkedIds,
      seen_position: column.bigint(
        parked.map((r) => (r.seenPosition === "kept" ? keptPosition : r.seenPosition)),
      ),
    })}
    WHERE executions.run_id = v.run_id ${byKey("executions.run_id", parkedIds)}`);
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT run_id, sequence, environment_id, 'run.woken', ${at}, detail FROM ${rowsFrom("v", {
      run_id: parkedIds,
      sequence: column.bigint(parked.map((r) => r.row.history_count + 1)),
      environment_id: column.text(parked.map((r) => r.row.environment_id)),
      detail: column.text(parked.map((r) => r.detail)),
    })}`);
  // Others of its waits may end in the same transaction.
  for (const { row } of parked) {
    row.history_count++;
    row.state = row.gather_ms === null ? "queued" : "retrying";
    row.waiting_step_id = row.gather_ms === null ? null : gathering;
  }
}

const seenFrom = (table: "steps" | "executions") =>
  sql.raw(`CASE WHEN v.seen_position = ${keptPosition} THEN ${table}.seen_position ELSE COALESCE(v.seen_position,
        (SELECT h.position FROM heads h WHERE h.environment_id = ${table}.environment_id), ${table}.seen_position) END`);

/** Of runs that continue now, and of those that gather first, which the loop that wakes them queues. */
export function queueHintsOfRows(
  rows: Iterable<{ environment_id: string; function_id: string; gather_ms?: number | null }>,
): QueueHint[] {
  const lanes = new Map<string, QueueHint>();
  for (const { environment_id: environmentId, function_id: functionId, gather_ms } of rows) {
    const isGathering = gather_ms != null;
    const lane = `${environmentId}\n${functionId}\n${isGathering}`;
    const inMs = isGathering && Math.min(gather_ms, lanes.get(lane)?.inMs ?? gather_ms);
    lanes.set(lane, { environmentId, functionId, ...(inMs !== false && { inMs }) });
  }
  return [...lanes.values()];
}
