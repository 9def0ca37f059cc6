import { type Static, Type } from "@sinclair/typebox";
import { compiled } from "../../../kit/explain.ts";
import { eventsText, eventText, keyField } from "../../../kit/stored-event.ts";
import { tracedFields } from "../../../kit/trace.ts";
import type { Job } from "../jobs/rules.ts";
import type { ReportBody } from "../workers/report-body.ts";

const lenient = { additionalProperties: true };

/** The answer of an endpoint; errors of its steps may be plain texts. */
const Answer = Type.Object(
  {
    status: Type.Union([Type.Literal("completed"), Type.Literal("yielded"), Type.Literal("failed")]),
    steps: Type.Optional(
      Type.Union([
        Type.Null(),
        Type.Array(
          Type.Object(
            {
              id: Type.String({ minLength: 1, maxLength: 1024 }),
              name: Type.String({ maxLength: 1024 }),
              type: Type.Optional(Type.Union([Type.Literal("invoke"), Type.Literal("compensate")])),
              status: Type.Union([Type.Literal("completed"), Type.Literal("failed")]),
              error: Type.Optional(Type.Unknown()),
            },
            lenient,
          ),
        ),
      ]),
    ),
    result: Type.Optional(Type.Unknown()),
    yield: Type.Optional(Type.Unknown()),
    yields: Type.Optional(Type.Unknown()),
    error: Type.Optional(Type.Unknown()),
    compensations: Type.Optional(Type.Integer({ minimum: 0 })),
    on_failure: Type.Optional(Type.Boolean()),
    compensations_failed: Type.Optional(Type.Integer({ minimum: 0 })),
    nondeterminism: Type.Optional(Type.Unknown()),
    attributes: Type.Optional(Type.Unknown()),
    logs: Type.Optional(Type.Unknown()),
    log_lost: Type.Optional(Type.Unknown()),
    log_seen: Type.Optional(Type.Unknown()),
  },
  lenient,
);

const check = compiled(() => Answer);

/** The answer as the body of a worker's report; undefined when it is malformed. */
export function reportOfAnswer(answer: unknown, job: Job): Record<string, unknown> | undefined {
  if (!check().Check(answer)) return undefined;
  const { status, steps, result, yield: yielded, error, ...own } = answer as Static<typeof Answer>;
  const { compensations, on_failure, compensations_failed, nondeterminism, attributes } = own;
  return {
    status,
    execution_seq: job.executionSeq,
    lease_token: job.leaseToken,
    step_offset: job.stepSequenceBase,
    steps: (steps ?? []).map(({ error: stepError, type = "invoke", ...step }) => ({
      ...step,
      type,
      ...(stepError !== undefined && stepError !== null && { error: errorOf(stepError) }),
    })),
    ...(status === "completed" && { output: result ?? null }),
    ...(status === "failed" && { error: errorOf(error) }),
    ...(yielded !== undefined && yielded !== null && { yield: yielded }),
    ...(own.yields !== undefined && { yields: own.yields }),
    ...(compensations !== undefined && { compensations }),
    ...(on_failure !== undefined && { on_failure }),
    ...(compensations_failed !== undefined && { compensations_failed }),
    ...(nondeterminism !== undefined && { nondeterminism }),
    ...(attributes !== undefined && { attributes }),
    ...{ logs: own.logs, log_lost: own.log_lost, log_seen: own.log_seen },
  };
}

/** The report for a job whose endpoint gave no answer to report. */
export const failureReport = (job: Job, error: NonNullable<ReportBody["error"]>): ReportBody => ({
  status: "failed",
  execution_seq: job.executionSeq,
  lease_token: job.leaseToken,
  error,
});

function errorOf(error: unknown): Record<string, unknown> {
  if (typeof error === "string") return { message: error };
  if (typeof error !== "object" || error === null) return { message: "the endpoint gave no reason" };
  const { message, name, code, stack, retryable, cause, errors } = error as Record<string, unknown>;
  const { step_id, exhausted } = error as Record<string, unknown>;
  return {
    message: typeof message === "string" ? message : "the endpoint gave no reason",
    ...(typeof name === "string" && { name }),
    ...(typeof code === "string" && { code }),
    ...(typeof stack === "string" && { stack }),
    ...(typeof retryable === "boolean" && { retryable }),
    ...{ cause, errors },
    ...(exhausted === true && typeof step_id === "string" && { exhausted, step_id }),
  };
}

/**
 * The result that the run waited for, when it is the last step: older handlers read it here instead of among
 * the steps. A failed invoke has no result; its step has the error.
 */
function resumeText(job: Job): string {
  const last = job.completedSteps.at(-1);
  if (!last || last.type === "invoke" || last.type === "compensate") return "";
  if (last.status !== "completed" && last.on_timeout === null) return "";
  const head = JSON.stringify({ step_id: last.step_id, type: last.type });
  return `,"resume":${head.slice(0, -1)},"data":${last.output ?? "null"}}`;
}

/**
 * The request's body. Payloads are inserted as their stored JSON text. `compensates`: the endpoint is called
 * once more at the run's end, to undo it. `openWaits`: it may answer all that its handler waits for.
 */
export function requestBody(
  job: Job,
  { compensates, openWaits }: { compensates: boolean; openWaits: boolean },
): string {
  const { event } = job;
  const head = {
    run_id: job.runId,
    function_id: job.functionId,
    attempt: job.attempt,
    ...(job.logSeen > 0 && { log_seen: job.logSeen }),
    ...(job.secrets && { secrets: job.secrets }),
    ...(job.trace && { context: tracedFields(job) }),
    ...(job.sequence !== undefined && { sequence: job.sequence }),
    ...(compensates && { compensates }),
    ...(openWaits && { open_waits: true }),
    ...(job.compensating && { compensating: job.compensating }),
  };
  // Older handlers refuse metadata that is null.
  const eventJson = eventText(event, keyField(event), "absent");
  const steps = job.completedSteps.map(
    (step) =>
      `{"id":${JSON.stringify(step.step_id)},"name":${JSON.stringify(step.name)},"status":"${step.status}","output":${
        step.output ?? "null"
      }${step.error === null ? "" : `,"error":${JSON.stringify(step.error)}`}${step.is_kept ? `,"kept":true` : ""}}`,
  );
  const resume = resumeText(job);
  return `${JSON.stringify(head).slice(0, -1)},"event":${eventJson}${eventsText(job.events, "absent")},"steps":[${steps.join(",")}]${resume}}`;
}
