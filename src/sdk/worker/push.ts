import { logFailedAttempt } from "../steps/attempts.ts";
import { deviationFields } from "../steps/deviations.ts";
import { type ExecutionInput, execute } from "../steps/execute.ts";
import { RunLines } from "../steps/run-lines.ts";
import type { ExecutionHost } from "../steps/step-host.ts";
import type { HandlerEvent, SvcFunction } from "../steps/svc-function.ts";
import type { ReportedAttributes } from "../wire/attributes.ts";
import { SvcError } from "../wire/errors.ts";
import { pause } from "../wire/retry.ts";
import type { callForRun } from "../wire/transport.ts";
import type { Logger } from "../wire/types.ts";
import { type Compensating, type CompletedStep, traceparentsOf } from "../wire/wire.ts";
import { awaitedText } from "./job-reporter.ts";

/** Of a larger answer no lines go along, in characters. */
const answerCharsMax = 4 * 1024 * 1024;

/** A request to an endpoint, as the server sends it. */
export interface PushRequest {
  run_id: string;
  function_id: string;
  attempt: number;
  log_seen?: number;
  max_attempts?: number;
  event: ExecutionInput["event"];
  /** Of a batch. */
  events?: ExecutionInput["event"][];
  steps: (Omit<CompletedStep, "step_id"> & { id: string })[];
  resume?: { step_id: string; type: string; data?: unknown };
  secrets: Record<string, string>;
  sequence?: string;
  context?: Pick<NonNullable<ExecutionInput["context"]>, "traceparent" | "step_spans">;
  /** The server calls once more to undo a run that ends. */
  compensates?: boolean;
  /** The server takes all that a handler waits for. */
  open_waits?: boolean;
  compensating?: Compensating;
}

/** The request is not one that the server would send; `code` and `status` go into the answer. */
export class PushFault extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const invalid = (message: string) => new PushFault(400, "VALIDATION_ERROR", message);

type Fields = Record<string, unknown>;
const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function text(fields: Fields, name: string, where = name): string {
  const value = fields[name];
  if (typeof value !== "string" || value === "") throw invalid(`${where}: a text is required`);
  return value;
}

/** Throws PushFault. Fields it does not know are left alone. */
export function readPush(body: string): PushRequest {
  let fields: unknown;
  try {
    fields = JSON.parse(body);
  } catch {
    throw new PushFault(400, "INVALID_JSON", "the body is not JSON");
  }
  if (!isObject(fields)) throw invalid("the body must be an object");
  const { attempt, max_attempts, event, events, steps, resume, secrets, sequence } = fields;
  const { compensates, compensating, context, open_waits, log_seen } = fields;
  if (!Number.isInteger(attempt) || (attempt as number) < 1) throw invalid("attempt: a whole number from 1");
  return {
    run_id: text(fields, "run_id"),
    function_id: text(fields, "function_id"),
    attempt: attempt as number,
    ...(Number.isInteger(max_attempts) && { max_attempts: max_attempts as number }),
    event: readEvent(event),
    ...(Array.isArray(events) && { events: events.map((one) => readEvent(one)) }),
    steps: readSteps(steps),
    ...(resume !== undefined && resume !== null && { resume: readResume(resume) }),
    secrets: readSecrets(secrets),
    ...(typeof sequence === "string" && { sequence }),
    ...(typeof log_seen === "number" && { log_seen }),
    ...(isObject(context) && { context: readContext(context) }),
    ...(compensates === true && { compensates }),
    ...(open_waits === true && { open_waits }),
    ...(isObject(compensating) && { compensating: compensating as unknown as Compensating }),
  };
}

function readEvent(event: unknown): ExecutionInput["event"] {
  if (!isObject(event)) throw invalid("event: an object is required");
  const version = event.version ?? 1;
  if (!Number.isInteger(version) || (version as number) < 1)
    throw invalid("event.version: a whole number from 1");
  const metadata = event.metadata ?? null;
  if (metadata !== null && !isObject(metadata)) throw invalid("event.metadata: must be an object");
  return {
    ...(event as unknown as HandlerEvent),
    id: text(event, "id", "event.id"),
    name: text(event, "name", "event.name"),
    timestamp: text(event, "timestamp", "event.timestamp"),
    data: event.data ?? null,
    version: version as number,
    metadata,
  };
}

