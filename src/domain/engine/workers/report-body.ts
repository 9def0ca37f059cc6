import { type Static, Type } from "@sinclair/typebox";
import { maybe, shape } from "../../../kit/described.ts";
import { checker } from "../../../kit/explain.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { sleepMsMax } from "../../../kit/limits.ts";
import { requireStepId, stepIdBytesMax } from "../../../kit/step-id.ts";
import { ReportedAttributes, readReported } from "../attributes/rules.ts";
import { leaseHashOf, runOfJob, workerInstant } from "../jobs/rules.ts";
import { attemptLinesMax, lineBytesMax, readLogs } from "../logs/rules.ts";
import type { ReportedFailure } from "../runs/attempts.ts";
import type { ReportOutcome } from "../runs/execution/execution-change.ts";
import type { ReportedStep, RunReport } from "../runs/execution/report.ts";
import type { DeviatingStep, Fence, RunError } from "../runs/run.ts";
import { deviationsMax, openWaitsMax, progressStepsMax, stepTriesMax } from "./limits.ts";
import { errorTexts, jsonText, plainText } from "./texts.ts";
import { AwaitedShape, readYield, readYields, YieldShape } from "./yields.ts";

/** Workers of other versions send fields that this server does not read. */
const lenient = { additionalProperties: true };

export const ErrorShape = Type.Object(
  {
    message: shape.text("For people: what went wrong."),
    name: maybe.text("Of its class; left out for `Error`."),
    code: maybe.text("A word that programs compare."),
    stack: maybe.text("Where the handler threw."),
    retryable: Type.Optional(Type.Boolean()),
    cause: Type.Optional(
      Type.Unknown({
        description: "What led to it: an error of the same fields, or a text; at most five levels.",
      }),
    ),
    errors: Type.Optional(
      Type.Unknown({ description: "Errors of an AggregateError: a list of such errors." }),
    ),
    step_id: maybe.text("Id of the step that threw it."),
    exhausted: maybe.flag("That step was tried as often as it may be: a resume tries it anew."),
  },
  lenient,
);

/** Limits of numbers that workers send, so that each fits its column. */
const countMax = 10_000_000;
const int32Max = 2 ** 31 - 1;

export const StepShape = Type.Object(
  {
    id: Type.String({
      minLength: 1,
      maxLength: stepIdBytesMax,
      description: "Id of the step, unique in its run.",
    }),
    name: Type.String({ maxLength: 1024, description: "What the handler calls the step." }),
    type: Type.Union([Type.Literal("invoke"), Type.Literal("compensate"), Type.Literal("sleep")], {
      description: "What the step is.",
    }),
    status: Type.Union([Type.Literal("completed"), Type.Literal("failed")], {
      description: "How the step ended.",
    }),
    started_at: Type.Optional(Type.String()),
    ended_at: Type.Optional(Type.String()),
    duration_ms: Type.Optional(Type.Number()),
    output: Type.Optional(Type.Unknown({ description: "Result of the step: any JSON." })),
    error: Type.Optional(
      Type.Union([ErrorShape, Type.Null()], { description: "What the step failed with." }),
    ),
    compensation_for: Type.Optional(Type.String()),
    tries: maybe.number(
      `How often a failed step was tried that its worker tries by itself: at most ${stepTriesMax}.`,
    ),
    max_tries: maybe.number(`How often that step may be tried: at most ${stepTriesMax}.`),
    retry_in_ms: maybe.number("Milliseconds until that step is tried again; left out after the last time."),
  },
  lenient,
);

/**
 * The fence that every assignment carries. Optional here, because `readFence` refuses a missing one with its
 * own error code.
 */
export const fenceFields = {
  execution_seq: Type.Optional(Type.Integer({ minimum: 0, maximum: int32Max })),
  lease_token: Type.Optional(Type.String()),
};

const DeviationShape = Type.Object(
  {
    step_id: Type.String({ minLength: 1, maxLength: stepIdBytesMax, description: "Id of the stored step." }),
    name: Type.String({ maxLength: 1024, description: "What the handler called the step." }),
    kind: Type.Union([Type.Literal("unreached"), Type.Literal("order")], {
      description: "Whether it was not come to, or in another order.",
    }),
  },
  lenient,
);

