import type { Instant } from "../../../../kit/clock.ts";
import { column, type Sql, sql } from "../../../../kit/sql.ts";
import type { Session, Store } from "../../../../store/store.ts";
import { type Fence, startedDetail } from "../run.ts";
import type { FunctionDemand } from "./claim.ts";

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

/** Those of the runs that were cancelled, also where they are undone first. */
export async function cancelledOf(
  store: Store,
  { environmentId, runIds }: { environmentId: string; runIds: readonly string[] },
): Promise<Set<string>> {
  if (runIds.length === 0) return new Set();
  const { rowsFrom, byKey } = store.seams;
  const run_id = column.text(runIds);
  const rows = await store.all<{ id: string }>(sql`SELECT r.id FROM ${rowsFrom("v", { run_id })}
    JOIN runs r ON r.id = v.run_id AND r.environment_id || '' = ${environmentId} ${byKey("r.id", run_id)}
    LEFT JOIN executions e ON e.run_id = r.id ${byKey("e.run_id", run_id)}
    WHERE r.status = 'cancelled' OR (e.ending IS NOT NULL AND e.state <> 'leased')`);
  return new Set(rows.map(({ id }) => id));
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
  const { rowsFrom, byKey } = store.seams;
  const run_id = column.text(leases.map((lease) => lease.runId));
  const rows = await store.all<{
    run_id: string;
    execution_seq: number | null;
    state: string | null;
    worker_id: string | null;
    lease_hash: string | null;
  }>(sql`SELECT r.id AS run_id, e.execution_seq, e.state, e.worker_id, e.lease_hash
    FROM ${rowsFrom("v", { run_id })}
    JOIN runs r ON r.id = v.run_id AND r.environment_id || '' = ${environmentId} ${byKey("r.id", run_id)}
    LEFT JOIN executions e ON e.run_id = r.id ${byKey("e.run_id", run_id)}`);
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
  /** The lease in its place. */
  to: FunctionDemand["slots"][number];
}

/**
 * Leases that were claimed a moment ago go to another worker of the same claim. Locks: executions sorted by
 * run.
 */
export async function handOver(session: Session, handovers: readonly Handover[]): Promise<void> {
  const { rowsFrom, holdRow, byKey } = session.seams;
  const runIds = column.text(handovers.map((one) => one.runId));
  const executionSeqs = column.bigint(handovers.map((one) => one.executionSeq));
  const newHashes = column.text(handovers.map(({ to }) => to.leaseHash));
  await session.all(sql`SELECT run_id FROM executions WHERE run_id IN (
      SELECT run_id FROM ${rowsFrom("v", { run_id: runIds })}) ORDER BY run_id ${holdRow}`);
  await session.run(sql`UPDATE executions SET worker_id = v.worker_id, lease_hash = v.new_hash, wake_at = v.lease_until
    FROM ${rowsFrom("v", {
      run_id: runIds,
      execution_seq: executionSeqs,
      lease_hash: column.text(handovers.map((one) => one.leaseHash)),
      worker_id: column.text(handovers.map(({ to }) => to.workerId)),
      new_hash: newHashes,
      lease_until: column.bigint(handovers.map(({ to }) => to.leaseUntil)),
    })} WHERE executions.run_id = v.run_id AND executions.execution_seq = v.execution_seq
      AND executions.lease_hash = v.lease_hash`);
  // The history names the worker that the run was claimed for.
  await session.run(sql`UPDATE run_history SET detail = ${startedDetail("e", "v")}
    FROM ${rowsFrom("v", {
      run_id: runIds,
      execution_seq: executionSeqs,
      new_hash: newHashes,
      deployment: column.text(handovers.map(({ to }) => to.deployment ?? null)),
    })} JOIN executions e ON e.run_id = v.run_id AND e.execution_seq = v.execution_seq AND e.lease_hash = v.new_hash
      ${byKey("e.run_id", runIds)}
    WHERE run_history.run_id = v.run_id ${byKey("run_history.run_id", runIds)}
      AND run_history.sequence = e.history_count AND run_history.type = 'run.started'`);
}

/** Leases of a worker whose processes have marks, which the hashes of their leases end with. */
interface MarkedLeases {
  environmentId: string;
  workerId: string;
  /** How the hashes of one process end; undefined means all of them. */
  ending: string | undefined;
  /** How long they last from a renewal on. */
  leaseMs: number;
}