function readSteps(steps: unknown): PushRequest["steps"] {
  if (steps === undefined || steps === null) return [];
  if (!Array.isArray(steps)) throw invalid("steps: must be a list");
  return steps.map((step: unknown, at) => {
    if (!isObject(step)) throw invalid(`steps[${at}]: must be an object`);
    const status = step.status ?? "completed";
    if (status !== "completed" && status !== "failed" && status !== "timed_out")
      throw invalid(`steps[${at}].status: completed, failed or timed_out`);
    const id = text(step, "id", `steps[${at}].id`);
    const name = typeof step.name === "string" ? step.name : id;
    return { id, name, status, output: step.output ?? null, error: step.error, kept: step.kept === true };
  });
}

function readResume(resume: unknown): NonNullable<PushRequest["resume"]> {
  if (!isObject(resume)) throw invalid("resume: must be an object");
  const type = typeof resume.type === "string" ? resume.type : "";
  return { step_id: text(resume, "step_id", "resume.step_id"), type, data: resume.data };
}

const readContext = ({ traceparent, step_spans }: Fields): NonNullable<PushRequest["context"]> => ({
  ...(typeof traceparent === "string" && { traceparent }),
  ...(step_spans === true && { step_spans }),
});

function readSecrets(secrets: unknown): Record<string, string> {
  if (secrets === undefined || secrets === null) return {};
  if (!isObject(secrets) || Object.values(secrets).some((value) => typeof value !== "string"))
    throw invalid("secrets: must be an object of texts");
  return secrets as Record<string, string>;
}

/** Runs the handler to its end or next yield. Answers the JSON of the response. */
export async function performPush(
  request: PushRequest,
  target: SvcFunction,
  options: {
    call: ReturnType<typeof callForRun>;
    signal: AbortSignal;
    keepsConsole: boolean;
    log: Logger;
  },
): Promise<string> {
  const { run_id: runId, resume } = request;
  const memos = new Map<string, CompletedStep>();
  for (const { id, ...step } of request.steps) memos.set(id, { ...step, step_id: id });
  if (resume && !memos.has(resume.step_id))
    memos.set(resume.step_id, { step_id: resume.step_id, name: "", output: resume.data ?? null });

  const traceparents = traceparentsOf(request);
  const executed: string[] = [];
  let compensations: number | undefined;
  let attributes: ReportedAttributes | undefined;
  const lines = new RunLines(request.secrets);
  const host: ExecutionHost = {
    requireHeld() {
      if (options.signal.aborted) throw new SvcError("aborted_by_caller", "the server gave this request up");
    },
    memo: (stepId) => memos.get(stepId),
    stored: () => [...memos.values()],
    sure: () => undefined,
    record(stepText) {
      executed.push(stepText);
      return undefined;
    },
    set(given) {
      attributes = { ...attributes, ...given };
    },
    write: (line) => lines.add(line),
    keepsConsole: options.keepsConsole,
    signal: () => options.signal,
    now: Date.now,
    pause: (ms) => pause(ms, options.signal),
    sleptType: "invoke",
    // The server waits for the answer, and has none of the tries before.
    pauseMsMax: request.compensates ? 0 : Number.POSITIVE_INFINITY,
    traceparent: traceparents,
    call: (method, message, how) =>
      options.call({ runId, traceparent: traceparents() }, method, message, how),
    ...(request.compensates && {
      undoes(count) {
        compensations = count;
        return undefined;
      },
    }),
  };
  const entry: ExecutionInput = { ...request, context: { ...request.context, secrets: request.secrets } };
  const end = await execute(target, entry, host, options.log);
  const own = request.compensates
    ? `"compensations":${compensations ?? 0},"on_failure":${target.onFailure !== undefined},`
    : "";
  const deviations = end.deviations ? `${deviationFields(end.deviations)},` : "";
  const found = attributes ? `"attributes":${JSON.stringify(attributes)},` : "";
  const size = executed.reduce(
    (sum, { length }) => sum + length,
    end.status === "completed" ? end.outputText.length : 0,
  );
  // What comes with the answer must not make it too large.
  const written = size > answerCharsMax ? "" : lines.fields();
  const head = `{${own}${found}${written}${deviations}"status":"${end.status}","steps":[${executed.join(",")}]`;
  switch (end.status) {
    case "completed":
      return `${head},"result":${end.outputText}}`;
    case "yielded":
      return `${head},"yield":${JSON.stringify(end.yield)}${
        request.open_waits && end.yields ? `,"yields":${awaitedText(end.yields)}` : ""
      }}`;
    case "failed":
      if (!request.compensating) logFailedAttempt(options.log, { target, end, run: { runId, ...request } });
      return `${head},"error":${JSON.stringify(end.error)},"compensations_failed":${end.compensationsFailed ?? 0}}`;
  }
}
