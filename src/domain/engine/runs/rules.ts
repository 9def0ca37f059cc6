import type { RetryPolicy } from "../functions/definition.ts";
import { compensationTriesMax } from "./limits.ts";
import type { CompensatingJob, ExecutionState, RunEnding, RunError, RunStatus } from "./run.ts";

/** How an execution's state reads as a run status. */
const statusOfState: Record<ExecutionState, { status: RunStatus; pauseReason: string | null }> = {
  queued: { status: "waiting_for_capacity", pauseReason: null },
  leased: { status: "running", pauseReason: null },
  retrying: { status: "waiting", pauseReason: null },
  sleeping: { status: "paused", pauseReason: "sleep" },
  waiting: { status: "paused", pauseReason: "wait_event" },
  invoking: { status: "paused", pauseReason: "invoke" },
  held: { status: "paused", pauseReason: "injection" },
  stranded: { status: "paused", pauseReason: "deployment_gone" },
  // Shown as running: the resume queues it in a moment.
  resuming: { status: "running", pauseReason: null },
};

/** What a filter says: a status, or one reason of a pause; `paused` is all of them. */
export type AskedStatus =
  | RunStatus
  | "sleeping"
  | "waiting_for_event"
  | "waiting_for_child"
  | "held"
  | "deployment_gone";

const statesOfStatus: Partial<Record<AskedStatus, readonly ExecutionState[]>> = {
  waiting_for_capacity: ["queued"],
  running: ["leased", "resuming"],
  waiting: ["retrying"],
  paused: ["sleeping", "waiting", "invoking", "held", "stranded"],
  sleeping: ["sleeping"],
  waiting_for_event: ["waiting"],
  waiting_for_child: ["invoking"],
  held: ["held"],
  deployment_gone: ["stranded"],
};

export function statusOf(
  stored: string,
  state: ExecutionState | null,
): { status: RunStatus; pauseReason: string | null } {
  if (stored !== "active") return { status: stored as RunStatus, pauseReason: null };
  return statusOfState[state ?? "queued"];
}

/** Whether a filter by these words takes a run. */
export const isAmong = (words: readonly AskedStatus[], run: ReturnType<typeof statusOf>): boolean =>
  words.some(
    (word) =>
      word === run.status ||
      statesOfStatus[word]?.some((state) => {
        const { status, pauseReason } = statusOfState[state];
        return status === run.status && pauseReason === run.pauseReason;
      }),
  );

/** The statuses of ended runs, and the states of executions, that a filter by status selects. */
export function storedStatuses(statuses: readonly AskedStatus[]): {
  ended: RunStatus[];
  states: ExecutionState[];
} {
  const states = statuses.flatMap((status) => statesOfStatus[status] ?? []);
  const ended = statuses.filter((status): status is RunStatus => statesOfStatus[status] === undefined);
  return { ended, states };
}

export const runStatuses: readonly RunStatus[] = [
  "waiting_for_capacity",
  "waiting",
  "running",
  "paused",
  "completed",
  "failed",
  "cancelled",
];

/** What filters by status take. */
export const askedStatuses: readonly AskedStatus[] = [
  ...new Set([...runStatuses, ...(Object.keys(statesOfStatus) as AskedStatus[])]),
];

/** `running`, `RUNNING` and `RUN_STATUS_RUNNING` all mean the same. */
export function parseRunStatus(text: string): AskedStatus | undefined {
  const word = text.toLowerCase().replace(/^run_status_/, "");
  // Earlier clients send this word.
  if (word === "pending") return "waiting_for_capacity";
  return askedStatuses.find((status) => status === word);
}

/** Delay before attempt `attempt + 1`: initial x factor^(attempt - 1), capped. */
export function retryDelayMs(policy: RetryPolicy, attempt: number): number {
  const delay = policy.initialDelayMs * policy.backoffFactor ** (attempt - 1);
  return Math.min(policy.maxDelayMs, Math.max(0, Math.round(delay)));
}

/** Whether a failed attempt is retried, and after how long. */
export function afterFailure(
  error: RunError,
  policy: RetryPolicy,
  { attempt, maxAttempts }: { attempt: number; maxAttempts: number },
): { retryInMs: number } | "ends" {
  if (!error.retryable || attempt >= maxAttempts) return "ends";
  return { retryInMs: retryDelayMs(policy, attempt) };
}

export const timedOut = (timeoutMs: number): RunError => ({
  message: `run exceeded its timeout of ${timeoutMs} ms`,
  code: "RUN_TIMEOUT",
  retryable: false,
});

/** `names` of one event, or of all conditions; only those of other things than events have a blank inside. */
export const waitTimedOut = (names: string): RunError => ({
  message: /(?<!,) /.test(names)
    ? `timed out waiting for ${names}`
    : `timed out waiting for the event "${names}"`,
  code: "WAIT_TIMEOUT",
  retryable: false,
});

/** No run of that id was started by the run that waits, or it is not kept any more. */
export const unknownChild = (runId: string): RunError => ({
  message: `wait_for_events: this run did not start a run ${runId}`,
  code: "WAIT_RUN_UNKNOWN",
  retryable: false,
});

export const tooManyWaits = (most: number): RunError => ({
  message: `wait_for_events: runs of the environment wait for ${most} entities, keys and runs already, which is the most`,
  code: "WAITS_FULL",
  retryable: false,
});

/** The wait compares with a value that the triggering event lacks: no event could end it. */
export const unresolvedMatch = (path: string): RunError => ({
  message: `wait_for_event: the triggering event has nothing at data.${path}`,
  code: "WAIT_MATCH_UNRESOLVED",
  retryable: false,
});

/** The error of a failed invoke step, as its handler gets it. */
export interface InvokeError extends RunError {
  function_id: string;
  child_run_id?: string;
  /** Why the child was cancelled. */
  cause?: string;
}

export const invokeTimedOut = (functionId: string, childRunId: string | null): InvokeError => ({
  message: `timed out waiting for the function "${functionId}"`,
  code: "INVOKE_TIMEOUT",
  retryable: false,
  function_id: functionId,
  ...(childRunId !== null && { child_run_id: childRunId }),
});

export const workerLost = (times: number): RunError => ({
  message: `${times} workers in a row stopped answering while they held this run`,
  code: "WORKER_LOST",
  retryable: false,
});

export const readEnding = (text: string): RunEnding => JSON.parse(text) as RunEnding;

/** `ending` is JSON text; null of a run that goes on. */
export function compensatingJob(ending: string | null): CompensatingJob | null {
  if (ending === null) return null;
  const { status, error, cause, interrupted, tries } = readEnding(ending);
  const left = { interrupted, tries_left: compensationTriesMax - tries - 1 };
  return { status, ...(error && { error }), ...(cause !== null && { cause }), ...left };
}

/** Codes of jobs that deny policies keep from the credential of the worker that asked. */
export const deniedCodes: readonly string[] = ["SECRET_DENIED", "EVENT_DENIED"];
