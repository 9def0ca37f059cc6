import type { Instant } from "../../kit/clock.ts";
import type { Fence, RunError, StepType } from "./run.ts";
import { behindAll, type NewStep, type Settlement } from "./settle.ts";

/** What the holder of a run reports of it, whatever surface it came over. */
export interface RunReport extends Fence {
  environmentId: string;
  outcome: ReportOutcome;
  steps: readonly ReportedStep[];
  /** Run-wide index of `steps[0]`; absent when the worker does not count. */
  stepOffset: number | undefined;
}

export type ReportOutcome =
  /** Not over: steps are kept; `leaseUntil` set renews the lease. */
  | { kind: "progress"; leaseUntil: Instant | null }
  | { kind: "completed"; output: string }
  | { kind: "failed"; error: RunError }
  | { kind: "sleep"; stepId: string; name: string; until: Instant; at: Instant };

export interface ReportedStep {
  stepId: string;
  name: string;
  type: StepType;
  status: "completed" | "failed";
  /** JSON text; null for a failed step. */
  output: string | null;
  error: RunError | null;
  startedAt: Instant | null;
  endedAt: Instant | null;
  durationMs: number | null;
  compensationFor: string | null;
}

/** What a failed attempt comes to, decided by the retry policy of the pinned definition. */
export type Verdict = { retryAt: Instant; inMs: number; attempt: number } | "ends";

/** The settlement a report comes to; `verdict` is wanted for a failed one. */
export function toSettlement(report: RunReport, verdict: Verdict): Settlement {
  const { outcome, stepOffset } = report;
  const base: Settlement = {
    environmentId: report.environmentId,
    runId: report.runId,
    executionSeq: report.executionSeq,
    leaseHash: report.leaseHash,
    ends: null,
    next: "leased",
    wakeAt: null,
    output: null,
    error: null,
    historyType: null,
    historyDetail: "{}",
    steps: report.steps.map((step, at) => newStep(report, step, at)),
    stepsTop: stepOffset === undefined ? 0 : stepOffset + report.steps.length,
    waitingStepId: null,
  };
  switch (outcome.kind) {
    case "progress":
      if (report.steps.length === 0) return { ...base, wakeAt: outcome.leaseUntil };
      return { ...noted(base, "run.progress"), wakeAt: outcome.leaseUntil };
    case "completed":
      return { ...noted(base, "run.completed"), ends: "completed", output: outcome.output };
    case "failed":
      if (verdict === "ends")
        return {
          ...noted(base, "run.failed", { error: outcome.error }),
          ends: "failed",
          error: JSON.stringify(outcome.error),
        };
      return {
        ...noted(base, "run.retrying", {
          error: outcome.error,
          attempt: verdict.attempt,
          retry_in_ms: verdict.inMs,
        }),
        next: "retrying",
        wakeAt: verdict.retryAt,
      };
    case "sleep":
      return {
        ...noted(base, "run.slept", { step_id: outcome.stepId, until: outcome.until }),
        next: "sleeping",
        wakeAt: outcome.until,
        waitingStepId: outcome.stepId,
        steps: [
          ...base.steps.filter((step) => step.stepId !== outcome.stepId),
          sleepingStep(report, outcome),
        ],
      };
  }
}

/** A job that never reached its worker goes back to the queue: no attempt is spent. */
export const toRelease = (fence: Fence & { environmentId: string }, now: Instant): Settlement => ({
  environmentId: fence.environmentId,
  runId: fence.runId,
  executionSeq: fence.executionSeq,
  leaseHash: fence.leaseHash,
  ends: null,
  next: "queued",
  wakeAt: now,
  output: null,
  error: null,
  historyType: "run.released",
  historyDetail: "{}",
  steps: [],
  stepsTop: 0,
  waitingStepId: null,
});

/** History keeps which steps a report brought and how they went; their outputs stand in `steps`. */
function noted(settlement: Settlement, type: string, more: Record<string, unknown> = {}): Settlement {
  const steps = settlement.steps.map((step) => ({ step_id: step.stepId, status: step.status }));
  return {
    ...settlement,
    historyType: type,
    historyDetail: JSON.stringify(steps.length > 0 ? { ...more, steps } : more),
  };
}

const newStep = (report: RunReport, step: ReportedStep, at: number): NewStep => ({
  ...step,
  sequence: report.stepOffset === undefined ? behindAll(at) : report.stepOffset + at,
  error: step.error === null ? null : JSON.stringify(step.error),
  sleepUntil: null,
});

const sleepingStep = (report: RunReport, sleep: ReportOutcome & { kind: "sleep" }): NewStep => ({
  stepId: sleep.stepId,
  name: sleep.name,
  type: "sleep",
  sequence: behindAll(report.stepOffset === undefined ? report.steps.length : 0),
  status: "sleeping",
  output: null,
  error: null,
  startedAt: sleep.at,
  endedAt: null,
  durationMs: null,
  compensationFor: null,
  sleepUntil: sleep.until,
});
