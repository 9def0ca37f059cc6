import type { Command } from "commander";
import { firstFrame, type Stacked } from "../kit/error-frame.ts";
import { shownText } from "../kit/log-lines.ts";
import { SvcError } from "../sdk/index.ts";
import { runWord } from "../sdk/wire/pause-words.ts";
import type { Input } from "./call.ts";
import { addCommon, ask, askingOf, type CommonFlags } from "./command.ts";
import type { Io } from "./io.ts";
import { localTime, paintOf } from "./show.ts";

interface ErrorShown extends Stacked {
  message?: string;
  code?: string;
}

interface RunShown {
  id: string;
  functionId?: string;
  status?: string;
  attempt?: number;
  maxAttempts?: number;
  redactedAt?: string;
  createdAt?: string;
  updatedAt?: string;
  endedAt?: string;
  error?: ErrorShown;
  pauseReason?: string;
  cancellationCause?: string;
  parentRunId?: string;
  workerId?: string;
  claimedBy?: string;
  timeoutAt?: string;
  /** `compensating` while it is undone. */
  phase?: string;
  compensationFailed?: number;
  blockingCause?: string;
  attemptLog?: AttemptShown[];
  pinnedTo?: string;
  movesAt?: string;
}

interface AttemptShown {
  number?: number;
  outcome?: string;
  endedAt?: string;
  lost?: number;
  error?: ErrorShown;
  deployment?: string;
}

interface StepShown {
  name?: string;
  stepId?: string;
  stepType?: string;
  status?: string;
  attempt?: number;
  error?: ErrorShown;
  sleepUntil?: string;
  waitEventName?: string;
  waitTimeout?: string;
}

/** Calls an operation of the server by its name. */
type AskServer = <Answer>(operation: string, input?: Input) => Promise<Answer>;

/** Why a run is where it is, and what to do about it. */
export interface Why {
  run: string;
  status: string;
  because: string[];
  next: string[];
}

const wordOf = (text: string | undefined, prefix: string): string =>
  (text ?? "").replace(prefix, "").toLowerCase() || "unknown";

const errorLine = ({ message = "without a message", code }: ErrorShown): string =>
  code ? `${message} (${code})` : message;

/** Characters of a frame that one line has room for. */
const frameCharsMax = 300;

function failedLine(error: ErrorShown): string {
  const place = firstFrame(error).slice(0, frameCharsMax);
  return `${errorLine(error)}${place ? `, at ${place}` : ""}`;
}

/** Attempts before the last one, and workers that were lost. */
const ofAttempts = ({ attemptLog = [] }: RunShown): string[] =>
  attemptLog.flatMap(({ number = 1, outcome = "", endedAt, lost = 0, error = {}, ...by }, at) => [
    ...(lost > 0 ? [`attempt ${number} lost its worker ${lost} times`] : []),
    ...(outcome === "failed" && at < attemptLog.length - 1
      ? [
          `attempt ${number}${buildOf(by)} failed${endedAt ? ` at ${localTime(endedAt)}` : ""}: ${errorLine(error)}`,
        ]
      : []),
  ]);

const buildOf = ({ deployment }: AttemptShown = {}): string =>
  deployment ? ` on deployment ${deployment}` : "";

const nameOf = ({ name, stepId }: StepShown): string => name || stepId || "?";

/** What is read besides the run; none where the caller may not, which is no reason to say nothing. */
async function unlessDenied<Answer>(asked: Promise<Answer>): Promise<Answer | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (error instanceof SvcError && (error.status === 403 || error.status === 404)) return undefined;
    throw error;
  }
}

function ofSteps(steps: readonly StepShown[]): string[] {
  return steps.flatMap((step) => {
    switch (wordOf(step.status, "STEP_STATUS_")) {
      case "failed":
      case "dead":
        return [
          `step ${nameOf(step)} failed at attempt ${step.attempt ?? 1}: ${errorLine(step.error ?? {})}`,
        ];
      case "retrying":
        return [`step ${nameOf(step)} is tried again after: ${errorLine(step.error ?? {})}`];
      case "sleeping":
        return [
          `step ${nameOf(step)} sleeps${step.sleepUntil ? ` until ${localTime(step.sleepUntil)}` : ""}`,
        ];
      case "waiting": {
        const until = step.waitTimeout ? ` until ${localTime(step.waitTimeout)}` : "";
        return [`step ${nameOf(step)} waits for ${awaitedOf(step)}${until}`];
      }
      case "timed_out":
        return [`step ${nameOf(step)} waited too long`];
      default:
        return [];
    }
  });
}

