import { column, sql } from "../../../../kit/sql.ts";
import type { Session, Store } from "../../../../store/store.ts";

/**
 * The state of a lease that a worker names: `stale` when the run went on without it, `unknown` when there is
 * no such run.
 */
export type LeaseState = "refreshed" | "stale" | "unknown";

export interface HeldLease {
  runId: string;
  executionSeq: number;
  /** Undefined when the worker sent no token: then its id and the fence number are compared. */
  leaseHash: string | undefined;
}

/** Whether the worker still holds these leases, in the order of the input. */
export async function leaseStates(
  store: Store,
  {
    environmentId,
    workerId,
    leases,
  }: { environmentId: string; workerId: string; leases: readonly HeldLease[] },
): Promise<LeaseState[]> {
  if (leases.length === 0) return [];
  const rows = await store.all<{
    run_id: string;
    execution_seq: number | null;
    state: string | null;
    worker_id: string | null;
    lease_hash: string | null;
  }>(sql`SELECT r.id AS run_id, e.execution_seq, e.state, e.worker_id, e.lease_hash
    FROM ${store.seams.rowsFrom("v", { run_id: column.text(leases.map((lease) => lease.runId)) })}
    JOIN runs r ON r.id = v.run_id AND r.environment_id = ${environmentId}
    LEFT JOIN executions e ON e.run_id = r.id`);
  const byRun = new Map(rows.map((row) => [row.run_id, row]));
  return leases.map(({ runId, executionSeq, leaseHash }) => {
    const row = byRun.get(runId);
    if (!row) return "unknown";
    const held =
      row.state === "leased" &&
      row.execution_seq === executionSeq &&
      row.worker_id === workerId &&
      (leaseHash === undefined || row.lease_hash === leaseHash);
    return held ? "refreshed" : "stale";
  });
}

export interface Handover {
  runId: string;
  executionSeq: number;
  leaseHash: string;
  workerId: string;
}

/**
 * Leases that were claimed a moment ago go to another worker of the same claim. Locks: executions sorted by
 * run.
 */
export async function handOver(session: Session, handovers: readonly Handover[]): Promise<void> {
  const runIds = column.text(handovers.map((one) => one.runId));
  await session.all(sql`SELECT run_id FROM executions WHERE run_id IN (
      SELECT run_id FROM ${session.seams.rowsFrom("v", { run_id: runIds })}) ORDER BY run_id ${session.seams.holdRow}`);
  await session.run(sql`UPDATE executions SET worker_id = v.worker_id
    FROM ${session.seams.rowsFrom("v", {
      run_id: runIds,
      execution_seq: column.bigint(handovers.map((one) => one.executionSeq)),
      lease_hash: column.text(handovers.map((one) => one.leaseHash)),
      worker_id: column.text(handovers.map((one) => one.workerId)),
    })} WHERE executions.run_id = v.run_id AND executions.execution_seq = v.execution_seq
      AND executions.lease_hash = v.lease_hash`);
}
