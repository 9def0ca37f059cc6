import { type Redaction, redactedError, redactedMark } from "../../../kit/redact.ts";
import { storedJson } from "../../../kit/stored-json.ts";

/** Which runs go together. */
export interface DeletedRuns {
  functionId?: string;
  statuses: readonly EndedStatus[];
  /** Only what was created by then. */
  until?: number;
}

export const endedStatuses = ["completed", "failed", "cancelled"] as const;
export type EndedStatus = (typeof endedStatuses)[number];

/** What a note of history has that nobody wrote: ids, names, times, counts, and words of closed lists. */
const kept: ReadonlySet<string> = new Set([
  ...["attempt", "execution_seq", "worker_id", "deployment", "step_id", "step_ids", "from", "from_step"],
  ...["retry_in_ms", "tries", "until", "actor_id", "child_run_id", "event_id", "event_ids", "cause"],
  ...["injected", "had_output", "timed_out", "gathered", "resumed", "lease_until", "code", "event_name"],
  ...["function_id", "run_id", "condition", "event", "stream", "key", "run", "entity_id"],
  ...["restored", "compensation_failed", "events"],
]);

interface Noted extends Record<string, unknown> {
  step_id?: string;
  steps?: { step_id: string; status: string }[];
  failed?: { step_id: string; error?: unknown }[];
  discarded?: ({ step_id: string } & Record<string, unknown>)[];
  ending?: { error?: unknown } & Record<string, unknown>;
}

/**
 * The detail of a note without what was given, made and written, of one step or of all; undefined where it
 * stays as it is.
 */
export function redactedDetail(text: string, redaction: Redaction, stepId?: string): string | undefined {
  const detail = storedJson<Noted>(text);
  if (detail === undefined) return "{}";
  const mark: unknown = JSON.parse(redactedMark(redaction));
  const error = redactedError(redaction);
  const isOf = (one: { step_id?: string }) => stepId === undefined || one.step_id === stepId;
  const isOwn = isOf(detail);
  const errorOf = (value: unknown) => (value === null || value === undefined ? value : error);
  const entryOf = ([name, value]: [string, unknown]): [string, unknown] => {
    switch (name) {
      case "failed":
        return [name, detail.failed!.map((one) => (isOf(one) ? { ...one, error } : one))];
      case "discarded":
        return [name, detail.discarded!.map((one) => (isOf(one) ? withoutValues(one) : one))];
      case "steps":
        return [name, value];
      case "ending":
        return [
          name,
          isOwn ? { ...detail.ending, error: errorOf(detail.ending!.error), reason: undefined } : value,
        ];
      case "error":
        return [name, isOwn ? errorOf(value) : value];
      default:
        return [name, !isOwn || kept.has(name) || value === null ? value : mark];
    }
  };
  const made = JSON.stringify(Object.fromEntries(Object.entries(detail).map(entryOf)));
  return made === text ? undefined : made;
}

const withoutValues = ({
  output: _output,
  original_output: _original,
  error: _error,
  ...rest
}: Record<string, unknown>) => rest;

/** JSON text of lines that say when and where they were written, and nothing else; undefined as above. */
export function redactedLines(text: string, redaction: Redaction, step?: string): string | undefined {
  const lines = storedJson<{ at: string; level: string; step?: string }[]>(text);
  if (!Array.isArray(lines)) return "[]";
  const mark = redactedMark(redaction);
  const made = JSON.stringify(
    lines.map((line) =>
      step === undefined || line.step === step
        ? { at: line.at, level: line.level, text: mark, ...(line.step !== undefined && { step: line.step }) }
        : line,
    ),
  );
  return made === text ? undefined : made;
}
