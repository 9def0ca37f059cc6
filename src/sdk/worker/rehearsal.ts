import type { ExecutionEnd } from "../steps/attempts.ts";
import { type ExecutionInput, execute } from "../steps/execute.ts";
import type { ExecutionHost } from "../steps/step-host.ts";
import type { SvcFunction } from "../steps/svc-function.ts";
import { deferred } from "../wire/deferred.ts";
import { errorOf, SvcError } from "../wire/errors.ts";
import { detour, variable } from "../wire/transport.ts";
import type { Run, Step } from "../wire/types.ts";
import type { AskedWait, CompletedStep } from "../wire/wire.ts";

/** A run as the server has it. */
export interface RecordedRun {
  run: Run;
  steps: Step[];
}

/** What new code did with a recorded run. Names of steps, never values. */
export interface PlayedRun {
  runId: string;
  /** `stopped` at a step that has no record, `skipped` without a look. */
  ended: "completed" | "failed" | "waits" | "stopped" | "skipped";
  /** Why it failed, or was skipped. */
  message?: string;
  outputText?: string;
  /** Steps without a record; the first one ends the play. */
  added: string[];
  /** Recorded steps that the handler did not come to. */
  missing: string[];
  /** Those that it came to in another order. */
  reordered: string[];
  /** What it waits for. */
  waits: string[];
}

/** Of `svc rehearse`, which starts the program: by a channel of its own, since the program may print. */
interface RehearsalChannel {
  send(message: object): void;
  on(kind: "message", heard: (message: RecordedRun) => void): void;
}

const served = new Map<string, SvcFunction>();
let isOpen = false;

/** Undefined unless the program is rehearsed: its worker takes no jobs, and plays what it is told. */
export function rehearsedWorker(functions: readonly SvcFunction[]) {
  const channel = globalThis.process as unknown as Partial<RehearsalChannel> | undefined;
  if (variable("SVC_REHEARSAL") !== "1" || !channel?.send || !channel.on) return undefined;
  for (const one of functions) served.set(one.id, one);
  if (!isOpen) open(channel as RehearsalChannel);
  return {
    ...{ id: "rehearsal", activeJobs: 0, closed: new Promise<void>(() => {}) },
    ...{ start: async () => {}, drain: async () => true, stop: () => {} },
  };
}

function open(channel: RehearsalChannel): void {
  isOpen = true;
  detour.answer = () => Promise.reject(noCall());
  detour.isHere = () => true;
  channel.on("message", async (recorded) => {
    const target = served.get(recorded.run.functionId);
    const skipped = { ...nothing(recorded), ended: "skipped", message: "no worker of the program serves it" };
    channel.send(target ? await play(target, recorded) : skipped);
  });
  // The program may make further workers before it rests.
  setTimeout(() => channel.send({ functionIds: [...served.keys()] }), 0);
}

const noCall = () => new SvcError("rehearsal", "a rehearsal calls no server");

const nothing = ({ run }: RecordedRun) => ({
  ...{ runId: run.id, added: [], missing: [], reordered: [], waits: [] },
});

/** The rows of the handler itself: what undid the run is not played. */
const isOwn = ({ type, stepId, runId }: Step): boolean =>
  type !== "compensate" && !stepId.startsWith(`${runId}:onFailure:`) && !/:compensate:/.test(stepId);
const isOver = ({ status }: Step): boolean => ["completed", "failed", "timed_out"].includes(status);

function memoOf({ stepId, name, status, output, error, tries, maxTries }: Step): CompletedStep {
  const counted = tries === undefined ? {} : { tries, max_tries: maxTries };
  return {
    ...{ step_id: stepId, name, output, status: status as CompletedStep["status"] },
    ...(error && { error: { ...error, ...counted } }),
  } as CompletedStep;
}

function entryOf({ run }: RecordedRun, { definition }: SvcFunction): ExecutionInput {
  const secrets = Object.fromEntries((definition.secrets ?? []).map((name) => [name, "rehearsal"]));
  return {
    ...{ run_id: run.id, attempt: run.attempt, max_attempts: run.maxAttempts },
    ...(run.actorId !== undefined && { actor_id: run.actorId }),
    event: {
      ...{ id: run.eventId, name: run.eventName, data: run.input, timestamp: run.createdAt },
      ...{ version: 1, metadata: null },
    },
    context: { secrets },
  } as ExecutionInput;
}

/**
 * Enters the handler of a recorded run with the results that are stored. No code of a step is executed, and
 * no call is made. Never throws; a handler that never returns is for its caller to end.
 */
export async function play(target: SvcFunction, recorded: RecordedRun): Promise<PlayedRun> {
  const played = nothing(recorded);
  if (target.definition.batch)
    return { ...played, ended: "skipped", message: "its runs have a batch of events" };
  const steps = recorded.steps.filter((step) => isOwn(step) && isOver(step));
  const byId = new Map(steps.map((step) => [step.stepId, step]));
  const unreached = new Set(byId.keys());
  const stopped = deferred();
  const added: string[] = [];
  const nowMs = Date.parse(recorded.run.endedAt ?? recorded.run.updatedAt);
  const host: ExecutionHost = {
    requireHeld: () => undefined,
    memo(stepId) {
      const step = byId.get(stepId);
      if (!step) return undefined;
      unreached.delete(stepId);
      return memoOf(step);
    },
    stored: () => steps.filter(({ status }) => status === "completed").map(memoOf),
    sure: () => undefined,
    record: () => undefined,
    set: () => undefined,
    write: () => undefined,
    undoes: () => undefined,
    signal: () => new AbortController().signal,
    now: () => nowMs,
    call: () => Promise.reject(noCall()),
    pause: async () => {},
    pauseMsMax: Number.POSITIVE_INFINITY,
    sleptType: "sleep",
    substitute: (name) => (context) => {
      const failed = byId.get(context.id)?.error;
      if (failed) throw Object.assign(errorOf(failed), { retryable: false });
      added.push(name);
      stopped.resolve();
      return new Promise(() => {});
    },
  };
  const end = await Promise.race([
    execute(target, entryOf(recorded, target), host, silent),
    stopped.promise.then(() => undefined),
  ]);
  const names = (kind: string) =>
    (end?.deviations ?? []).filter((one) => one.kind === kind).map(({ name }) => name);
  const isWhole = end?.status !== "yielded" || recorded.run.status !== "paused";
  return {
    ...{ ...played, added, reordered: names("order") },
    missing: isWhole ? [...unreached].map((stepId) => byId.get(stepId)!.name) : names("unreached"),
    ...resultOf(end),
  };
}

function resultOf(end: ExecutionEnd | undefined): Pick<PlayedRun, "ended"> & Partial<PlayedRun> {
  if (!end) return { ended: "stopped" };
  if (end.status === "completed") return { ended: "completed", outputText: end.outputText };
  if (end.status === "failed") return { ended: "failed", message: end.error.message };
  const list: readonly AskedWait[] = end.yields ?? [end.yield as AskedWait];
  return { ended: "waits", waits: list.map(({ step_id, step_name }) => step_name ?? step_id) };
}

const silent = { debug() {}, info() {}, warn() {}, error() {} };
