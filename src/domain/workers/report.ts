import { type Static, Type } from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import { Fault, invalid } from "../../kit/fault.ts";
import { progressStepsMax } from "../../kit/limits.ts";
import type { ReportedStep, ReportOutcome, RunReport } from "../runs/report.ts";
import type { Fence, RunError } from "../runs/run.ts";
import { leaseHashOf, runOfJob, workerInstant } from "./job.ts";
import { jsonText, plainText } from "./texts.ts";
import { readYield, YieldShape } from "./yields.ts";

/** Workers of several generations send more fields than are read here. */
const lenient = { additionalProperties: true };

export const ErrorShape = Type.Object(
  {
    message: Type.String(),
    code: Type.Optional(Type.String()),
    stack: Type.Optional(Type.String()),
    retryable: Type.Optional(Type.Boolean()),
  },
  lenient,
);

/** Steps in one run at most, counted by the worker; every number of a report fits the column it goes to. */
const countMax = 10_000_000;
const int32Max = 2 ** 31 - 1;

export const StepShape = Type.Object(
  {
    id: Type.String({ minLength: 1, maxLength: 1024 }),
    name: Type.String({ maxLength: 1024 }),
    type: Type.Union([Type.Literal("invoke"), Type.Literal("compensate"), Type.Literal("sleep")]),
    status: Type.Union([Type.Literal("completed"), Type.Literal("failed")]),
    started_at: Type.Optional(Type.String()),
    ended_at: Type.Optional(Type.String()),
    duration_ms: Type.Optional(Type.Number()),
    output: Type.Optional(Type.Unknown()),
    error: Type.Optional(Type.Union([ErrorShape, Type.Null()])),
    compensation_for: Type.Optional(Type.String()),
  },
  lenient,
);

/** The two halves of the fence, as every assignment carries them; that they are there is checked by `readFence`. */
export const fenceFields = {
  execution_seq: Type.Optional(Type.Integer({ minimum: 0, maximum: int32Max })),
  lease_token: Type.Optional(Type.String()),
};

/** Fields of a job report (contract.md 1.8). */
export const reportFields = {
  ...fenceFields,
  status: Type.Union([
    Type.Literal("completed"),
    Type.Literal("failed"),
    Type.Literal("yielded"),
    Type.Literal("progress"),
  ]),
  output: Type.Optional(Type.Unknown()),
  error: Type.Optional(Type.Union([ErrorShape, Type.Null()])),
  steps: Type.Optional(Type.Union([Type.Array(StepShape), Type.Null()])),
  step_offset: Type.Optional(Type.Integer({ maximum: countMax })),
  yield: Type.Optional(Type.Union([YieldShape, Type.Null()])),
};

export const ackFields = { ...fenceFields, run_id: Type.Optional(Type.String()) };

export const Report = Type.Object(reportFields, lenient);
export type Report = Static<typeof Report>;

export interface ReportTarget {
  environmentId: string;
  jobId: string;
  now: number;
  leaseMs: number;
}

/** The proof a worker sends back; the job's id names the run. Throws what contract.md 1.10 names when there is none. */
export function readFence(
  jobId: string,
  sent: { execution_seq?: number | undefined; lease_token?: string | undefined },
): Fence {
  const job = runOfJob(jobId);
  if (!job) throw new Fault("not_found", `job ${jobId.slice(0, 100)} not found`);
  if (!sent.lease_token || sent.execution_seq === undefined)
    throw new Fault("invalid_argument", "execution_seq and lease_token of the assignment must be sent back", {
      code: "INCOMPATIBLE_PROTOCOL",
      field: sent.lease_token ? "execution_seq" : "lease_token",
    });
  return { runId: job.runId, executionSeq: sent.execution_seq, leaseHash: leaseHashOf(sent.lease_token) };
}

const check = TypeCompiler.Compile(Report);

/** For reports that come by other ways than a route of their own. Throws the fault that names the field. */
export function checkedReport(sent: unknown): Report {
  if (check.Check(sent)) return sent;
  const { path = "", message = "" } = check.Errors(sent).First() ?? {};
  throw invalid(path.slice(1).replaceAll("/", ".") || "report", message.toLowerCase());
}

/** Throws the fault that contract.md 1.10 names when the report cannot be taken. Changes nothing. */
export function readReport(report: Report, target: ReportTarget): RunReport {
  const fence = readFence(target.jobId, report);
  if (report.step_offset !== undefined && report.step_offset < 0)
    throw invalid("step_offset", "must not be negative");
  const given = report.steps ?? [];
  if (given.length > progressStepsMax) throw invalid("steps", `at most ${progressStepsMax} in one report`);
  return {
    ...fence,
    environmentId: target.environmentId,
    outcome: readOutcome(report, target, given.length),
    steps: readSteps(given),
    stepOffset: report.step_offset,
  };
}

function readOutcome(report: Report, { now, leaseMs }: ReportTarget, stepCount: number): ReportOutcome {
  switch (report.status) {
    case "progress":
      // Without steps it is a heartbeat of the lease; with steps it leaves the lease as it is (spec).
      return { kind: "progress", leaseUntil: stepCount === 0 ? now + leaseMs : null };
    case "completed":
      return { kind: "completed", output: jsonText("output", report.output) };
    case "failed":
      return { kind: "failed", error: readError(report.error) };
    case "yielded":
      return readYield(report.yield, now);
  }
}

function readSteps(given: NonNullable<Report["steps"]>): ReportedStep[] {
  // A step that failed and then completed within one report counts as it ended.
  const byId = new Map<string, ReportedStep>();
  for (const [at, step] of given.entries()) {
    byId.set(step.id, {
      stepId: plainText(`steps[${at}].id`, step.id),
      name: plainText(`steps[${at}].name`, step.name),
      type: step.type,
      status: step.status,
      output: step.status === "completed" ? jsonText(`steps[${at}].output`, step.output) : null,
      error: step.error ? readError(step.error) : null,
      startedAt: workerInstant(step.started_at),
      endedAt: workerInstant(step.ended_at),
      durationMs:
        step.duration_ms === undefined ? null : Math.min(int32Max, Math.max(0, Math.round(step.duration_ms))),
      compensationFor: plainText(`steps[${at}].compensation_for`, step.compensation_for ?? "") || null,
    });
  }
  return [...byId.values()];
}

function readError(error: Report["error"]): RunError {
  return {
    message: error?.message ?? "the worker gave no reason",
    ...(error?.code && { code: error.code }),
    ...(error?.stack && { stack: error.stack }),
    // A failure that does not say so may be retried; `false` is obeyed exactly (contract.md 4.4).
    retryable: error?.retryable ?? true,
  };
}
