import type { Instant } from "../../../kit/clock.ts";
import type { DiscardedStep } from "../../engine/steering/service.ts";

/** One thing that happened to a run, in the order of `sequence`. */
export interface HistoryRow {
  run_id: string;
  sequence: number;
  type: string;
  at: Instant;
  /** JSON text. */
  detail: string;
}

/** An event: a row of history, or one step of a row. */
export interface HistoryEvent {
  /** Stable: made of run, sequence and place. */
  id: string;
  runId: string;
  /** `run.started`, `step.completed`. */
  type: string;
  stepId: string | null;
  at: Instant;
  payload: Record<string, unknown>;
}

interface HistoryDetail extends Record<string, unknown> {
  steps?: { step_id: string; status: string }[];
  step_id?: string;
  /** Tries of steps (`runs/attempts.ts`). */
  failed?: unknown;
  /** The steps that a resume discarded, as they were. */
  discarded?: DiscardedStep[];
}

const detailOf = (row: HistoryRow): HistoryDetail => JSON.parse(row.detail) as HistoryDetail;

/** The steps that a row changed, with the status they came to. */
function stepsOf(row: HistoryRow, detail: HistoryDetail): { step_id: string; status: string }[] {
  const steps = detail.steps ?? [];
  if (detail.step_id === undefined) return steps;
  const word = stepWords[row.type];
  return word === undefined ? steps : [...steps, { step_id: detail.step_id, status: word }];
}

/** The change of the step that the row names. */
const stepWords: Record<string, string> = {
  "run.slept": "sleeping",
  "run.woken": "completed",
};

/** The events of a row: its steps first, then the run's. A report of steps alone has no event of the run. */
export function eventsOf(row: HistoryRow): HistoryEvent[] {
  const { steps: _steps, failed: _failed, discarded, ...rest } = detailOf(row);
  const payload = { ...rest, ...(discarded && { discarded: discarded.map(({ step_id }) => step_id) }) };
  const base = `hist_${row.run_id.slice("run_".length)}_${row.sequence}`;
  const { run_id: runId, at } = row;
  const steps = stepsOf(row, detailOf(row)).map(
    ({ step_id, status }, place): HistoryEvent => ({
      id: `${base}_${place + 1}`,
      runId,
      type: `step.${status}`,
      stepId: step_id,
      at,
      payload: { step_id, status },
    }),
  );
  if (row.type === "run.progress") return steps;
  const stepId = typeof payload.step_id === "string" ? payload.step_id : null;
  return [...steps, { id: base, runId, type: row.type, stepId, at, payload }];
}

/** The run's status after a row of this type; other types do not change it. */
const statusAfter: Record<string, string> = {
  "run.created": "waiting_for_capacity",
  "run.started": "running",
  "run.retrying": "waiting",
  "run.retried": "waiting_for_capacity",
  "run.slept": "paused",
  "run.waiting": "paused",
  "run.invoking": "paused",
  "run.paused": "paused",
  "run.stranded": "paused",
  "run.requeued": "waiting_for_capacity",
  "run.woken": "waiting_for_capacity",
  "run.resumed": "waiting_for_capacity",
  "run.lease_expired": "waiting_for_capacity",
  "run.released": "waiting_for_capacity",
  "run.compensating": "waiting_for_capacity",
  "run.restored": "waiting_for_capacity",
  "run.completed": "completed",
  "run.failed": "failed",
  "run.cancelled": "cancelled",
};

/** Undefined before the run existed. */
export function statusAt(rows: readonly HistoryRow[], at: Instant): string | undefined {
  let status: string | undefined;
  for (const row of rows) if (row.at <= at) status = statusAfter[row.type] ?? status;
  return status;
}

/** A step as it is now, or as it was when a resume discarded it. Outputs and errors are JSON texts. */
export interface PresentStep {
  stepId: string;
  status: string;
  output: string | null;
  error: string | null;
  originalOutput: string | null;
}

/** A step that a resume discarded. */
export interface FormerStep extends PresentStep {
  name: string;
  type: string;
  sequence: number;
  startedAt: Instant | null;
  endedAt: Instant | null;
  durationMs: number | null;
}

/** Resumes that discarded steps, in order. A resume that was undone discarded nothing. */
function discardsOf(rows: readonly HistoryRow[]): { row: HistoryRow; steps: DiscardedStep[] }[] {
  const made: { row: HistoryRow; steps: DiscardedStep[] }[] = [];
  for (const row of rows) {
    if (row.type === "run.resume_undone" && lastResume(rows, row) === made.at(-1)?.row) made.pop();
    const { discarded } = row.type === "run.resumed" ? detailOf(row) : {};
    if (discarded) made.push({ row, steps: discarded });
  }
  return made;
}

