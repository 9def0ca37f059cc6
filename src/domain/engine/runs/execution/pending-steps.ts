import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { type Ctes, column, type Sql, sql } from "../../../../kit/sql.ts";
import type { Seams, SyncSession } from "../../../../store/store.ts";
import { anyPath } from "../../waits/rules.ts";
import { type ExecutionChange, nameOfCondition, type PendingStep } from "./execution-change.ts";

interface PendingOfReport {
  /** Place of the report in its flush, from 1. */
  report: number;
  step: PendingStep;
}

export const pendingOf = (changes: readonly ExecutionChange[]): PendingOfReport[] =>
  changes.flatMap(({ pending }, at) => (pending ? { report: at + 1, step: pending } : []));

const eventOf = ({ step }: PendingOfReport) => (step.for.kind === "event" ? step.for : undefined);
const invokeOf = ({ step }: PendingOfReport) => ("functionId" in step.for ? step.for : undefined);
const manyOf = ({ step }: PendingOfReport) => ("conditions" in step.for ? step.for : undefined);

const pendingColumns = (list: readonly PendingOfReport[]) => ({
  ...columnsOf(
    list.map(({ step }) => step),
    {
      text: "stepId name input onTimeout",
      bigint: "sequence startedAt timeoutAt",
    },
  ),
  report: column.bigint(list.map((p) => p.report)),
  told: column.bigint(list.map((p) => (p.step.takesFailedSteps ? 1 : null))),
  kind: column.text(list.map((p) => p.step.for.kind)),
  event_name: column.text(list.map((p) => eventOf(p)?.name ?? namesOf(p) ?? null)),
  match_path: column.text(list.map((p) => eventOf(p)?.match.path ?? null)),
  value_hash: column.text(list.map((p) => eventOf(p)?.match.valueHash ?? null)),
  expression: column.text(list.map((p) => eventOf(p)?.match.expression ?? null)),
  function_id: column.text(list.map((p) => invokeOf(p)?.functionId ?? null)),
  any_function: column.bigint(list.map((p) => (invokeOf(p)?.anyFunction ? 1 : null))),
});

const namesOf = (pending: PendingOfReport): string | undefined =>
  manyOf(pending)?.conditions.map(nameOfCondition).join(", ");

/** The conditions of steps that wait for several things. */
const conditionColumns = (list: readonly PendingOfReport[]) => {
  const all = list.flatMap((pending) =>
    (manyOf(pending)?.conditions ?? []).map((one, number) => ({
      ...{ name: one.name, report: pending.report, number, mode: manyOf(pending)!.mode },
      event: "eventName" in one ? one : undefined,
      state: "state" in one ? one.state : undefined,
    })),
  );
  return {
    ...columnsOf(all, { text: "mode", bigint: "report number" }),
    condition: column.text(all.map((one) => one.name)),
    event_name: column.text(all.map(({ event }) => event?.eventName ?? "")),
    match_path: column.text(all.map(({ event }) => event?.match.path ?? anyPath)),
    value_hash: column.text(all.map(({ event }) => event?.match.valueHash ?? "")),
    expression: column.text(all.map(({ event }) => event?.match.expression ?? null)),
    place: column.text(all.map(({ state }) => state?.place ?? null)),
    subject: column.text(all.map(({ state }) => state?.subject ?? null)),
    test: column.text(all.map(({ state }) => state?.test ?? null)),
    bound: column.bigint(all.map(({ state }) => state?.bound ?? null)),
    wanted: column.text(all.map(({ state }) => state?.wanted ?? null)),
  };
};

/**
 * Inserts from `source a` with the columns above and those of the run's execution, each its own statement.
 */
