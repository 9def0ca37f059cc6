import { Fault, invalid } from "../../../kit/fault.ts";
import { stepOutputBytesMax } from "../../../kit/limits.ts";
import { jsonText, parseJson, parseJsonBytes } from "../../../kit/payload-json.ts";
import { stepRowId } from "../../../kit/step-id.ts";
import type { RunError } from "../runs/run.ts";
import type { ResumePlan } from "../runs/wakes/finish-resumes.ts";
import type { ExecutionRow, SteeredRunRow, SteeredStepRow } from "./rows.ts";

const cancelReasonRunes = 1_024;
/** Outputs that the history of a resume keeps of the steps that it discards. */
const discardedBytesMax = 256 * 1024;

/** The reason of a cancel as it is published, logged and kept in the history of the run. */
export const cutReason = (reason: string): string => [...reason].slice(0, cancelReasonRunes).join("");

export const isStep = (step: SteeredStepRow, id: string): boolean =>
  step.step_id === id || stepRowId(step.run_id, step.step_id) === id;

/** Reads JSON text, or base64 of it, which newer clients send. Throws the fault that names the field. */
export function readJsonText(field: string, text: string): string {
  if (Buffer.byteLength(text) > stepOutputBytesMax * 2)
    throw invalid(field, `must be at most ${stepOutputBytesMax} bytes of JSON`);
  return jsonText(field, readText(field, text), stepOutputBytesMax);
}

function readText(field: string, text: string): unknown {
  try {
    return parseJson(text, field);
  } catch (refused) {
    try {
      return parseJsonBytes(Buffer.from(text, "base64"), field);
    } catch {
      throw refused;
    }
  }
}

/** What a resume does with the stored steps of a run. */
export interface StepsAtResume {
  /** Those of the handler, in its order. */
  own: SteeredStepRow[];
  /** These run again, what was undone and what comes from the asked step on. */
  again: SteeredStepRow[];
  /** Rows of compensations and of `onFailure`: a later failure undoes, and tells, by itself. */
  forgotten: SteeredStepRow[];
  /** Outputs that a person set before their step was undone: they go with it. */
  patchesLost: SteeredStepRow[];
  /** Their compensation failed: they stay completed. */
  notUndone: SteeredStepRow[];
  /** These stay after one that runs again. */
  keptBehind: SteeredStepRow[];
  /** Of the compensations that ran, those whose step stays and may have to be undone again. */
  undoCount: number;
}

export interface ResumeQuestion {
  /** The step that `fromStep` names: it and all after it run again. */
  from?: SteeredStepRow | undefined;
  /** Its history says that it was undone, or that `onFailure` ran. */
  wasUndone: boolean;
  /** Places that steps had before a resume ran them again, by id. */
  places: ReadonlyMap<string, number>;
}

/**
 * A resume forgets exactly what was undone. Of an output that a person set and a compensation the later one
 * counts. A compensation without a step of its name may have undone anything.
 */
export function stepsAtResume(
  steps: readonly SteeredStepRow[],
  { from, wasUndone, places }: ResumeQuestion,
): StepsAtResume {
  const isOfEnd = endOf(steps, wasUndone);
  const placeOf = ({ step_id, sequence }: SteeredStepRow) => places.get(step_id) ?? sequence;
  const own = steps.filter((step) => !isOfEnd(step)).sort((one, other) => placeOf(one) - placeOf(other));
  const forgotten = steps.filter(isOfEnd);
  const undone = new Set<SteeredStepRow>();
  const notUndone = new Set<SteeredStepRow>();
  let undoCount = 0;
  for (const compensation of forgotten) {
    if (compensation.type !== "compensate") continue;
    const target = targetOf(compensation, own);
    const some = target ? [target] : own;
    const isDone = compensation.status === "completed";
    // The server's time, as that of a patch is: what a worker says of its end goes by another clock.
    const again = isDone
      ? some.filter(({ patched_at }) => (patched_at ?? -1) <= compensation.updated_at)
      : [];
    for (const step of again) undone.add(step);
    if (!isDone && target) notUndone.add(target);
    if (again.length === 0) undoCount++;
  }
  const again = own.filter((step) => undone.has(step) || (from && placeOf(step) >= placeOf(from)));
  const first = again[0] ? placeOf(again[0]) : Number.POSITIVE_INFINITY;
  return {
    ...{ own, again, forgotten, undoCount },
    patchesLost: again.filter(({ patched_at }) => patched_at !== null),
    notUndone: [...notUndone].filter((step) => !again.includes(step)),
    keptBehind: own.filter((step) => placeOf(step) > first && !again.includes(step)),
  };
}

