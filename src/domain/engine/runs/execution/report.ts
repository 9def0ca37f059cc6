import type { Instant } from "../../../../kit/clock.ts";
import type { AttributeChange } from "../../attributes/rules.ts";
import type { LogChunk, NewLines } from "../../logs/rules.ts";
import { type Match, storedMatch } from "../../waits/rules.ts";
import { notedFailures, type ReportedFailure } from "../attempts.ts";
import { unresolvedMatch } from "../rules.ts";
import type { Fence, PutOff, RunEnding, RunError, StepError, StepType } from "../run.ts";
import { behindAll } from "./commit-reports.ts";
import {
  type AwaitedStep,
  type ExecutionChange,
  type NewStep,
  nameOfCondition,
  type PendingStep,
  type ReportOutcome,
  type StoredCondition,
  type Yielded,
} from "./execution-change.ts";

/** A worker's report of a run it holds, from any protocol. */
export interface RunReport extends Fence {
  environmentId: string;
  outcome: ReportOutcome;
  /** Everything that the handler waits for; the outcome is `progress`. */
  waits?: readonly AwaitedStep[];
  steps: readonly ReportedStep[];
  /** Run-wide index of `steps[0]`; absent when the worker does not count. */
  stepOffset: number | undefined;
  /**
   * The worker understands failed steps in its list of completed ones. Without that a failed invoke fails the
   * run.
   */
  takesFailedSteps?: boolean;
  /** From workers that understand compensating jobs. */
  undo?: ReportedUndo;
  /** The run continues only when this is stored. */
  isAwaited?: boolean;
  /** What the run is found by from here on. */
  attributes?: readonly AttributeChange[];
  /** Steps that failed, in order, also those that then completed. */
  failures?: readonly ReportedFailure[];
  /** What the handler wrote. */
  logs?: LogChunk;
}

export interface ReportedUndo {
  /** Compensations that the handler has registered. */
  count: number;
  /** The function handles its failures. */
  onFailure: boolean;
  /** In the last report of a compensating job: how many compensations failed for good. */
  failed: number | null;
}

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
  /** Of a failed step that is tried by itself: `at` is when it is tried next. */
  retry: { tries: number; triesMax: number; at: Instant } | null;
}

/**
 * Whether a failed attempt is retried, by the retry policy of the pinned definition; and what becomes of a
 * run that is undone before it ends.
 */
export type RetryDecision =
  | { retryAt: Instant; inMs: number; attempt: number }
  | { undo: RunEnding; at: Instant; until: Instant | null; functionId: string | null }
  | { undone: RunEnding; failed: number | null }
  | "ends";

/** The report of a run whose attributes cannot be stored: the run fails by that, unless it fails anyway. */
export function withoutAttributes({ attributes: _, ...report }: RunReport, message: string): RunReport {
  if (report.outcome.kind === "failed") return report;
  const error = { message, code: "ATTRIBUTE_REFUSED", retryable: false };
  return { ...report, outcome: { kind: "failed", error } };
}

/** What a report is read with. */
export interface ReportContext {
  /** Of a failed report, and of a wait that no event could match. */
  decision: RetryDecision;
  /**
   * Data of the run's triggering event, for a wait that compares with it; undefined when the event is gone.
   */
  triggerData: unknown;
  /** Why the wait cannot begin. */
  refused?: RunError | undefined;
  /** Of its lines, those that are stored. */
  lines?: NewLines | undefined;
}

/** What a report changes: a pure decision, without the store. Its history has each try of a failed step. */
export function toExecutionChange(report: RunReport, context: ReportContext): ExecutionChange {
  const change = changeOf(report, context);
  const { failures = [] } = report;
  if (failures.length === 0 || change.historyType === null) return change;
  const detail = { ...JSON.parse(change.historyDetail), failed: notedFailures(failures) };
  return { ...change, historyDetail: JSON.stringify(detail) };
}

