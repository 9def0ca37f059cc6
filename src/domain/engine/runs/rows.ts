import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { column, containsIgnoringCase, countOf, type Sql, searchCharsMax, sql } from "../../../kit/sql.ts";
import { stepRowId } from "../../../kit/step-id.ts";
import type { Seams, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import {
  type AttributeRange,
  attributesOf,
  attributesOfRun,
  hasAttribute,
} from "./attributes/attribute-rows.ts";
import { neverWakesAt } from "./execution/commit-reports.ts";
import { type AskedStatus, statusOf, storedStatuses } from "./rules.ts";
import {
  type CompletedStep,
  type ExecutionState,
  markedRun,
  markedStep,
  type RedactedRow,
  type RedactedRunRow,
  type Run,
  type RunError,
  type Step,
  type StepStatus,
  type StepType,
} from "./run.ts";

interface RunRow
  extends RedactedRunRow,
    RowOf<
      "runs",
      `id, environment_id, function_id, function_version, event_id, event_name, status, attempt,
  max_attempts, actor_id, worker_id, output, error, cancellation_cause, parent_run_id,
  parent_step_id, created_at, started_at, ended_at, updated_at, timeout_at, undo_failed,
  nondeterminism, error_group`
    > {
  mode: "pull" | "push";
  input: string | null;
  input_stream: string | null;
  state: ExecutionState | null;
  claimed_at: number | null;
  is_compensating: number | null;
  pinned_to: string | null;
  moves_at: number | null;
  /** JSON text of names and stored values. */
  attributes: string | null;
}

const plainColumns =
  sql.raw(`r.id, r.environment_id, r.function_id, r.function_version, r.event_id, r.event_name, r.mode,
  r.status, COALESCE(e.attempt, r.attempt) AS attempt, r.max_attempts, r.actor_id,
  COALESCE(e.worker_id, r.worker_id) AS worker_id, v.data AS input, v.entity_id AS input_stream, r.output, r.error,
  r.cancellation_cause, r.parent_run_id, r.parent_step_id, r.created_at, COALESCE(e.started_at, r.started_at) AS started_at, r.ended_at,
  COALESCE(e.claimed_at, r.updated_at) AS updated_at, r.timeout_at, e.state, e.claimed_at,
  CASE WHEN e.ending IS NOT NULL THEN 1 END AS is_compensating, r.undo_failed, r.nondeterminism,
  e.pinned_to, CASE WHEN e.state = 'stranded' AND e.wake_at < ${neverWakesAt} THEN e.wake_at END AS moves_at, r.error_group, r.redacted_at, r.redacted_by, v.redacted_at AS event_redacted_at, v.redacted_by AS event_redacted_by`);

const runColumns = (seams: Pick<Seams, "objectOf">): Sql => sql`${plainColumns},
  ${attributesOfRun(seams)} AS attributes`;

const runTables = sql.raw(`runs r LEFT JOIN executions e ON e.run_id = r.id
  LEFT JOIN events v ON v.id = r.event_id AND v.environment_id || '' = r.environment_id`);

export interface RunFilter {
  environmentId: string;
  functionId?: string;
  eventId?: string;
  /** Of run id, function id or event name; what looks like the id of a run or an event is one. */
  search?: string;
  statuses: readonly AskedStatus[];
  since?: Instant;
  until?: Instant;
  /** Only runs with compensations that failed for good. */
  undoFailed?: true;
  /** Of their failure. */
  errorGroup?: string;
  eventName?: string;
  /** Held by the first 2,048 characters of their failure, in either case. */
  errorText?: string;
  /** Each of them must be met. */
  attributes?: readonly AttributeRange[];
}

/** Ids are made of these letters, and begin with the time; so many name a second of it. */
const idText = /^(run|evt)_0[0-9a-hjkmnp-tv-z]{7,25}$/;

const idLength = 30;

/**
 * Runs `r` that a search names: by their id or the beginning of it, or by the id of their event. Undefined
 * for any other text.
 */
export function namedBy(search: string, alias = ""): Sql | undefined {
  const text = search.toLowerCase();
  const [, kind] = idText.exec(text) ?? [];
  if (kind === undefined || (kind === "evt" && text.length < idLength)) return undefined;
  const column = sql.raw(`${alias}${kind === "run" ? "id" : "event_id"}`);
  return text.length === idLength
    ? sql`${column} = ${text}`
    : sql`${column} >= ${text} AND ${column} < ${`${text}~`}`;
}

function searchCondition(search: string): Sql {
  const parts = ["r.id", "r.function_id", "r.event_name"].map((column) =>
    containsIgnoringCase(column, search),
  );
  return namedBy(search, "r.") ?? sql`(${sql.join(parts, " OR ")})`;
}

/** What the text of an error has beside what people wrote: it is found for none of it. */
const errorMarks = [
  ...['"message":', '"code":', '"stack":', '"exhausted_step":'],
  ...['"retryable":true', '"retryable":false'],
];

/** Errors are compared as they are stored, in JSON: engines differ in what they read of it. */
function errorCondition(text: string): Sql {
  const stored = `substr(r.error, 1, ${searchCharsMax})`;
  const bare = errorMarks.reduce((column, mark) => `replace(${column}, '${mark}', ',')`, stored);
  return sql`r.status = 'failed' AND ${containsIgnoringCase(bare, JSON.stringify(text).slice(1, -1))}`;
}

function conditionsBeside(filter: RunFilter, status: (filter: RunFilter) => Sql): Sql[] {
  const list = [sql`r.environment_id = ${filter.environmentId}`];
  if (filter.functionId !== undefined) list.push(sql`r.function_id = ${filter.functionId}`);
  if (filter.eventId !== undefined) list.push(sql`r.event_id = ${filter.eventId}`);
  if (filter.since !== undefined) list.push(sql`r.created_at >= ${filter.since}`);
  if (filter.until !== undefined) list.push(sql`r.created_at <= ${filter.until}`);
  if (filter.search !== undefined) list.push(searchCondition(filter.search));
  if (filter.undoFailed) list.push(sql.raw("r.undo_failed IS NOT NULL"));
  if (filter.errorGroup !== undefined) list.push(sql`r.error_group = ${filter.errorGroup}`);
  if (filter.eventName !== undefined) list.push(sql`r.event_name = ${filter.eventName}`);
  if (filter.errorText !== undefined) list.push(errorCondition(filter.errorText));
  for (const range of filter.attributes ?? []) list.push(hasAttribute(filter.environmentId, range));
  if (filter.statuses.length > 0) list.push(status(filter));
  return list;
}

/** Of all runs: each status by the index that finds it. */
export const conditions = (filter: RunFilter): Sql[] => conditionsBeside(filter, statusCondition);

/** Of a run that was found already. */
export const lookups = (filter: RunFilter): Sql[] => conditionsBeside(filter, statusLookup);

/** Live runs by their executions, failed and cancelled ones by `trouble`. */
function statusCondition({ environmentId, statuses }: RunFilter): Sql {
  const { ended, states } = storedStatuses(statuses);
  const troubles = ended.filter((status) => status !== "completed");
  const parts: Sql[] = [];
  if (states.length > 0)
    parts.push(sql`r.id IN (SELECT run_id FROM executions
      WHERE environment_id = ${environmentId} AND state IN ${sql.list(states)})`);
  if (troubles.length > 0) parts.push(sql`r.trouble IN ${sql.list(troubles)}`);
  if (ended.includes("completed")) parts.push(sql`r.status = 'completed'`);
  return sql`(${sql.join(parts, " OR ")})`;
}

function statusLookup({ statuses }: RunFilter): Sql {
  const { ended, states } = storedStatuses(statuses);
  const parts: Sql[] = [];
  if (ended.length > 0) parts.push(sql`r.status IN ${sql.list(ended)}`);
  if (states.length > 0)
    parts.push(sql`(SELECT x.state FROM executions x WHERE x.run_id = r.id) IN ${sql.list(states)}`);
  return sql`(${sql.join(parts, " OR ")})`;
}

export async function getRun(store: Store, environmentId: string, runId: string): Promise<Run | undefined> {
  const row = await store.one<RunRow>(sql`SELECT ${runColumns(store.seams)} FROM ${runTables}
    WHERE r.id = ${runId} AND r.environment_id = ${environmentId}`);
  return row && toRun(row);
}

/** These runs, in the order of the ids; what is gone is left out. */
export async function runsById(store: Store, environmentId: string, ids: readonly string[]): Promise<Run[]> {
  if (ids.length === 0) return [];
  const rows = await store.all<RunRow>(sql`SELECT ${runColumns(store.seams)} FROM ${runTables}
    WHERE r.id ${store.seams.among(column.text(ids))} AND r.environment_id || '' = ${environmentId}`);
  const byId = new Map(rows.map((row) => [row.id, row]));
  return ids.flatMap((id) => {
    const row = byId.get(id);
    return row ? toRun(row) : [];
  });
}

/** Active runs of all environments, counted up to `most`. */
export const countActive = (store: Store, most: number): Promise<number> =>
  countOf(store, sql`FROM executions`, most);

interface StepRow
  extends RedactedRow,
    RowOf<
      "steps",
      `run_id, step_id, name, sequence, output, error, attempt, started_at, ended_at, duration_ms,
  original_output, patched_at, patched_by, compensation_for, sleep_until, input, wait_event_name,
  wait_timeout_at, created_at, updated_at`
    > {
  type: StepType;
  status: StepStatus;
}

export async function getSteps(
  store: Store,
  environmentId: string,
  runId: string,
  stepIds?: readonly string[],
): Promise<Step[]> {
  const one = stepIds === undefined ? sql`` : sql` AND step_id IN ${sql.list(stepIds)}`;
  const rows =
    await store.all<StepRow>(sql`SELECT run_id, step_id, name, type, sequence, status, output, error,
      attempt, started_at, ended_at, duration_ms, original_output, patched_at, patched_by, compensation_for,
      sleep_until, input, wait_event_name, wait_timeout_at, created_at, updated_at, redacted_at, redacted_by
    FROM steps WHERE run_id = ${runId} AND environment_id = ${environmentId}${one} ORDER BY sequence, created_at`);
  return rows.map(toStep);
}

/** How large the values of each step of a run are, in order. */
export const stepSizes = (
  store: Store,
  environmentId: string,
  runId: string,
): Promise<{ environment_id: string; step_id: string; bytes: number }[]> =>
  store.all(sql`SELECT environment_id, step_id, COALESCE(octet_length(output), 0) + COALESCE(octet_length(error), 0)
      + COALESCE(octet_length(original_output), 0) + COALESCE(octet_length(input), 0) AS bytes
    FROM steps WHERE run_id = ${runId} AND environment_id = ${environmentId} ORDER BY sequence, created_at`);

/** What of these runs the completed steps hold, in bytes. */
export const completedBytes = (
  store: Store,
  runIds: readonly string[],
): Promise<{ run_id: string; bytes: number }[]> =>
  store.all(sql`SELECT i.run_id, (SELECT CAST(COALESCE(sum(octet_length(s.output)), 0) AS BIGINT) FROM steps s
      WHERE s.run_id = i.run_id AND s.status = 'completed') AS bytes
    FROM ${store.seams.rowsFrom("i", { run_id: column.text(runIds) })}`);

/**
 * Completed steps of these runs, in order: handlers do not run them again. Also failed ones that are tried by
 * themselves; and of a run that is compensating those that failed or were not awaited any longer: its handler
 * must come the same way once more.
 */
export async function completedSteps(
  store: Store,
  runIds: readonly string[],
  now: Instant,
): Promise<Map<string, CompletedStep[]>> {
  const ids = column.text(runIds);
  const rows = await store.all<
    CompletedStep & { retry_at: number | null }
  >(sql`SELECT s.run_id, s.step_id, s.name, s.type, s.status, s.output, s.is_kept, s.sequence,
      CASE WHEN s.status <> 'completed' THEN s.error END AS error,
      CASE WHEN s.status = 'timed_out' THEN s.on_timeout END AS on_timeout,
      CASE WHEN s.status = 'failed' THEN s.sleep_until END AS retry_at
    FROM ${store.seams.rowsFrom("i", { run_id: ids })} JOIN steps s ON s.run_id = i.run_id ${store.seams.byKey("s.run_id", ids)}
    WHERE s.status = 'completed'
      OR (s.status = 'failed' AND (s.failure_told_at IS NOT NULL OR s.sleep_until IS NOT NULL))
      OR (s.status = 'timed_out' AND s.on_timeout IS NOT NULL)
      OR (s.status IN ('failed', 'timed_out')
        AND EXISTS (SELECT 1 FROM executions e WHERE e.run_id = s.run_id AND e.ending IS NOT NULL))
    ORDER BY s.run_id, s.sequence, s.seen_position`);
  const byRun = new Map<string, CompletedStep[]>(runIds.map((id) => [id, []]));
  for (const row of rows) {
    if (row.retry_at !== null) row.error = dueIn(row.error, row.retry_at - now);
    byRun.get(row.run_id)?.push(row);
  }
  return byRun;
}

/** The worker's clock is not the server's: the answer says how long to wait. */
const dueIn = (error: string | null, ms: number): string =>
  JSON.stringify({ ...JSON.parse(error ?? "{}"), retry_in_ms: Math.max(0, ms) });

/**
 * What a failed attempt is decided by. Read without a lock: the fence pins it until the report commits.
 */
export type AttemptRow = RowOf<
  "executions",
  "run_id, environment_id, function_id, function_version, attempt, max_attempts, undo_count, ending"
>;

export async function attemptsOf(
  store: Store,
  targets: readonly { environmentId: string; runId: string }[],
): Promise<Map<string, AttemptRow>> {
  const run_id = column.text(targets.map((target) => target.runId));
  const rows =
    await store.all<AttemptRow>(sql`SELECT e.run_id, e.environment_id, e.function_id, e.function_version,
      e.attempt, e.max_attempts, e.undo_count, e.ending
    FROM ${store.seams.rowsFrom("v", {
      run_id,
      environment_id: column.text(targets.map((target) => target.environmentId)),
    })} JOIN executions e ON e.run_id = v.run_id AND e.environment_id || '' = v.environment_id
      ${store.seams.byKey("e.run_id", run_id)}`);
  return new Map(rows.map((row) => [row.run_id, row]));
}

/** Data of the events that started these runs. */
export async function triggersOf(
  store: Store,
  targets: readonly { environmentId: string; runId: string }[],
): Promise<Map<string, unknown>> {
  const rows = await store.all<{ id: string; data: string }>(sql`SELECT r.id, v.data
    FROM ${store.seams.rowsFrom("i", {
      ...columnsOf(targets, { text: "runId environmentId" }),
    })} JOIN runs r ON r.id = i.run_id AND r.environment_id = i.environment_id
      JOIN events v ON v.id = r.event_id`);
  return new Map(rows.map((row) => [row.id, JSON.parse(row.data) as unknown]));
}

/** The earliest planned wake of any environment, of those at `from` or later. */
export async function nextWakeAt(store: Store, from?: Instant): Promise<Instant | undefined> {
  const since = (name: string) => (from === undefined ? sql.empty : sql`AND ${sql.raw(name)} >= ${from}`);
  const row = await store.one<{ at: number | null }>(sql`SELECT min(at) AS at FROM (
    SELECT (SELECT wake_at FROM executions WHERE state <> 'queued' ${since("wake_at")} ORDER BY wake_at LIMIT 1) AS at
    UNION ALL
    SELECT (SELECT timeout_at FROM executions WHERE timeout_at IS NOT NULL ${since("timeout_at")}
      ORDER BY timeout_at LIMIT 1)) due`);
  return row?.at ?? undefined;
}

const toError = (text: string | null): RunError | null =>
  text === null ? null : (JSON.parse(text) as RunError);

function toRun(row: RunRow): Run {
  const run: Run = {
    id: row.id,
    environmentId: row.environment_id,
    functionId: row.function_id,
    functionVersion: row.function_version,
    eventId: row.event_id,
    eventName: row.event_name,
    mode: row.mode,
    ...statusOf(row.status, row.state),
    attempt: row.attempt,
    maxAttempts: row.max_attempts,
    actorId: row.actor_id,
    workerId: row.worker_id,
    input: row.input,
    inputStream: row.input_stream,
    output: row.output,
    error: toError(row.error),
    cancellationCause: row.cancellation_cause,
    parentRunId: row.parent_run_id,
    parentStepId: row.parent_step_id,
    createdAt: row.created_at,
    startedAt: row.started_at,
    endedAt: row.ended_at,
    updatedAt: row.updated_at,
    timeoutAt: row.timeout_at,
    claimedAt: row.claimed_at,
    isCompensating: row.is_compensating !== null,
    undoFailed: row.undo_failed ?? 0,
    deviations: row.nondeterminism === null ? [] : (JSON.parse(row.nondeterminism) as Run["deviations"]),
    attributes: attributesOf(row.attributes),
    errorGroup: row.error_group,
    ...{ pinnedTo: row.pinned_to, movesAt: row.moves_at },
  };
  return markedRun(run, row);
}

function toStep(row: StepRow): Step {
  const step: Step = {
    id: stepRowId(row.run_id, row.step_id),
    runId: row.run_id,
    stepId: row.step_id,
    name: row.name,
    type: row.type,
    sequence: row.sequence,
    status: row.status,
    output: row.output,
    error: toError(row.error),
    attempt: row.attempt,
    startedAt: row.started_at,
    endedAt: row.ended_at,
    durationMs: row.duration_ms,
    originalOutput: row.original_output,
    patchedAt: row.patched_at,
    patchedBy: row.patched_by,
    compensationFor: row.compensation_for,
    sleepUntil: row.sleep_until,
    input: row.input,
    waitEventName: row.wait_event_name,
    waitTimeoutAt: row.wait_timeout_at,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  };
  return markedStep(step, row);
}