const inserts = (source: Sql, place: Sql, now: Instant, conditions: Sql) => {
  const at = sql.bigint(now);
  return {
    // A completed step is never written again; a child that an earlier yield started stays this step's child.
    steps: sql`INSERT INTO steps (run_id, step_id, environment_id, name, type, sequence, status, attempt, started_at,
        input, wait_event_name, wait_timeout_at, on_timeout, failure_told_at, created_at, updated_at, seen_position)
      SELECT a.run_id, a.step_id, a.environment_id, a.name,
        CASE WHEN a.kind IN ('event', 'events', 'states') THEN 'wait_for_event' ELSE 'invoke_function' END, ${place}, 'waiting', a.attempt,
        a.started_at, a.input, a.event_name, CASE WHEN a.kind <> 'invoke_async' THEN a.timeout_at END,
        a.on_timeout,
        CASE WHEN a.told IS NOT NULL THEN ${at} END, ${at}, ${at}, NULLIF(a.seen_position, 0)
      FROM ${source} WHERE true
      ON CONFLICT (run_id, step_id) DO UPDATE SET type = excluded.type, status = excluded.status, output = NULL,
        error = NULL, attempt = excluded.attempt, ended_at = NULL, duration_ms = NULL, input = excluded.input,
        wait_event_name = excluded.wait_event_name, wait_timeout_at = excluded.wait_timeout_at,
        on_timeout = excluded.on_timeout, failure_told_at = excluded.failure_told_at, updated_at = excluded.updated_at, seen_position = excluded.seen_position
        WHERE steps.status <> 'completed'`,
    // Executions from before migration 4 have no `seen_position`: their waits begin at the head of the log.
    waits: sql`INSERT INTO waits (run_id, kind, step_id, environment_id, event_name, match_path, value_hash, expression,
        from_position, fresh_at)
      SELECT a.run_id, 'wait', a.step_id, a.environment_id, a.event_name, a.match_path, a.value_hash, a.expression,
        COALESCE(NULLIF(a.seen_position, 0),
          (SELECT h.position FROM heads h WHERE h.environment_id = a.environment_id), 0), ${at}
      FROM ${source} WHERE a.kind = 'event'
      ON CONFLICT (run_id, kind, step_id) DO UPDATE SET event_name = excluded.event_name,
        match_path = excluded.match_path, value_hash = excluded.value_hash, expression = excluded.expression,
        from_position = excluded.from_position, fresh_at = excluded.fresh_at`,
    // Each condition is a row of its own, which no step of the run has as its id.
    many: sql`INSERT INTO waits (run_id, kind, step_id, environment_id, event_name, match_path, value_hash, expression,
        from_position, fresh_at, of_step, condition, mode, place, subject, test, bound, wanted, due_at)
      SELECT a.run_id, 'wait', a.step_id || '#' || c.number, a.environment_id, c.event_name, c.match_path, c.value_hash,
        c.expression, COALESCE(NULLIF(a.seen_position, 0),
          (SELECT h.position FROM heads h WHERE h.environment_id = a.environment_id), 0),
        CASE WHEN c.place IS NULL THEN ${at} END, a.step_id, c.condition, c.mode,
        c.place, c.subject, c.test, c.bound, c.wanted, CASE WHEN c.place IS NOT NULL THEN ${at} END
      FROM ${conditions} JOIN ${source} ON a.report = c.report WHERE true
      ON CONFLICT (run_id, kind, step_id) DO UPDATE SET event_name = excluded.event_name,
        match_path = excluded.match_path, value_hash = excluded.value_hash, expression = excluded.expression,
        from_position = excluded.from_position, fresh_at = excluded.fresh_at, of_step = excluded.of_step,
        condition = excluded.condition, mode = excluded.mode, met = NULL, place = excluded.place,
        subject = excluded.subject, test = excluded.test, bound = excluded.bound, wanted = excluded.wanted,
        due_at = excluded.due_at`,
    matchers: sql`INSERT INTO matchers (environment_id, position)
      SELECT DISTINCT a.environment_id, 0 FROM ${source} WHERE a.kind IN ('event', 'events') ORDER BY 1
      ON CONFLICT (environment_id) DO NOTHING`,
    invocations: sql`INSERT INTO invocations (parent_run_id, step_id, environment_id, function_id, kind, any_function, due_at,
        created_at)
      SELECT a.run_id, a.step_id, a.environment_id, a.function_id, a.kind, a.any_function, ${at}, ${at}
      FROM ${source} WHERE a.kind NOT IN ('event', 'events', 'states')
      ON CONFLICT (parent_run_id, step_id) DO UPDATE SET function_id = excluded.function_id, kind = excluded.kind,
        any_function = excluded.any_function, due_at = excluded.due_at`,
  };
};

