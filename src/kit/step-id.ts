import { createHash } from "node:crypto";
import { invalid } from "./fault.ts";

/**
 * A step's id is part of the keys of steps, waits and invocations, beside event names and paths of matches.
 */
export const stepIdBytesMax = 1_024;

export function requireStepId(field: string, stepId: string): string {
  if (stepId.length === 0) throw invalid(field, "must not be empty");
  if (Buffer.byteLength(stepId) > stepIdBytesMax) throw invalid(field, `at most ${stepIdBytesMax} bytes`);
  return stepId;
}

/** The row id of a step follows from run and step id, so that it needs no index of its own. */
export function stepRowId(runId: string, stepId: string): string {
  const digest = createHash("sha256").update(stepId).digest("hex").slice(0, 16);
  return `step_${runId.slice("run_".length)}_${digest}`;
}

/** The run's id inside a step's id (the row's or the SDK's); undefined when it is neither. */
export function runOfStep(stepId: string): string | undefined {
  const [, fromRow] = /^step_([A-Za-z0-9-]+)_[0-9a-f]{16}$/.exec(stepId) ?? [];
  if (fromRow !== undefined) return `run_${fromRow}`;
  const [, fromSdk] = /^(run_[A-Za-z0-9-]+):/.exec(stepId) ?? [];
  return fromSdk;
}

/** What a call is about that names a step alone: policies may name its run. */
export const aboutStep = ({ stepId }: { stepId: string }) => [stepId, runOfStep(stepId) ?? stepId];

const keyCharactersMax = 80;

/** The idempotency key under which the SDK's steps send what they send, the same in every execution. */
export const stepKey = (stepId: string): string =>
  stepId.length <= keyCharactersMax ? stepId : createHash("sha256").update(stepId).digest("hex");

/** As `stepKey`, of the run that a step starts. */
export const invokeKey = (runId: string, stepId: string): string => `invoke:${stepRowId(runId, stepId)}`;

/**
 * Ranks of steps that were met beside other waits begin here. The execution that runs meanwhile has not seen
 * them, so they come after all that it reports: the job that hands them over gives each its own rank.
 */
export const unranked = 2 ** 30;