function changeOf(
  report: RunReport,
  { decision, triggerData, refused, lines }: ReportContext,
): ExecutionChange {
  const { outcome, stepOffset } = report;
  const base: ExecutionChange = {
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
    pending: null,
    undo: report.undo ? { ...noUndo, count: report.undo.count } : null,
    attributes: report.attributes ?? null,
    errorGroup: null,
    logs: lines ?? null,
  };
  switch (outcome.kind) {
    case "progress":
      if (report.steps.length === 0) return { ...base, wakeAt: outcome.leaseUntil };
      return { ...noted(base, "run.progress"), wakeAt: outcome.leaseUntil };
    case "completed":
      return { ...noted(base, "run.completed"), ends: "completed", output: outcome.output };
    case "failed":
      if (decision === "ends")
        return {
          ...noted(base, "run.failed", { error: outcome.error }),
          ends: "failed",
          error: JSON.stringify(outcome.error),
        };
      if ("undo" in decision) return compensating(base, decision);
      if ("undone" in decision) return undone(base, decision);
      return {
        ...noted(base, "run.retrying", {
          error: outcome.error,
          attempt: decision.attempt,
          retry_in_ms: decision.inMs,
        }),
        next: "retrying",
        wakeAt: decision.retryAt,
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
    case "retry_step":
      return {
        ...noted(base, "run.retrying", { step_id: outcome.stepId, until: outcome.until }),
        next: "retrying",
        wakeAt: outcome.until,
        waitingStepId: outcome.stepId,
      };
    case "wait": {
      const match = storedMatch(outcome.match, triggerData);
      if (match === undefined) return unresolved(base, report, outcome, unmatched(outcome), decision);
      const wanted = { kind: "event" as const, name: outcome.eventName, match };
      return waitingFor(base, report, outcome, wanted, "waiting");
    }
    case "wait_many": {
      if (refused) return unresolved(base, report, outcome, refused, decision);
      const conditions: StoredCondition[] = [];
      for (const condition of outcome.conditions) {
        const match = "state" in condition ? undefined : storedMatch(condition.match, triggerData);
        if ("state" in condition) conditions.push(condition);
        else if (match) conditions.push({ ...condition, match });
        else return unresolved(base, report, outcome, unmatched(condition), decision);
      }
      const kind = conditions.every((one) => "state" in one) ? ("states" as const) : ("events" as const);
      const wanted = { kind, mode: outcome.mode, conditions };
      return waitingFor(base, report, { ...outcome, input: null }, wanted, "waiting");
    }
    case "invoke": {
      const kind = outcome.isAsync ? ("invoke_async" as const) : ("invoke" as const);
      const { functionId, anyFunction } = outcome;
      return waitingFor(base, report, outcome, { kind, functionId, anyFunction }, "invoking");
    }
  }
}

const noUndo = { count: null, ending: null, until: null, cause: null, failed: null, functionId: null };

/** The run goes back to its queue, to be undone by any of its workers. */
const compensating = (
  base: ExecutionChange,
  { undo: ending, at, until, functionId }: Extract<RetryDecision, { undo: RunEnding }>,
): ExecutionChange => ({
  ...noted(base, "run.compensating", { ending }),
  next: "queued",
  wakeAt: at,
  undo: { ...noUndo, ...base.undo, ending: JSON.stringify(ending), until, functionId },
});

/** The run ends as it was to end before it was undone. */
const undone = (
  base: ExecutionChange,
  { undone: { status, error, cause }, failed }: Extract<RetryDecision, { undone: RunEnding }>,
): ExecutionChange => ({
  ...noted(base, `run.${status}`, {
    error,
    ...(cause !== null && { cause }),
    compensation_failed: failed ?? 0,
  }),
  ends: status,
  error: error && JSON.stringify(error),
  undo: { ...noUndo, cause, failed },
});

function waitingFor(
  base: ExecutionChange,
  report: RunReport,
  outcome: Yielded & { timeoutAt: Instant; input: string | null; onTimeout?: "null" | "throw" },
  wanted: PendingStep["for"],
  next: "waiting" | "invoking",
): ExecutionChange {
  const { stepId, timeoutAt } = outcome;
  const what = subjectOf(wanted);
  return {
    ...noted(base, `run.${next}`, { step_id: stepId, ...what, until: timeoutAt }),
    next,
    wakeAt: timeoutAt,
    waitingStepId: stepId,
    steps: base.steps.filter((step) => step.stepId !== stepId),
    pending: {
      stepId,
      name: outcome.name,
      sequence: placeOfYield(report),
      startedAt: outcome.at,
      timeoutAt,
      input: outcome.input,
      onTimeout: outcome.onTimeout ?? null,
      takesFailedSteps: report.takesFailedSteps ?? false,
      for: wanted,
    },
  };
}

/** What the history says that the run waits for. */
function subjectOf(wanted: PendingStep["for"]): object {
  if (wanted.kind === "event") return { event: wanted.name };
  if ("conditions" in wanted) return { events: wanted.conditions.map(nameOfCondition) };
  return { function_id: wanted.functionId };
}

const unmatched = ({ match }: { match: Match }): RunError =>
  unresolvedMatch(match.kind === "trigger" ? match.path : "");

/** A wait that nothing could end fails the run now, and not at its timeout. */
function unresolved(
  base: ExecutionChange,
  report: RunReport,
  outcome: Yielded,
  error: RunError,
  decision: RetryDecision,
): ExecutionChange {
  const step: NewStep = {
    ...yieldedStep(report, outcome),
    type: "wait_for_event",
    status: "failed",
    error: JSON.stringify(error),
    endedAt: outcome.at,
  };
  const steps = [...base.steps.filter(({ stepId }) => stepId !== outcome.stepId), step];
  if (typeof decision === "object" && "undo" in decision)
    return compensating({ ...base, steps }, { ...decision, undo: { ...decision.undo, error } });
  return {
    ...noted({ ...base, steps }, "run.failed", { error }),
    ends: "failed",
    error: JSON.stringify(error),
  };
}

/**
 * A job that never reached its worker returns to the queue without spending an attempt; with `putOff` it is
 * due later.
 */
export const toRelease = (
  fence: Fence & { environmentId: string },
  now: Instant,
  putOff?: PutOff,
): ExecutionChange => ({
  environmentId: fence.environmentId,
  runId: fence.runId,
  executionSeq: fence.executionSeq,
  leaseHash: fence.leaseHash,
  ends: null,
  next: "queued",
  wakeAt: putOff?.until ?? now,
  output: null,
  error: null,
  historyType: "run.released",
  historyDetail: JSON.stringify(putOff ?? {}),
  steps: [],
  stepsTop: 0,
  waitingStepId: null,
  pending: null,
  undo: null,
  attributes: null,
  errorGroup: null,
  logs: null,
});

/** History keeps the ids and statuses of reported steps; their outputs are in `steps`. */
function noted(change: ExecutionChange, type: string, more: Record<string, unknown> = {}): ExecutionChange {
  const steps = change.steps.map((step) => ({ step_id: step.stepId, status: step.status }));
  return {
    ...change,
    historyType: type,
    historyDetail: JSON.stringify(steps.length > 0 ? { ...more, steps } : more),
  };
}

const newStep = (report: RunReport, step: ReportedStep, at: number): NewStep => ({
  ...step,
  sequence: report.stepOffset === undefined ? behindAll(at) : report.stepOffset + at,
  error:
    step.error === null ? null : JSON.stringify(step.retry ? triedError(step.error, step.retry) : step.error),
  sleepUntil: step.retry?.at ?? null,
});

const triedError = (error: RunError, { tries, triesMax }: NonNullable<ReportedStep["retry"]>): StepError => ({
  ...error,
  tries,
  max_tries: triesMax,
});

/** Behind the steps that came with it. */
const placeOfYield = (report: RunReport): number =>
  behindAll(report.stepOffset === undefined ? report.steps.length : 0);

const yieldedStep = (report: RunReport, { stepId, name, at }: Yielded) => ({
  stepId,
  name,
  sequence: placeOfYield(report),
  output: null,
  error: null,
  startedAt: at,
  endedAt: null,
  durationMs: null,
  compensationFor: null,
  sleepUntil: null,
});

const sleepingStep = (report: RunReport, sleep: ReportOutcome & { kind: "sleep" }): NewStep => ({
  ...yieldedStep(report, sleep),
  type: "sleep",
  status: "sleeping",
  sleepUntil: sleep.until,
});