/** Only what is no event has a blank inside: `signal X`, `key B/K`. */
const awaitedOf = ({ waitEventName: name }: StepShown): string =>
  name ? (/(?<!,) /.test(name) ? name : `event ${name}`) : "a run";

/** The step to begin again at: the one that failed last, by its name where no other step has it. */
function fromStep(steps: readonly StepShown[]): string {
  const failed = steps.findLast(({ status }) => /_(FAILED|DEAD)$/.test(status ?? ""));
  if (!failed) return "STEP";
  const isOnly = steps.filter((step) => nameOf(step) === nameOf(failed)).length === 1;
  const named = isOnly ? nameOf(failed) : (failed.stepId ?? nameOf(failed));
  return /^[\w.:/-]+$/.test(named) ? named : `'${named.replaceAll("'", "'\\''")}'`;
}

interface WorkerShown {
  id?: string;
  function_ids?: string[];
  functions?: string[];
}

/** Why no worker takes a run that waits for one. */
async function ofCapacity(
  ask: AskServer,
  { functionId = "", blockingCause }: RunShown,
): Promise<Pick<Why, "because" | "next">> {
  if (blockingCause === "policy")
    return {
      because: ["policies keep its event, or a secret of its function, from the workers that asked for it"],
      next: ["svc policy list", "svc worker list"],
    };
  const known = await unlessDenied(
    ask<{ status?: string; endpointUrl?: string }>("functions.get", { id: functionId }),
  );
  if (known && wordOf(known.status, "FUNCTION_STATUS_") !== "active")
    return {
      because: [
        `function ${functionId} is ${wordOf(known.status, "FUNCTION_STATUS_")}: its runs are not handed out`,
      ],
      next: [`svc function activate ${functionId}`],
    };
  const listed = await unlessDenied(ask<{ workers?: WorkerShown[] }>("workers.list"));
  if (!listed) return { because: ["it waits for a worker"], next: [] };
  const workers = listed.workers ?? [];
  const serving = workers.filter(({ function_ids, functions }) =>
    (function_ids ?? functions ?? []).includes(functionId),
  );
  if (known?.endpointUrl)
    return {
      because: ["it waits for its endpoint, or for a limit of its function"],
      next: ["svc breaker list"],
    };
  if (workers.length === 0)
    return {
      because: ["no worker is connected"],
      next: ["start a worker that serves the function", "svc worker list"],
    };
  if (serving.length === 0)
    return {
      because: [`none of ${workers.length} connected workers serves ${functionId}`],
      next: [`add ${functionId} to the functions of a worker`, "svc worker list"],
    };
  return {
    because: [
      `${serving.length === 1 ? "one worker serves" : `${serving.length} workers serve`} ${functionId}: it is busy, or a limit (concurrency, throttle) is reached`,
    ],
    next: ["svc worker list", `svc function get ${functionId}`],
  };
}

/** What a run is held by, by the reason that the server gives. */
const pauses: Readonly<
  Record<string, { said: string | ((run: RunShown) => string); commands: (id: string) => string[] }>
> = {
  deployment_gone: {
    said: ({ pinnedTo = "?", movesAt }) =>
      `it is pinned to deployment ${pinnedTo}, of which no worker is connected: it ${
        movesAt ? `moves to the newest one at ${localTime(movesAt)}` : "waits until one comes, or it is moved"
      }`,
    commands: (id) => ["svc deployments", `svc run move ${id}`, `svc cancel ${id}`],
  },
  sleep: { said: "it sleeps", commands: (id) => [`svc resume ${id} --skip-sleep`, `svc cancel ${id}`] },
  wait_event: {
    said: "it waits: for an event, a signal, a stream, a key, or runs",
    commands: (id) => [`svc run steps ${id}`, `svc cancel ${id}`],
  },
  invoke: { said: "it waits for a run that it started", commands: (id) => [`svc event cause run ${id}`] },
  injection: {
    said: "a person holds it",
    commands: (id) => [`svc run paused-state ${id}`, `svc resume ${id}`],
  },
};

