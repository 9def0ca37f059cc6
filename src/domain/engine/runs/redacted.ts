import { type Redaction, redactedError, redactedMark } from "../../../kit/redacted-mark.ts";
import type { Run, Step } from "./run.ts";

export interface RedactedRow {
  redacted_at: number | null;
  redacted_by: string | null;
}

export interface RedactedRunRow extends RedactedRow {
  /** Of the event that started it. */
  event_redacted_at: number | null;
  event_redacted_by: string | null;
}

const redactionOf = (at: number | null, by: string | null): Redaction | undefined =>
  at === null ? undefined : { at, by };

/** The stored values are null, so that queries see none: here marks stand where they were. */
export function markedRun(run: Run, row: RedactedRunRow): Run {
  const redacted = redactionOf(row.redacted_at, row.redacted_by);
  const ofInput = redacted ?? redactionOf(row.event_redacted_at, row.event_redacted_by);
  if (!ofInput) return run;
  const input = run.input === null ? null : redactedMark(ofInput);
  if (!redacted) return { ...run, input };
  const value = redactedMark(redacted);
  return {
    ...{ ...run, redacted, input },
    output: run.status === "completed" ? value : null,
    error: run.status === "failed" ? redactedError(redacted) : null,
    attributes: run.attributes.map(({ name }) => ({ name, value: { type: "text", value } })),
  };
}

export function markedStep(step: Step, row: RedactedRow): Step {
  const redacted = redactionOf(row.redacted_at, row.redacted_by);
  if (!redacted) return step;
  const value = redactedMark(redacted);
  return {
    ...{ ...step, redacted },
    input: step.type === "invoke_function" ? value : null,
    output: step.status === "completed" && step.type !== "sleep" ? value : null,
    error: step.status === "failed" ? redactedError(redacted) : null,
    originalOutput: step.patchedAt === null ? null : value,
  };
}
