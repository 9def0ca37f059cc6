import { column, sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";

/** The current or last fence of a run: tells a late worker why its report is refused. */
export interface LastFence {
  run_id: string;
  execution_seq: number;
  lease_hash: string | null;
}

export async function lastFences(
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
