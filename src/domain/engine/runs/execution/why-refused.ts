import { Fault, missing, tryAgain } from "../../../../kit/fault.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Store } from "../../../../store/store.ts";
import type { Fence } from "../run.ts";

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
