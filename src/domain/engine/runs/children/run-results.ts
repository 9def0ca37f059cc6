import type { Instant } from "../../../../kit/clock.ts";
import { column, sql } from "../../../../kit/sql.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Store } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/row.ts";
import { statusOf } from "../rules.ts";
import type { ExecutionState, RunError, RunResult } from "../run.ts";

interface ResultRow
  extends RowOf<
    "runs",
    "id, environment_id, function_id, status, output, error, created_at, started_at, ended_at"
  > {
  state: ExecutionState | null;
}

/** One query is for all callers that wait at a node. */
const unreadable: RunError = { message: "what is stored of the error cannot be read", retryable: false };

/** Runs as they are now, ended or not. */
export async function resultsOf(
  store: Store,
  targets: readonly { environmentId: string; runId: string }[],
  now: Instant,
): Promise<Map<string, RunResult>> {
  const runIds = targets.map(({ runId }) => runId);
  const rows =
    await store.all<ResultRow>(sql`SELECT r.id, r.environment_id, r.function_id, r.status, r.output, r.error,
      (SELECT e.state FROM executions e WHERE e.run_id = r.id) AS state, r.created_at,
      COALESCE(r.started_at, (SELECT e.started_at FROM executions e WHERE e.run_id = r.id)) AS started_at, r.ended_at
    FROM runs r WHERE r.id ${store.seams.among(column.text(runIds))}`);
  const environmentOf = new Map(targets.map(({ runId, environmentId }) => [runId, environmentId]));
  const own = rows.filter((row) => row.environment_id === environmentOf.get(row.id));
  return new Map(
    own.map((row) => [
      row.id,
      {
        runId: row.id,
        functionId: row.function_id,
        status: statusOf(row.status, row.state).status,
        output: row.output,
        error: row.error === null ? null : (storedJson<RunError>(row.error) ?? unreadable),
        durationMs: Math.max(0, (row.ended_at ?? now) - (row.started_at ?? row.created_at)),
        isOver: row.ended_at !== null,
      },
    ]),
  );
}

/** Of these runs, the ones that are over. */
export async function endedOf(store: Store, runIds: readonly string[]): Promise<string[]> {
  const rows = await store.all<{ id: string }>(sql`SELECT r.id FROM runs r
    WHERE r.id ${store.seams.among(column.text(runIds))} AND r.status <> 'active'`);
  return rows.map((row) => row.id);
}
