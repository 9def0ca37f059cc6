import type { SvcError } from "./errors.ts";
import { execute } from "./execute.ts";
import type { SvcFunction } from "./function.ts";
import { JobReports, type JobReportsOptions } from "./job-reports.ts";
import type { Lease } from "./lease.ts";
import type { ExecutionHost } from "./step.ts";
import type { CompletedStep } from "./wire.ts";

export interface JobOptions
  extends Pick<JobReportsOptions, "assignment" | "courier" | "checkpointMs" | "log"> {
  /** Undefined when this worker does not know the function. */
  target: SvcFunction | undefined;
  lease: Lease;
  /** A unary RPC, made for this run. */
  call: <Answer>(runId: string, method: string, message: unknown) => Promise<Answer>;
  /** The handler is over and its last report is on its way: room for another job. */
  onRoom: () => void;
}

/** One execution of a run, from assignment to its last report. */
export interface Job {
  readonly jobId: string;
  readonly startedAt: string;
  /** Resolves when nothing is left to do for it; never rejects. */
  readonly done: Promise<void>;
  /** Raises the handler's signal; nothing is reported from here on. */
  abandon(reason: SvcError): void;
}

export function startJob(options: JobOptions): Job {
  const { assignment, target, courier, lease, call, checkpointMs, log, onRoom } = options;
  const { job_id: jobId, run_id: runId } = assignment;
  const startedAt = new Date().toISOString();
  const memos = new Map<string, CompletedStep>();
  for (const step of assignment.completed_steps) memos.set(step.step_id, step);
  let controller: AbortController | undefined;
  const reports = new JobReports({
    assignment,
    courier,
    checkpointMs,
    log,
    onLost: (reason) => controller?.abort(reason),
    onLastReport: onRoom,
  });

  const host: ExecutionHost = {
    requireHeld: reports.requireHeld,
    memo: (stepId) => memos.get(stepId),
    sure: () => lease.sure()?.catch(reports.failed).then(reports.requireHeld),
    record: (text) => reports.record(text),
    signal() {
      controller ??= new AbortController();
      if (reports.lost) controller.abort(reports.lost);
      return controller.signal;
    },
    now: Date.now,
    call: (method, message) => call(runId, method, message),
  };

  async function perform(): Promise<void> {
    if (!target) {
      const message = `this worker has no function ${assignment.function_id}`;
      return reports.endFailed({ message, code: "FUNCTION_NOT_FOUND", retryable: false });
    }
    const end = await execute(target, assignment, host, log);
    if (reports.lost) return;
    switch (end.status) {
      case "yielded":
        return reports.endYielded(end.yield);
      case "completed":
        return reports.endCompleted(end.outputText);
      case "failed":
        log.warn("run failed", { runId, attempt: assignment.attempt, reason: end.error.message });
        return reports.endFailed(end.error);
    }
  }

  const done = perform()
    .catch((error) => log.error("a job broke", { runId, reason: String(error) }))
    .then(() => {
      onRoom();
      if (reports.lost)
        log.warn("run dropped", { runId, code: reports.lost.code, reason: reports.lost.message });
    });
  return { jobId, startedAt, done, abandon: (reason) => reports.abandon(reason) };
}