/** Fields of a job report. */
export const reportFields = {
  ...fenceFields,
  status: Type.Union(
    [Type.Literal("completed"), Type.Literal("failed"), Type.Literal("yielded"), Type.Literal("progress")],
    { description: "What became of the job, so far." },
  ),
  output: Type.Optional(Type.Unknown({ description: "What the function returned: any JSON." })),
  error: Type.Optional(
    Type.Union([ErrorShape, Type.Null()], { description: "What the attempt failed with." }),
  ),
  steps: Type.Optional(
    Type.Union([Type.Array(StepShape), Type.Null()], {
      description: "Steps that ended, in order: at most 500.",
    }),
  ),
  step_offset: Type.Optional(
    Type.Integer({ maximum: countMax, description: "How many steps of the job were reported before these." }),
  ),
  yield: Type.Optional(
    Type.Union([YieldShape, Type.Null()], { description: "What the run waits for, of status `yielded`." }),
  ),
  yields: Type.Optional(
    Type.Array(AwaitedShape, {
      minItems: 1,
      maxItems: openWaitsMax,
      description: `All that the handler waits for, in place of \`yield\`: at most ${openWaitsMax}. Taken while the answer to the registration says so.`,
    }),
  ),
  compensations: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: countMax,
      description:
        "Compensations that the handler has registered; from workers that undo runs when they are asked to.",
    }),
  ),
  on_failure: maybe.flag("The function handles its failures."),
  compensations_failed: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: countMax,
      description: "Of the last report of a run that is undone: compensations that failed for good.",
    }),
  ),
  nondeterminism: Type.Optional(
    Type.Array(DeviationShape, {
      maxItems: deviationsMax,
      description: "Of a last report: stored steps that the handler did not come to as before.",
    }),
  ),
  awaited: maybe.flag("The run goes on only when this is stored: it waits less for reports of others."),
  attributes: Type.Optional(ReportedAttributes),
  logs: Type.Optional(
    Type.Unknown({
      description: `Lines that the handler wrote, in order: \`{at, level, text, fields, step}\`, at most ${lineBytesMax} bytes each and ${attemptLinesMax} an attempt. What does not fit is left out and counted.`,
    }),
  ),
  log_offset: Type.Optional(
    Type.Unknown({ description: "How many lines of the job were reported before these." }),
  ),
  log_seen: Type.Optional(
    Type.Unknown({
      description:
        "How many lines outside of steps the handler has come to, with those that the assignment's `log_seen` counts.",
    }),
  ),
  log_lost: Type.Optional(
    Type.Unknown({ description: "How many lines of the job its worker has left out so far." }),
  ),
};

export const ackFields = { ...fenceFields, run_id: Type.Optional(Type.String()) };

export const ReportBody = Type.Object(reportFields, lenient);
export type ReportBody = Static<typeof ReportBody>;

/** Throws the fault that names the malformed field. */
export const checkReport = checker(ReportBody);

/**
 * A last report has all steps that are not stored yet, so its limit is higher than that of `progress`. It
 * keeps one report from occupying the store for long.
 */
export const lastStepsMax = 10_000;

export interface ReportTarget {
  environmentId: string;
  jobId: string;
  now: number;
  leaseMs: number;
}

const isFenceNumber = (seq: number): boolean => Number.isInteger(seq) && seq >= 0 && seq <= int32Max;

/**
 * The fence of a message about a job. Throws `not_found` for an id that is no job id, `INCOMPATIBLE_PROTOCOL`
 * without a fence.
 */
export function readFence(jobId: string, sent: { execution_seq?: unknown; lease_token?: unknown }): Fence {
  const job = runOfJob(jobId);
  if (!job) throw new Fault("not_found", `job ${jobId.slice(0, 100)} not found`);
  const { execution_seq: executionSeq, lease_token: token } = sent;
  const isToken = typeof token === "string" && token !== "";
  if (!isToken || typeof executionSeq !== "number" || !isFenceNumber(executionSeq))
    throw new Fault(
      "invalid_argument",
      "execution_seq and lease_token are required, as the assignment had them",
      {
        code: "INCOMPATIBLE_PROTOCOL",
        field: isToken ? "execution_seq" : "lease_token",
      },
    );
  return { runId: job.runId, executionSeq, leaseHash: leaseHashOf(token) };
}