/** A worker may have gone at `at`: what was renewed in that millisecond, or later, is held. */
export interface Silence extends MarkedLeases {
  at: Instant;
}

/** The leases of a process from before `claimedBefore`, at most `most`. */
export interface LeaseLook extends MarkedLeases {
  claimedBefore: Instant;
  most: number;
}

export interface FoundLease {
  environmentId: string;
  functionId: string;
  runId: string;
  executionSeq: number;
  leaseHash: string;
}

/**
 * Which executions `d` are such leases. Leases are few where many runs sleep, and those that shall end soon
 * are fewest: they are found by the index of wakes, from which the empty texts keep the planner.
 */
export function areLeasesOf(
  { environmentId, workerId, ending }: MarkedLeases,
  { claimedBefore, endsUntil }: { claimedBefore: Instant; endsUntil: Instant },
): Sql {
  const isMarked =
    ending === undefined ? sql`substr(d.lease_hash, 24, 1) = '.'` : sql`substr(d.lease_hash, 24) = ${ending}`;
  return sql`d.state <> 'queued' AND d.wake_at <= ${sql.bigint(endsUntil)} AND d.state || '' = 'leased'
      AND d.environment_id || '' = ${environmentId} AND d.worker_id = ${workerId} AND ${isMarked}
      AND d.claimed_at < ${sql.bigint(claimedBefore)}`;
}

export async function findLeases(store: Store, look: LeaseLook): Promise<FoundLease[]> {
  const { environmentId, claimedBefore, leaseMs, most } = look;
  const rows = await store.all<{
    run_id: string;
    function_id: string;
    execution_seq: number;
    lease_hash: string;
  }>(sql`SELECT d.run_id, d.function_id, d.execution_seq, d.lease_hash FROM executions d
    WHERE ${areLeasesOf(look, { claimedBefore, endsUntil: claimedBefore + leaseMs })}
    ORDER BY d.wake_at LIMIT ${sql.bigint(most)}`);
  return rows.map((row) => ({
    environmentId,
    functionId: row.function_id,
    runId: row.run_id,
    executionSeq: row.execution_seq,
    leaseHash: row.lease_hash,
  }));
}

/** Marks an assignment as received, and its worker as alive; answers whether the fence held. */
export async function ackExecution(
  session: Session,
  fence: Fence & { environmentId: string },
  { now, leaseUntil }: { now: Instant; leaseUntil: Instant },
): Promise<boolean> {
  const changed = await session.run(sql`UPDATE executions SET acked_at = ${now},
      wake_at = CASE WHEN wake_at < ${sql.bigint(leaseUntil)} THEN ${sql.bigint(leaseUntil)} ELSE wake_at END
    WHERE run_id = ${fence.runId} AND environment_id || '' = ${fence.environmentId} AND state = 'leased'
      AND execution_seq = ${fence.executionSeq} AND lease_hash = ${fence.leaseHash}`);
  return changed === 1;
}

/**
 * Extends the leases that a heartbeat names; the worker's other leases run out. Locks: executions sorted by
 * run.
 */
export async function renewLeases(
  session: Session,
  renewal: {
    environmentId: string;
    workerId: string;
    leaseUntil: Instant;
    jobs: readonly { runId: string; executionSeq: number }[];
  },
): Promise<void> {
  const held = column.text(renewal.jobs.map((job) => job.runId));
  const { seams } = session;
  await session.all(sql`SELECT run_id FROM executions WHERE environment_id || '' = ${renewal.environmentId}
    AND run_id ${seams.among(held)} ORDER BY run_id ${seams.holdRow}`);
  await session.run(sql`UPDATE executions SET wake_at = ${renewal.leaseUntil}
    FROM ${seams.rowsFrom("v", {
      run_id: held,
      execution_seq: column.bigint(renewal.jobs.map((job) => job.executionSeq)),
    })} WHERE executions.run_id = v.run_id AND executions.execution_seq = v.execution_seq
      AND executions.environment_id || '' = ${renewal.environmentId} AND executions.worker_id = ${renewal.workerId}
      AND executions.state || '' = 'leased' ${seams.byKey("executions.run_id", held)}`);
}
