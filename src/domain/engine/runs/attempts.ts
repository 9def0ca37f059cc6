import type { Instant } from "../../../kit/clock.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import type { RunEnding, RunError } from "./run.ts";

// Attempts of runs and tries of steps are derived from the history, which has all; nothing else is stored.

/** A row of `run_history`. */
export interface AttemptNote {
  type: string;
  at: Instant;
  /** JSON text. */
  detail: string;
}

export interface PastAttempt {
  number: number;
  /** The last worker that had it. */
  workerId: string;
  /** Which build that worker was; empty when it did not say. */
  deployment: string;
  startedAt: Instant;
  endedAt: Instant | null;
  /** Empty while it is under way. */
  outcome: "" | "completed" | "failed" | "cancelled";
  error: RunError | null;
  /** Until the next one; null of the last. */
  retryInMs: number | null;
  /** How often its handler was entered. */
  executions: number;
  /** How many of them ended without a report. */
  lost: number;
}

/** A try of a step that failed. */
export interface FailedTry {
  /** Counted by the step's own retries; else 1. */
  number: number;
  /** The run's. */
  attempt: number;
  workerId: string;
  startedAt: Instant | null;
  endedAt: Instant;
  error: RunError;
  /** When the step itself is tried again; null when that is left to the run's next attempt. */
  retryAt: Instant | null;
}

/** One try of a step that failed, as its worker reports it. */
export interface ReportedFailure {
  stepId: string;
  startedAt: Instant | null;
  endedAt: Instant | null;
  error: RunError;
  /** Of a step that is tried by itself: `at` is when it is tried next. */
  retry: { tries: number; triesMax: number; at: Instant } | null;
}

/** A failure as the history keeps it, without what leads to it: a step may have a hundred. */
interface NotedFailure {
  step_id: string;
  started_at: Instant | null;
  ended_at: Instant | null;
  tries?: number;
  retry_at?: Instant;
  error: RunError;
}

const messageCharsMax = 1_000;
const stackCharsMax = 2_000;
const cut = (text: string, charsMax: number) =>
  text.length <= charsMax ? text : `${text.slice(0, charsMax - 1).toWellFormed()}…`;

/** Most of them that are kept of one report. */
const failuresMax = 20;

export const notedFailures = (failures: readonly ReportedFailure[]): NotedFailure[] =>
  failures
    .slice(0, failuresMax)
    .map(({ stepId, startedAt, endedAt, retry, error: { message, name, code, stack, retryable } }) => ({
      ...{ step_id: stepId, started_at: startedAt, ended_at: endedAt },
      ...(retry && { tries: retry.tries, ...(retry.tries < retry.triesMax && { retry_at: retry.at }) }),
      error: {
        message: cut(message, messageCharsMax),
        ...(name !== undefined && { name }),
        ...(code !== undefined && { code }),
        ...(stack !== undefined && { stack: cut(stack, stackCharsMax) }),
        retryable,
      },
    }));

interface NoteDetail {
  attempt?: number;
  worker_id?: string;
  deployment?: string;
  step_id?: string;
  error?: RunError | null;
  retry_in_ms?: number;
  execution_seq?: number;
  tries?: number;
  until?: number;
  from?: string;
  ending?: Pick<RunEnding, "status" | "error">;
  failed?: NotedFailure[];
}

const detailOf = ({ detail }: AttemptNote): NoteDetail => storedJson<NoteDetail>(detail) ?? {};

/** A pause that takes effect with a report or the end of a lease has the detail of what came with it. */
function typeOf({ type }: AttemptNote, detail: NoteDetail): string {
  if (type !== "run.paused") return type;
  if (detail.ending) return "run.compensating";
  if (detail.retry_in_ms !== undefined && detail.step_id === undefined) return "run.retrying";
  if (detail.tries !== undefined && detail.until !== undefined) return "run.released";
  return detail.execution_seq !== undefined ? "run.lease_expired" : type;
}

function endOf(
  type: string,
  { step_id, error, retry_in_ms, ending }: NoteDetail,
): Pick<PastAttempt, "outcome" | "error" | "retryInMs"> | undefined {
  switch (type) {
    case "run.retrying":
      if (step_id !== undefined || retry_in_ms === undefined) return undefined;
      return { outcome: "failed", error: error ?? null, retryInMs: retry_in_ms };
    case "run.compensating":
      return { outcome: ending?.status ?? "failed", error: ending?.error ?? null, retryInMs: null };
    case "run.completed":
    case "run.failed":
    case "run.cancelled": {
      const outcome = type.slice("run.".length) as "completed" | "failed" | "cancelled";
      return { outcome, error: error ?? null, retryInMs: null };
    }
    default:
      return undefined;
  }
}

/** An import may say anything. */
const wordOf = (said: unknown): string => (typeof said === "string" ? said : "");

/** Of notes in their order. What is done while a run is undone belongs to no attempt. */
export function attemptsOf(notes: readonly AttemptNote[]): PastAttempt[] {
  const attempts: PastAttempt[] = [];
  let isUndoing = false;
  for (const note of notes) {
    const detail = detailOf(note);
    const type = typeOf(note, detail);
    const last = attempts.at(-1);
    const current = last?.endedAt === null ? last : undefined;
    if (type === "run.resumed" && detail.from === "failed") isUndoing = false;
    if (isUndoing) continue;
    if (type === "run.started") {
      const { attempt: number = 1 } = detail;
      const [workerId, deployment] = [wordOf(detail.worker_id), wordOf(detail.deployment)];
      if (current?.number === number) {
        current.executions++;
        current.workerId = workerId;
        current.deployment = deployment;
      } else
        attempts.push({
          ...{ number, workerId, deployment, startedAt: note.at, endedAt: null, outcome: "" },
          ...{ error: null, retryInMs: null, executions: 1, lost: 0 },
        });
    }
    if (type === "run.lease_expired" && current) current.lost++;
    // Its job reached no handler.
    if (type === "run.released" && current && --current.executions === 0) attempts.pop();
    const end = endOf(type, detail);
    if (end && current) attempts[attempts.length - 1] = { ...current, ...end, endedAt: note.at };
    if (type === "run.compensating") isUndoing = true;
  }
  return attempts;
}

/** By the id of the step. A resume that runs a step again forgets nothing of it here. */
export function triesOf(notes: readonly AttemptNote[]): Map<string, FailedTry[]> {
  const byStep = new Map<string, FailedTry[]>();
  const told = new Set<string>();
  let attempt = 1;
  let workerId = "";
  let execution = 0;
  for (const note of notes) {
    const detail = detailOf(note);
    if (note.type === "run.started")
      [attempt, workerId, execution] = [
        detail.attempt ?? 1,
        wordOf(detail.worker_id),
        detail.execution_seq ?? 0,
      ];
    for (const failure of detail.failed ?? []) {
      if (!failure?.error) continue;
      // A report that came twice.
      const { step_id, tries: number, started_at, ended_at } = failure;
      const one = JSON.stringify([execution, step_id, number, started_at, ended_at]);
      if (told.has(one)) continue;
      told.add(one);
      const tries = byStep.get(failure.step_id) ?? [];
      byStep.set(failure.step_id, tries);
      tries.push({
        ...{ number: failure.tries ?? 1, attempt, workerId, startedAt: failure.started_at },
        ...{ endedAt: failure.ended_at ?? note.at, error: failure.error, retryAt: failure.retry_at ?? null },
      });
    }
  }
  return byStep;
}
