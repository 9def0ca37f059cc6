import { Fault, invalid, tryAgain } from "../../../kit/fault.ts";
import { cancelReasonRunes, discardedBytesMax, stepOutputBytesMax } from "../../../kit/limits.ts";
import { jsonText, parseJson, parseJsonBytes } from "../../../kit/payload-json.ts";
import { stepRowId } from "../../../kit/step-id.ts";
import type { ResumePlan } from "../runs/wakes/finish-resumes.ts";
import type { ExecutionRow, SteeredStepRow } from "./rows.ts";

/** The reason of a cancel goes only into the published message and the log. */
export const cutReason = (reason: string): string => [...reason].slice(0, cancelReasonRunes).join("");

/** The run that a step's id names, be it the row's id or the one the SDK made; undefined for neither. */
export function runOfStep(stepId: string): string | undefined {
  const [, fromRow] = /^step_([A-Za-z0-9-]+)_[0-9a-f]{16}$/.exec(stepId) ?? [];
  if (fromRow !== undefined) return `run_${fromRow}`;
  const [, fromSdk] = /^(run_[A-Za-z0-9-]+):/.exec(stepId) ?? [];
  return fromSdk;
}

export const isStep = (step: SteeredStepRow, id: string): boolean =>
  step.step_id === id || stepRowId(step.run_id, step.step_id) === id;

/** JSON text, or the same as base64, as newer clients send it; throws the fault that names the field. */
export function readJsonText(field: string, text: string): string {
  if (Buffer.byteLength(text) > stepOutputBytesMax * 2)
    throw invalid(field, `at most ${stepOutputBytesMax} bytes of JSON`);
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

/** A sleep or a wait that a person held the run in: it goes on with its own deadline, unless steps are done again. */
export function goesOn(execution: ExecutionRow | undefined): NonNullable<ResumePlan["goesOn"]> | null {
  if (execution?.state !== "held") return null;
  const { held_from: state, waiting_step_id: stepId, held_wake_at: until } = execution;
  if ((state !== "sleeping" && state !== "waiting") || stepId === null || until === null) return null;
  return { state, stepId, until };
}

export const notCancellable = (status: string): Fault =>
  new Fault("failed_precondition", `the run is ${status} and cannot be cancelled`);

export const endedOtherwise = (status: string): Fault =>
  new Fault("aborted", `the run became ${status} while it was being cancelled`);

export const contended = (): Fault =>
  tryAgain("aborted", "the step was changed by somebody else, read it again", {
    headers: { "Svc-Error-Reason": "contended" },
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
  /** JSON texts; left out of those behind the first `limits.discardedBytesMax` bytes. */
  output?: string | null;
  original_output?: string | null;
  error?: string | null;
  started_at: number | null;
  ended_at: number | null;
  duration_ms: number | null;
}

/** As much as one row of history may hold. */
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