export async function explain(ask: AskServer, id: string): Promise<Why> {
  const run = await ask<RunShown>("runs.get", { id, withAttempts: true });
  const status = wordOf(run.status, "RUN_STATUS_");
  const steps = (await unlessDenied(ask<{ steps?: StepShown[] }>("runs.steps", { runId: id })))?.steps ?? [];
  const because = [...ofAttempts(run), ...ofSteps(steps)];
  const next: string[] = [];
  switch (status) {
    case "failed":
      because.unshift(
        `attempt ${run.attempt ?? 1} of ${run.maxAttempts ?? 1}${buildOf(run.attemptLog?.at(-1))} failed: ${failedLine(run.error ?? {})}`,
      );
      next.push(`svc inspect ${id}`);
      if (run.redactedAt === undefined)
        next.push(`svc resume ${id}`, `svc resume ${id} --from-step ${fromStep(steps)}`);
      break;
    case "cancelled":
      because.unshift(
        `it was cancelled: ${run.cancellationCause || run.error?.message || "no reason was given"}`,
      );
      next.push(`svc inspect ${id}`);
      break;
    case "paused": {
      const { said, commands } = pauses[run.pauseReason ?? ""] ?? pauses.injection!;
      because.unshift(typeof said === "string" ? said : said(run));
      const signal = steps.flatMap(({ status: at = "", waitEventName: name = "" }) =>
        /_WAITING$/.test(at) ? (/^signal ([\w.:-]+)$/.exec(name)?.[1] ?? []) : [],
      )[0];
      if (signal !== undefined) next.push(`svc run signal ${id} ${signal}`);
      next.push(...commands(id));
      break;
    }
    case "waiting_for_capacity": {
      const found = await ofCapacity(ask, run);
      because.push(...found.because);
      if (run.pinnedTo) because.push(`only workers of deployment ${run.pinnedTo} may have it`);
      next.push(...found.next);
      break;
    }
    case "waiting":
      because.unshift(
        `its next attempt waits for its delay${run.error ? ` after: ${errorLine(run.error)}` : ""}`,
      );
      next.push(`svc run steps ${id} --watch`, `svc cancel ${id}`);
      break;
    case "running":
      because.push(
        `worker ${run.workerId || run.claimedBy || "?"} runs it, attempt ${run.attempt ?? 1}${run.phase ? "" : buildOf(run.attemptLog?.at(-1))}`,
      );
      if (run.timeoutAt) because.push(`it times out at ${localTime(run.timeoutAt)}`);
      next.push(`svc run steps ${id} --watch`, `svc cancel ${id}`);
      break;
    default:
      because.push(`it ended${run.endedAt ? ` at ${localTime(run.endedAt)}` : ""}`);
  }
  const undone = steps.filter(
    ({ stepType, status: at }) => /COMPENSATE$/.test(stepType ?? "") && /COMPLETED$/.test(at ?? ""),
  );
  if (undone.length > 0 && status === "failed")
    because.push(
      `${undone.length === 1 ? "one step was" : `${undone.length} steps were`} undone: a resume runs what was undone again`,
    );
  if (run.phase) because.push(`it is ${run.phase}`);
  if (run.compensationFailed) because.push(`${run.compensationFailed} of its compensations failed for good`);
  if (run.parentRunId) next.push(`svc why ${run.parentRunId}`);
  return { run: id, status: runWord(status, run.pauseReason), because, next };
}

/** `svc why RUN`: a run failed, or does not move; what now? */
export function addWhy(program: Command, io: Io): void {
  const command = program
    .command("why <run-id>")
    .description("Why a run failed or does not move, and what to do about it.");
  addCommon(command).action(async (id: string) => {
    const asking = askingOf(io, command.optsWithGlobals() as CommonFlags);
    const why = await explain((...asked) => ask(asking, ...asked), id);
    if (asking.form === "json") return io.out(`${JSON.stringify(why, null, 2)}\n`);
    if (asking.form === "jsonl") return io.out(`${JSON.stringify(why)}\n`);
    const paint = paintOf(io);
    const lines = [
      `${paint.strong(why.run)} is ${why.status}`,
      ...why.because.map((line) => `  ${shownText(line)}`),
      ...(why.next.length > 0 ? [paint.dim("next:"), ...why.next.map((line) => `  ${shownText(line)}`)] : []),
    ];
    await io.out(`${lines.join("\n")}\n`);
  });
}