const compensating = /:compensate:(?=(?:[^:\\]|\\.)*:\d+$)/;
const withCompensation = /:compensate:(?:[^:\\]|\\.)*:\d+(?=:)/g;

/** Compensations, `onFailure`, and the steps in these. A handler's own step may have a similar name. */
function endOf(steps: readonly SteeredStepRow[], wasUndone: boolean): (step: SteeredStepRow) => boolean {
  const ids = new Set(steps.map(({ step_id }) => step_id));
  const undoing = new Set(steps.flatMap(({ step_id, type }) => (type === "compensate" ? step_id : [])));
  // One that was cut off has no row of its own, but its step has.
  const isUndoing = (id: string) => undoing.has(id) || (wasUndone && ids.has(undoneBy(id)));
  return ({ run_id, step_id, type }) =>
    type === "compensate" ||
    (wasUndone && step_id.startsWith(`${run_id}:onFailure:`)) ||
    [...step_id.matchAll(withCompensation)].some(({ 0: part, index }) =>
      isUndoing(step_id.slice(0, index + part.length)),
    );
}

/** The id of the step that a compensation of this id undoes. The SDK adds this to a number that was taken. */
const shiftedBy = 1_000_000;
const undoneBy = (id: string): string =>
  id
    .replace(compensating, ":")
    .replace(/\d+$/, (text) => String(Number(text) >= shiftedBy ? Number(text) - shiftedBy : text));

/** Workers of other clients may number theirs otherwise. */
function targetOf(
  { step_id, compensation_for: name }: SteeredStepRow,
  own: readonly SteeredStepRow[],
): SteeredStepRow | undefined {
  const id = undoneBy(step_id);
  return own.find((step) => step.step_id === id) ?? own.find((step) => step.name === name);
}

/** Whether one of several sleeps is to end. */
export const endsOneSleep = (
  { gather_ms, state }: ExecutionRow,
  { skipSleep, stepId }: { skipSleep: boolean | undefined; stepId: string | undefined },
): boolean =>
  stepId === undefined ? gather_ms !== null && (skipSleep ?? state !== "held") : skipSleep !== false;

export const sleepsNot = (stepId: string): Fault =>
  new Fault("failed_precondition", `stepId: the run sleeps at no step ${stepId.slice(0, 200)}`);

/** Neither a handler nor a person may go on from values that are gone. */
export const isRedacted = (what: "run" | "step"): Fault =>
  new Fault(
    "failed_precondition",
    `${what === "run" ? "the run" : "a step of the run"} is redacted: it can be neither resumed nor patched`,
  );

/** Throws unless the run is paused, sleeps, waits, or has failed. */
export function requireResumable(
  run: SteeredRunRow,
  execution: ExecutionRow | undefined,
  {
    fromStep,
    skipSleep,
    stepId,
  }: { fromStep: string | undefined; skipSleep: boolean | undefined; stepId?: string | undefined },
): void {
  const refused = (message: string) => new Fault("failed_precondition", message);
  if (run.status === "completed") throw refused("the run is completed: there is nothing left to resume");
  if (run.redacted_at !== null) throw isRedacted("run");
  if (fromStep !== undefined && execution && execution.ending !== null)
    throw refused("the run is being undone: no step of it can be done again before that is over");
  if (skipSleep === false && fromStep === undefined && execution?.state === "sleeping")
    throw refused("the run sleeps and is not held: skipSleep ends its sleep");
  if (execution?.state === "stranded")
    throw refused("the run waits for a deployment that is gone: MoveRun (svc run move) gives it to another");
  const isPaused =
    execution !== undefined && ["held", "sleeping", "waiting", "invoking"].includes(execution.state);
  // Beside other waits, and within an attempt.
  const sleepsToo =
    stepId !== undefined && execution?.state === "retrying" && execution.waiting_step_id !== null;
  if (!isPaused && !sleepsToo && run.status !== "failed")
    throw refused("only a paused or failed run can be resumed");
}

