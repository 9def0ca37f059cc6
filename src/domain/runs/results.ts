import type { Instant } from "../../kit/clock.ts";
import { column, sql } from "../../kit/sql.ts";
import type { Store } from "../../store/store.ts";
import { statusOf } from "./rules.ts";
import type { ExecutionState, RunError, RunResult } from "./run.ts";

interface ResultRow {
  id: string;
  function_id: string;
  status: string;
  state: ExecutionState | null;
  output: string | null;
  error: string | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
}

/** How runs stand now, whether they are over or not. */
export async function resultsOf(
  store: Store,
  targets: readonly { environmentId: string; runId: string }[],
  now: Instant,
): Promise<Map<string, RunResult>> {
  const rows =
    await store.all<ResultRow>(sql`SELECT r.id, r.function_id, r.status, e.state, r.output, r.error,
      r.created_at, COALESCE(e.started_at, r.started_at) AS started_at, r.ended_at
    FROM ${store.seams.rowsFrom("i", {
      run_id: column.text(targets.map((target) => target.runId)),
      environment_id: column.text(targets.map((target) => target.environmentId)),
    })} JOIN runs r ON r.id = i.run_id AND r.environment_id = i.environment_id
      LEFT JOIN executions e ON e.run_id = r.id`);
  return new Map(
    rows.map((row) => [
      row.id,
      {
        runId: row.id,
        functionId: row.function_id,
        status: statusOf(row.status, row.state).status,
        output: row.output,
        error: row.error === null ? null : (JSON.parse(row.error) as RunError),
        durationMs: Math.max(0, (row.ended_at ?? now) - (row.started_at ?? row.created_at)),
        isOver: row.ended_at !== null,
      },
    ]),
  );
}

/** Of these runs, the ones that are over. */
export async function endedOf(store: Store, runIds: readonly string[]): Promise<string[]> {
  const rows = await store.all<{ id: string }>(sql`SELECT r.id
    FROM ${store.seams.rowsFrom("i", { run_id: column.text(runIds) })} JOIN runs r ON r.id = i.run_id
    WHERE r.status <> 'active'`);
  return rows.map((row) => row.id);
}