/** Ctes of `commitReportsFlush` behind its `valid`; undefined when no step is pending. */
export function pendingParts(
  changes: readonly ExecutionChange[],
  now: Instant,
  seams: Seams,
): Ctes | undefined {
  const list = pendingOf(changes);
  if (list.length === 0) return undefined;
  const parts = inserts(
    sql.raw("asked a"),
    sql.raw(
      "CASE WHEN a.sequence < 0 THEN GREATEST(a.step_count, a.steps_top) - a.sequence - 1 ELSE a.sequence END",
    ),
    now,
    list.some(manyOf) ? seams.rowsFrom("c", conditionColumns(list)) : sql.empty,
  );
  return {
    "asked AS MATERIALIZED": sql`SELECT p.*, v.run_id, v.environment_id, v.attempt, v.step_count, v.steps_top, v.seen_position
      FROM ${seams.rowsFrom("p", pendingColumns(list))} JOIN valid v ON v.ord = p.report ORDER BY v.run_id`,
    "asked_steps AS": parts.steps,
    ...(list.some(eventOf) && { "asked_waits AS": parts.waits }),
    ...(list.some(manyOf) && { "asked_many AS": parts.many }),
    ...(!list.every(invokeOf) && { "asked_matchers AS": parts.matchers }),
    ...(list.some(invokeOf) && { "asked_invocations AS": parts.invocations }),
  };
}

interface PlacedStep {
  step: PendingStep;
  runId: string;
  environmentId: string;
  attempt: number;
  seenPosition: number;
  sequence: number;
}

/** The statements that write pending steps of executions that the caller has locked. */
export function pendingStatements(seams: Seams, list: readonly PlacedStep[], now: Instant): Sql[] {
  const pending = list.map(({ step }, at) => ({ report: at + 1, step }));
  const source = seams.rowsFrom("a", {
    ...pendingColumns(pending),
    ...columnsOf(list, { text: "runId environmentId", bigint: "attempt seenPosition sequence" }),
  });
  const conditions = pending.some(manyOf) ? seams.rowsFrom("c", conditionColumns(pending)) : sql.empty;
  const parts = inserts(source, sql.raw("a.sequence"), now, conditions);
  return [
    parts.steps,
    ...(pending.some(eventOf) ? [parts.waits] : []),
    ...(pending.some(manyOf) ? [parts.many] : []),
    ...(pending.every(invokeOf) ? [] : [parts.matchers]),
    ...(pending.some(invokeOf) ? [parts.invocations] : []),
  ];
}

/** The same on libSQL, for reports whose fences hold. */
export function insertPending(
  session: SyncSession,
  valid: readonly {
    change: ExecutionChange;
    row: { attempt: number; step_count: number; seen_position: number };
  }[],
  now: Instant,
): void {
  const list = pendingOf(valid.map((v) => v.change));
  if (list.length === 0) return;
  const placed = list.map(({ report, step }): PlacedStep => {
    const { change, row } = valid[report - 1]!;
    const { sequence } = step;
    return {
      step,
      ...{ runId: change.runId, environmentId: change.environmentId },
      ...{ attempt: row.attempt, seenPosition: row.seen_position },
      sequence: sequence < 0 ? Math.max(row.step_count, change.stepsTop) - sequence - 1 : sequence,
    };
  });
  for (const statement of pendingStatements(session.seams, placed, now)) session.run(statement);
}