/** The step that ended the run, after its last try. */
export const exhaustedStepOf = ({ error }: SteeredRunRow): string | null =>
  error === null ? null : ((JSON.parse(error) as RunError).exhausted_step ?? null);

export function planOfResume(
  execution: ExecutionRow | undefined,
  { again, forgotten, keptBehind }: StepsAtResume,
  { skipsSleep, sleep }: { skipsSleep: boolean; sleep: string | undefined },
): ResumePlan {
  const was = execution?.state === "held" ? execution.held_from : execution?.state;
  const endsSleep = sleep !== undefined || (skipsSleep && was === "sleeping");
  const goesOn = again.length > 0 || endsSleep ? null : goesOnFrom(execution);
  return {
    from: execution?.state ?? "failed",
    againIds: again.map(({ step_id }) => step_id),
    forgottenIds: forgotten.map(({ step_id }) => step_id),
    keptIds: keptBehind.map(({ step_id }) => step_id),
    goesOn,
    sleptStepId: sleep ?? (was === "sleeping" && !goesOn ? (execution?.waiting_step_id ?? null) : null),
    nextAttempt: was === "retrying" && execution?.waiting_step_id == null,
  };
}

/** A held run continues with the sleep or the wait that it was held in, until the deadline that it had. */
function goesOnFrom(execution: ExecutionRow | undefined): NonNullable<ResumePlan["goesOn"]> | null {
  if (execution?.state !== "held") return null;
  const { held_from: state, waiting_step_id: stepId, held_wake_at: until } = execution;
  if ((state !== "sleeping" && state !== "waiting") || stepId === null || until === null) return null;
  return { state, stepId, until };
}

/** A failed run gets its whole time once more, from now on. */
export function timeoutOfRevived(run: SteeredRunRow, at: number): number | null {
  if (run.timeout_at === null) return null;
  return Math.max(run.timeout_at, at + run.timeout_at - run.created_at);
}

export const notHeld = (): Fault =>
  new Fault("failed_precondition", "the run is not paused for injection: pause it first");

export const notCancellable = (status: string): Fault =>
  new Fault("failed_precondition", `the run is ${status} and cannot be cancelled`);

export const endedOtherwise = (status: string): Fault =>
  new Fault("aborted", `the run became ${status} while it was being cancelled`);

export const contended = (): Fault =>
  new Fault("aborted", "the step was changed by another caller, read it again", {
    headers: { "Svc-Error-Reason": "contended", "Retry-After": "1" },
  });

export const resumedAlready = (): Fault =>
  new Fault("already_exists", "the run was resumed within the last two minutes");

/** What history keeps of a step that a resume discards; read by history. */
export interface DiscardedStep {
  step_id: string;
  name: string;
  type: string;
  sequence: number;
  status: string;
  /** JSON texts; left out after the first `discardedBytesMax` bytes. */
  output?: string | null;
  original_output?: string | null;
  error?: string | null;
  started_at: number | null;
  ended_at: number | null;
  duration_ms: number | null;
}

/**
 * The discarded steps for one row of history: texts are left out after the first `discardedBytesMax` bytes.
 */
export function recordOf(steps: readonly SteeredStepRow[]): DiscardedStep[] {
  let left = discardedBytesMax;
  return steps.map((step) => {
    const { step_id, name, type, sequence, status, output, error, original_output } = step;
    const { started_at, ended_at, duration_ms } = step;
    const times = { started_at, ended_at, duration_ms };
    left -= [output, error, original_output].reduce((sum, text) => sum + Buffer.byteLength(text ?? ""), 0);
    const texts = left >= 0 ? { output, error, original_output } : {};
    return { step_id, name, type, sequence, status, ...texts, ...times };
  });
}
