import type { Instant } from "../../../../kit/clock.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import { noteSteps, tookUntil } from "../step-moves.ts";
import type { QueueHint } from "../wakes/due.ts";

/** An execution under its row's lock, with the step that it waits at. */
export interface WaitingRow {
  run_id: string;
  environment_id: string;
  function_id: string;
  state: string;
  waiting_step_id: string | null;
  history_count: number;
}

/** Locks: executions sorted by run. Runs that are over have none. */
export async function lockWaiting(
  session: Session,
  runIds: readonly string[],
): Promise<Map<string, WaitingRow>> {
  const rows =
    await session.all<WaitingRow>(sql`SELECT run_id, environment_id, function_id, state, waiting_step_id, history_count
    FROM executions WHERE run_id ${session.seams.among(column.text(runIds))}
    ORDER BY run_id ${session.seams.holdRow}`);
  return new Map(rows.map((row) => [row.run_id, row]));
}

/** The outcome that a waiting run goes on with. */
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

/** Stands for `kept`: no log has such a position. */
const keptPosition = -1;

/** Writes the outcomes of steps and queues their runs. The caller holds the executions' locks. */
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
  await session.run(sql`UPDATE steps SET status = v.status, output = o.output, error = v.error, ended_at = ${at},
      updated_at = ${at}, duration_ms = ${tookUntil(now)}
    FROM ${rowsFrom("v", {
      run_id,
      step_id: column.text(list.map((r) => r.stepId)),
      status: column.text(list.map((r) => r.status)),
      place: column.bigint(list.map((r) => r.output)),
      error: column.text(list.map((r) => r.error)),
    })} LEFT JOIN ${rowsFrom("o", { output: column.text(texts) })} ON o.ord = v.place
    WHERE steps.run_id = v.run_id AND steps.step_id = v.step_id AND steps.status = 'waiting'
      ${byKey("steps.run_id", run_id)}`);
  noteSteps(
    session,
    list.map(({ row, stepId }) => ({ ...row, step_id: stepId })),
    now,
  );
  await session.run(sql`UPDATE executions SET state = 'queued', wake_at = ${at}, lease_hash = NULL, worker_id = NULL,
      waiting_step_id = NULL, history_count = executions.history_count + 1,
      seen_position = CASE WHEN v.seen_position = ${sql.raw(String(keptPosition))} THEN executions.seen_position
        ELSE COALESCE(v.seen_position,
        (SELECT h.position FROM heads h WHERE h.environment_id = executions.environment_id), executions.seen_position) END
    FROM ${rowsFrom("v", {
      run_id,
      seen_position: column.bigint(
        list.map((r) => (r.seenPosition === "kept" ? keptPosition : r.seenPosition)),
      ),
    })}
    WHERE executions.run_id = v.run_id ${byKey("executions.run_id", run_id)}`);
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT run_id, sequence, environment_id, 'run.woken', ${at}, detail FROM ${rowsFrom("v", {
      run_id,
      sequence: column.bigint(list.map((r) => r.row.history_count + 1)),
      environment_id: column.text(list.map((r) => r.row.environment_id)),
      detail: column.text(list.map((r) => r.detail)),
    })}`);
}

export function queueHintsOfRows(
  rows: Iterable<{ environment_id: string; function_id: string }>,
): QueueHint[] {
  const lanes = new Map<string, QueueHint>();
  for (const { environment_id, function_id } of rows)
    lanes.set(`${environment_id}\n${function_id}`, {
      environmentId: environment_id,
      functionId: function_id,
    });
  return [...lanes.values()];
}
