import { createHash } from "node:crypto";
import type { RetryPolicy } from "../functions/definition.ts";
import type { ExecutionState, RunError, RunStatus } from "./run.ts";

/** How an execution's state reads as a run status (design: rulings). */
const statusOfState: Record<ExecutionState, { status: RunStatus; pauseReason: string | null }> = {
  queued: { status: "waiting_for_capacity", pauseReason: null },
  leased: { status: "running", pauseReason: null },
  retrying: { status: "waiting", pauseReason: null },
  sleeping: { status: "paused", pauseReason: "sleep" },
};

const stateOfStatus: Partial<Record<RunStatus, ExecutionState>> = {
  waiting_for_capacity: "queued",
  running: "leased",
  waiting: "retrying",
  paused: "sleeping",
};

export function statusOf(
  stored: string,
  state: ExecutionState | null,
): { status: RunStatus; pauseReason: string | null } {
  if (stored !== "active") return { status: stored as RunStatus, pauseReason: null };
  return statusOfState[state ?? "queued"];
}

/** Which stored words a filter by status looks for. */
export function storedStatuses(statuses: readonly RunStatus[]): {
  ended: RunStatus[];
  states: ExecutionState[];
} {
  const states = statuses.flatMap((status) => stateOfStatus[status] ?? []);
  return { ended: statuses.filter((status) => stateOfStatus[status] === undefined), states };
}

const runStatuses: readonly RunStatus[] = [
  "waiting_for_capacity",
  "waiting",
  "running",
  "paused",
  "completed",
  "failed",
  "cancelled",
];

/** `running`, `RUNNING` and `RUN_STATUS_RUNNING` all mean the same (contract.md rulings). */
export function parseRunStatus(text: string): RunStatus | undefined {
  const word = text.toLowerCase().replace(/^run_status_/, "");
  return runStatuses.find((status) => status === word);
}

/** Delay before attempt `attempt + 1`: initial x factor^(attempt - 1), capped (contract.md 4.4). */
export function retryDelayMs(policy: RetryPolicy, attempt: number): number {
  const delay = policy.initialDelayMs * policy.backoffFactor ** (attempt - 1);
  return Math.min(policy.maxDelayMs, Math.max(0, Math.round(delay)));
}

/** What a failed attempt comes to. */
export function afterFailure(
  error: RunError,
  policy: RetryPolicy,
  { attempt, maxAttempts }: { attempt: number; maxAttempts: number },
): { retryInMs: number } | "ends" {
  if (!error.retryable || attempt >= maxAttempts) return "ends";
  return { retryInMs: retryDelayMs(policy, attempt) };
}

/** The row id of a step follows from run and step id, so that it needs no index of its own. */
export function stepRowId(runId: string, stepId: string): string {
  const digest = createHash("sha256").update(stepId).digest("hex").slice(0, 16);
  return `step_${runId.slice("run_".length)}_${digest}`;
}

export const timedOut = (timeoutMs: number): RunError => ({
  message: `run exceeded its timeout of ${timeoutMs} ms`,
  code: "RUN_TIMEOUT",
  retryable: false,
});

export const workerLost = (times: number): RunError => ({
  message: `${times} workers in a row stopped answering while they held this run`,
  code: "WORKER_LOST",
  retryable: false,
});