/** A report as the store takes it. Throws the fault that names the first invalid field. */
export function readReport(report: ReportBody, target: ReportTarget): RunReport {
  const fence = readFence(target.jobId, report);
  if (report.step_offset !== undefined && report.step_offset < 0)
    throw invalid("step_offset", "must not be negative");
  const given = report.steps ?? [];
  const stepsMax = report.status === "progress" ? progressStepsMax : lastStepsMax;
  if (given.length > stepsMax)
    throw invalid("steps", `at most ${stepsMax} in one report with status ${report.status}`);
  const logs = readLogs(report, target.now);
  return {
    ...fence,
    environmentId: target.environmentId,
    ...(report.status === "yielded" && report.yields
      ? { outcome: { kind: "progress", leaseUntil: null }, waits: readYields(report.yields, target.now) }
      : { outcome: readOutcome(report, target, given.length) }),
    ...readSteps(given, target.now),
    ...(logs && { logs }),
    ...(report.attributes !== undefined && { attributes: readReported(report.attributes) }),
    stepOffset: report.step_offset,
    ...(report.awaited && { isAwaited: true }),
    ...(report.compensations !== undefined && {
      undo: {
        count: report.compensations,
        onFailure: report.on_failure ?? false,
        failed: report.compensations_failed ?? null,
      },
    }),
  };
}

/** Undefined for none, as in the reports of nearly all runs. */
export const readDeviations = ({ nondeterminism }: ReportBody): DeviatingStep[] | undefined =>
  nondeterminism?.map(({ step_id, name, kind }, at) => ({
    stepId: plainText(`nondeterminism[${at}].step_id`, step_id),
    name: plainText(`nondeterminism[${at}].name`, name),
    kind,
  }));

function readOutcome(report: ReportBody, { now, leaseMs }: ReportTarget, stepCount: number): ReportOutcome {
  switch (report.status) {
    case "progress":
      // Without steps the report renews the lease, as a heartbeat does. With steps it leaves the lease as it
      // is.
      return { kind: "progress", leaseUntil: stepCount === 0 ? now + leaseMs : null };
    case "completed":
      return { kind: "completed", output: jsonText("output", report.output) };
    case "failed":
      return { kind: "failed", error: readError(report.error) };
    case "yielded":
      return readYield(report.yield, now);
  }
}

function readSteps(
  given: NonNullable<ReportBody["steps"]>,
  now: number,
): Pick<RunReport, "steps" | "failures"> {
  // Of several entries with one id the last counts: the step failed and then completed.
  const byId = new Map<string, ReportedStep>();
  const failures: ReportedFailure[] = [];
  for (const [at, step] of given.entries()) {
    const isTried = step.tries !== undefined && step.status === "failed";
    const retry = isTried ? readRetry(step, step.tries!, { at, now }) : null;
    const read: ReportedStep = {
      stepId: requireStepId(`steps[${at}].id`, plainText(`steps[${at}].id`, step.id)),
      name: plainText(`steps[${at}].name`, step.name),
      type: step.type,
      status: step.status,
      output: step.status === "completed" ? jsonText(`steps[${at}].output`, step.output) : null,
      error: step.error || retry ? readError(step.error) : null,
      startedAt: workerInstant(step.started_at),
      endedAt: workerInstant(step.ended_at),
      durationMs:
        step.duration_ms === undefined ? null : Math.min(int32Max, Math.max(0, Math.round(step.duration_ms))),
      compensationFor: plainText(`steps[${at}].compensation_for`, step.compensation_for ?? "") || null,
      retry,
    };
    byId.set(step.id, read);
    if (read.status === "failed") failures.push({ ...read, error: read.error ?? readError(step.error) });
  }
  return { steps: [...byId.values()], ...(failures.length > 0 && { failures }) };
}

/** After its last time a step is due at once: it is handed out, and not tried. */
function readRetry(step: Static<typeof StepShape>, tries: number, { at, now }: { at: number; now: number }) {
  const { max_tries: triesMax = tries, retry_in_ms: dueInMs = 0 } = step;
  const isCount = (value: number, least: number) =>
    Number.isInteger(value) && value >= least && value <= stepTriesMax;
  if (!isCount(tries, 1))
    throw invalid(`steps[${at}].tries`, `must be a whole number from 1 to ${stepTriesMax}`);
  if (!isCount(triesMax, tries))
    throw invalid(`steps[${at}].max_tries`, `must be a whole number from tries to ${stepTriesMax}`);
  if (!(dueInMs >= 0 && dueInMs <= sleepMsMax))
    throw invalid(`steps[${at}].retry_in_ms`, `must be from 0 to ${sleepMsMax}`);
  return { tries, triesMax, at: now + Math.round(dueInMs) };
}

function readError(error: ReportBody["error"]): RunError {
  return {
    ...errorTexts(error ?? {}),
    // Only an explicit `false` forbids a retry.
    retryable: error?.retryable ?? true,
    ...(error?.exhausted && error.step_id && { exhausted_step: error.step_id }),
  };
}