const lastResume = (rows: readonly HistoryRow[], before: HistoryRow) =>
  rows.findLast((row) => row.type === "run.resumed" && row.sequence < before.sequence);

/** Steps that the run had at an instant and that the first resume after it discarded, by id. */
export function formerSteps(rows: readonly HistoryRow[], at: Instant): Map<string, FormerStep> {
  const former = new Map<string, FormerStep>();
  for (const { row, steps } of discardsOf(rows)) {
    if (row.at <= at) continue;
    for (const step of steps)
      if (!former.has(step.step_id))
        former.set(step.step_id, {
          stepId: step.step_id,
          name: step.name,
          type: step.type,
          sequence: step.sequence,
          status: step.status,
          output: step.output ?? null,
          error: step.error ?? null,
          originalOutput: step.original_output ?? null,
          startedAt: step.started_at,
          endedAt: step.ended_at,
          durationMs: step.duration_ms,
        });
  }
  return former;
}

/**
 * The part of history that belongs to the step at an instant: from its last discard before to the next one
 * after.
 */
function lifeOf(rows: readonly HistoryRow[], stepId: string, at: Instant): HistoryRow[] {
  const ends = discardsOf(rows).filter(({ steps }) => steps.some((step) => step.step_id === stepId));
  const begins = ends.findLast(({ row }) => row.at <= at)?.row.sequence ?? 0;
  const until = ends.find(({ row }) => row.at > at)?.row.sequence ?? Number.POSITIVE_INFINITY;
  return rows.filter((row) => row.sequence > begins && row.sequence < until);
}

/** The fields of a step that were different at an instant. */
export interface PastStep {
  status: string;
  output: string | null;
  error: string | null;
  originalOutput: string | null;
  patched: boolean;
  injected: boolean;
}

/**
 * A step at an instant; undefined when the run did not have it then. Its output comes from the first later
 * patch, which keeps what it replaced; else from the resume that discarded the step (`formerSteps`); else
 * from the step's row.
 */
export function stepAt(history: readonly HistoryRow[], step: PresentStep, at: Instant): PastStep | undefined {
  const rows = lifeOf(history, step.stepId, at);
  let status: string | undefined;
  let patched = false;
  let injected = false;
  let replacedLater: string | null | undefined;
  for (const row of rows) {
    const detail = detailOf(row);
    if (row.type === "step.patched") {
      if (detail.step_id !== step.stepId) continue;
      if (row.at > at) {
        if (replacedLater === undefined) replacedLater = textOf(detail);
        continue;
      }
      status = "completed";
      if (detail.injected === true) injected = true;
      else patched = true;
      continue;
    }
    if (row.at > at) continue;
    for (const one of stepsOf(row, detail)) if (one.step_id === step.stepId) status = one.status;
  }
  if (status === undefined) return undefined;
  const finished = status === "completed";
  return {
    status,
    output: finished ? (replacedLater === undefined ? step.output : replacedLater) : null,
    error: status === step.status ? step.error : null,
    originalOutput: finished && (patched || injected) ? step.originalOutput : null,
    patched,
    injected,
  };
}

/** What a patch replaced. Rows from before `had_output` cannot distinguish null from no output. */
const textOf = ({ previous_output: previous, had_output: had }: HistoryDetail): string | null =>
  had === true || (previous !== undefined && previous !== null) ? JSON.stringify(previous) : null;

/** Which events a recording shows. */
export const isShown = (profile: string | undefined, type: string): boolean =>
  profile === "run_lifecycle"
    ? type.startsWith("run.")
    : profile === "steps"
      ? type.startsWith("step.")
      : true;

const dull = new Set(["run.released", "step.sleeping", "step.waiting"]);

/** Whether a short timeline should show it. */
export const isSignificant = (type: string): boolean => !dull.has(type);

export function summaryOf(event: HistoryEvent): string {
  const [subject, what = ""] = event.type.split(".");
  const words = what.replaceAll("_", " ");
  const name = event.stepId !== null && subject === "step" ? `Step ${event.stepId}` : "Run";
  const { error } = event.payload as { error?: { message?: string } | null };
  return error?.message ? `${name} ${words}: ${error.message}` : `${name} ${words}`;
}
