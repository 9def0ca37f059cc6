import { logFailedAttempt } from "../steps/attempts.ts";
import { execute } from "../steps/execute.ts";
import { type ExecutionHost, retryPauseMsMax } from "../steps/step-host.ts";
import type { SvcFunction } from "../steps/svc-function.ts";
import { reportedError, type SvcError } from "../wire/errors.ts";
import { pause } from "../wire/retry.ts";
import { foldedStack } from "../wire/stack.ts";
import type { callForRun } from "../wire/transport.ts";
import { type CompletedStep, traceparentsOf } from "../wire/wire.ts";
import { JobReporter, type JobReporterOptions } from "./job-reporter.ts";
import type { Lease } from "./lease.ts";
import { OutputSender } from "./output-sender.ts";

export interface JobOptions
  extends Pick<JobReporterOptions, "assignment" | "courier" | "checkpointMs" | "log"> {
  /** Undefined when this worker does not know the function. */
  target: SvcFunction | undefined;
  lease: Lease;
  /** The server hands out runs of the function to be undone. */
  isUndoneLater: boolean;
  /** The server takes all that a handler waits for. */
  takesWaits: () => boolean;
  /** What handlers write to `console` is kept with their runs. */
  keepsConsole: boolean;
  /** A unary RPC, made for this run. */
  call: ReturnType<typeof callForRun>;
  /** The handler is over and its last report is on its way: room for another job. */
  onRoom: () => void;
}

/** One execution of a run, from assignment to its last report. */
export type RunningJob = ReturnType<typeof startJob>;

export function startJob(options: JobOptions) {
  const { assignment, target, courier, lease, call, checkpointMs, isUndoneLater, log, onRoom } = options;
  const { job_id: jobId, run_id: runId } = assignment;
  const startedAt = new Date().toISOString();
  const memos = new Map<string, CompletedStep>();
  for (const step of assignment.completed_steps) memos.set(step.step_id, step);
  const traceparents = traceparentsOf(assignment);
  let controller: AbortController | undefined;
  const reporter = new JobReporter({
    assignment,
    courier,
    checkpointMs,
    onFailure: isUndoneLater && target?.onFailure !== undefined,
    log,
    onLost: (reason) => controller?.abort(reason),
    onLastReport: onRoom,
  });

  let outputs: OutputSender | undefined;
  const writeOf = (method: string, message: unknown) => call({ runId }, method, message);
  const host: ExecutionHost = {
    output(name, source, chunk) {
      outputs ??= new OutputSender({ assignment, call: writeOf, log });
      return outputs.write(name, source, chunk);
    },
    requireHeld: reporter.requireHeld,
    memo: (stepId) => memos.get(stepId),
    stored: () => assignment.completed_steps,
    sure: () => lease.sure()?.catch(reporter.failed).then(reporter.requireHeld),
    record: (text) => reporter.record(text),
    set: (attributes) => reporter.set(attributes),
    write: (line) => reporter.write(line),
    keepsConsole: options.keepsConsole,
    signal() {
      controller ??= new AbortController();
      if (reporter.over) controller.abort(reporter.over);
      return controller.signal;
    },
    now: Date.now,
    sleptType: "sleep",
    pause: (ms) => pause(ms, host.signal()).then(reporter.requireHeld),
    // Servers that hand out runs to be undone keep the tries of steps as well.
    pauseMsMax: isUndoneLater ? retryPauseMsMax : Number.POSITIVE_INFINITY,
    traceparent: traceparents,
    call: (method, message, options) =>
      call({ runId, traceparent: traceparents() }, method, message, options),
    ...(isUndoneLater && { undoes: (count, isKnown) => reporter.undoes(count, isKnown) }),
  };

  async function perform(): Promise<void> {
    if (!target) {
      const message = `this worker has no function ${assignment.function_id}`;
      return reporter.endFailed({ message, code: "FUNCTION_NOT_FOUND", retryable: false });
    }
    const end = await execute(target, assignment, host, log);
    // Behind the last report the fence holds no more.
    await outputs?.flush();
    if (reporter.over) return reporter.handIn();
    if (end.deviations) reporter.deviates(end.deviations);
    switch (end.status) {
      case "yielded":
        return reporter.endYielded(end.yield, options.takesWaits() ? end.yields : undefined);
      case "completed":
        return reporter.endCompleted(end.outputText);
      case "failed":
        if (end.compensationsFailed === undefined)
          logFailedAttempt(log, { target, end, run: { runId, ...assignment } });
        else log.info("run undone", { runId, compensationsFailed: end.compensationsFailed });
        return reporter.endFailed(end.error, end.compensationsFailed);
    }
  }

  const done = perform()
    .catch((thrown) => {
      const error = reportedError(thrown, foldedStack);
      log.error("a job broke", { runId, reason: error.message });
      // Without a report the run would be handed out again and again, and spend no attempt.
      return reporter.endFailed(error);
    })
    .catch((thrown) => log.error("a job was not reported", { runId, reason: reportedError(thrown).message }))
    .then(() => {
      onRoom();
      if (reporter.lost)
        log.warn("run dropped", { runId, code: reporter.lost.code, reason: reporter.lost.message });
    });
  return {
    jobId,
    startedAt,
    /** Resolves when nothing is left to do for it; never rejects. */
    done,
    /** Raises the handler's signal; nothing is reported from here on. */
    abandon: (reason: SvcError) => reporter.abandon(reason),
    /** Raises the handler's signal; what the run has to undo is still handed in. */
    end: (reason: SvcError) => reporter.end(reason),
  };
}
