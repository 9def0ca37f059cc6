import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { type Ctes, column, type Sql, sql } from "../../../kit/sql.ts";
import type { Seams, Session, SyncSession } from "../../../store/store.ts";
import { firstAttributes, insertFirstAttributes } from "./attributes/attribute-rows.ts";
import { hasDeadlines, insertDeadlines } from "./deadlines.ts";
import { countLeased, holdLanes, leasedIn, noteLeases, noteLeasesSync } from "./execution/lane-rows.ts";
import { type NewRun, startedAtOnce } from "./run.ts";

export { gateColumns, isGated, passGates, passGatesSync, skippedRuns } from "./gates.ts";

/**
 * The rows of new runs as fragments for the flush that creates them (an emit, later an invoke or a schedule).
 * `source` is a table expression with the columns of `newRunColumns` and `position`, the place of the run's
 * event in its log, already joined with whatever proves that the runs may be.
 */
export const newRunColumns = (runs: readonly NewRun[]) => ({
  ...columnsOf(runs, {
    text: "id environmentId functionId eventId eventName mode actorId laneId",
    bigint: "functionVersion maxAttempts timeoutAt",
  }),
  lease_hash: column.text(runs.map((r) => r.lease?.hash ?? null)),
  worker_id: column.text(runs.map((r) => r.lease?.workerId ?? null)),
  deployment: column.text(runs.map((r) => r.lease?.deployment ?? null)),
  lease_until: column.bigint(runs.map((r) => r.lease?.expiresAt ?? null)),
  ...(runs.some(isWatched) && { watched: column.bigint(runs.map((r) => (isWatched(r) ? 1 : null))) }),
  ...(runs.some(isAhead) && { head_start_ms: column.bigint(runs.map((r) => r.headStartMs ?? null)) }),
  ...(withParents(runs) && {
    parent_run_id: column.text(runs.map((r) => r.parent?.runId ?? null)),
    parent_step_id: column.text(runs.map((r) => r.parent?.stepId ?? null)),
    depth: column.bigint(runs.map((r) => (r.parent ? r.parent.depth + 1 : 0))),
  }),
});

const isWatched = ({ cancels }: NewRun): boolean => cancels !== undefined && cancels.length > 0;

const isAhead = ({ headStartMs }: NewRun): boolean => headStartMs !== undefined;

/** Events that cancel runs; undefined when no run has any. */
function newCancelColumns(runs: readonly NewRun[]) {
  const list = runs.flatMap(({ id, cancels = [] }) =>
    cancels.map((cancel, place) => ({ ...cancel, id, place })),
  );
  if (list.length === 0) return undefined;
  return {
    run_id: column.text(list.map((c) => c.id)),
    step_id: column.text(list.map((c) => `cancel:${c.place}`)),
    event_name: column.text(list.map((c) => c.eventName)),
    match_path: column.text(list.map((c) => c.match.path)),
    value_hash: column.text(list.map((c) => c.match.valueHash)),
    expression: column.text(list.map((c) => c.match.expression)),
  };
}

/**
 * `source`: rows `c` of `newCancelColumns` joined with their runs `n`. The event that starts a run does not
 * end it.
 */
const insertCancels = (source: Sql, now: Instant): Sql => sql`INSERT INTO waits
    (run_id, kind, step_id, environment_id, event_name, match_path, value_hash, expression, from_position, fresh_at)
  SELECT c.run_id, 'cancel', c.step_id, n.environment_id, c.event_name, c.match_path, c.value_hash, c.expression,
    n.position, ${sql.bigint(now)}
  FROM ${source}`;

/** Inserts the matcher's cursor for environments without one. */
const insertMatchers = (source: Sql): Sql => sql`INSERT INTO matchers (environment_id, position)
  SELECT DISTINCT n.environment_id, 0 FROM ${source} WHERE true ORDER BY 1
  ON CONFLICT (environment_id) DO NOTHING`;

/** Whether any run has a parent: without one, the statements leave the columns of parents out. */
const withParents = (runs: readonly NewRun[]): boolean => runs.some((run) => run.parent !== undefined);

const ofRun = sql.raw(", parent_run_id, parent_step_id, depth");
const ofExecution = sql.raw(", parent_run_id");

const insertRuns = (source: Sql, now: Instant, parents: boolean): Sql => sql`INSERT INTO runs
    (id, environment_id, function_id, function_version, event_id, event_name, mode, status, attempt, max_attempts,
     actor_id, created_at, updated_at, timeout_at, execution_seq${parents ? ofRun : sql.empty})
  SELECT n.id, n.environment_id, n.function_id, n.function_version, n.event_id, n.event_name, n.mode, 'active', 1,
    n.max_attempts, n.actor_id, ${sql.bigint(now)}, ${sql.bigint(now)}, n.timeout_at, 0${parents ? ofRun : sql.empty}
  FROM ${source}`;

const hasOf = (runs: readonly NewRun[]) => ({
  parents: withParents(runs),
  watched: runs.some(isWatched),
  ahead: runs.some(isAhead),
});

/**
 * An execution is queued, or leased at creation with the fence at 1. `has` names optional columns of the
 * source.
 */
const insertExecutions = (
  source: Sql,
  now: Instant,
  has: { parents: boolean; watched: boolean; ahead: boolean },
): Sql => sql`INSERT INTO executions
    (run_id, environment_id, function_id, function_version, state, wake_at, execution_seq, attempt, max_attempts,
     lease_hash, worker_id, claimed_at, started_at, step_count, history_count, lost_count, timeout_at, lane_id,
     seen_position${has.parents ? ofExecution : sql.empty}${has.watched ? sql.raw(", watched_at") : sql.empty}${has.ahead ? sql.raw(", head_start_ms") : sql.empty})
  SELECT n.id, n.environment_id, n.function_id, n.function_version,
    CASE WHEN n.lease_hash IS NULL THEN 'queued' ELSE 'leased' END, COALESCE(n.lease_until, ${sql.bigint(now)}${has.ahead ? sql.raw(" - COALESCE(n.head_start_ms, 0)") : sql.empty}),
    CASE WHEN n.lease_hash IS NULL THEN 0 ELSE 1 END, 1, n.max_attempts, n.lease_hash, n.worker_id,
    CASE WHEN n.lease_hash IS NULL THEN NULL ELSE ${sql.bigint(now)} END,
    CASE WHEN n.lease_hash IS NULL THEN NULL ELSE ${sql.bigint(now)} END,
    0, CASE WHEN n.lease_hash IS NULL THEN 1 ELSE 2 END, 0, n.timeout_at, n.lane_id,
    n.position${has.parents ? ofExecution : sql.empty}${has.watched ? sql`, CASE WHEN n.watched IS NOT NULL THEN ${sql.bigint(now)} END` : sql.empty}${has.ahead ? sql.raw(", n.head_start_ms") : sql.empty}
  FROM ${source}`;

const insertFirstHistory = (source: Sql, now: Instant): Sql => sql`INSERT INTO run_history
    (run_id, sequence, environment_id, type, at, detail)
  SELECT n.id, note.sequence, n.environment_id, note.type, ${sql.bigint(now)},
    CASE note.sequence WHEN 1 THEN '{}' ELSE ${startedAtOnce("n")} END
  FROM ${source} CROSS JOIN (SELECT 1 AS sequence, 'run.created' AS type UNION ALL SELECT 2, 'run.started') note
  WHERE note.sequence = 1 OR n.lease_hash IS NOT NULL`;

/** The runs of `run` with all that belongs to them, as further expressions of the statement. */
export function newRunsInserted(
  { rowsFrom }: Pick<Seams, "rowsFrom">,
  runs: readonly NewRun[],
  now: Instant,
): Ctes {
  const run = sql.raw("run n");
  const cancels = newCancelColumns(runs);
  const cancel = sql.raw("cancel c JOIN run n ON n.id = c.run_id");
  const attributes = firstAttributes(runs);
  return {
    "created AS": insertRuns(run, now, withParents(runs)),
    "queued AS": insertExecutions(run, now, hasOf(runs)),
    "noted AS": insertFirstHistory(run, now),
    ...(cancels && {
      "cancel AS MATERIALIZED": sql`SELECT * FROM ${rowsFrom("l", cancels)}`,
      "watched AS": insertCancels(cancel, now),
      "matched AS": insertMatchers(cancel),
    }),
    ...(hasDeadlines(runs) && { "late AS": insertDeadlines({ rowsFrom }, runs, run) }),
    ...(attributes && {
      "marked AS": insertFirstAttributes(
        sql`${rowsFrom("a", attributes)} JOIN run n ON n.id = a.run_id`,
        now,
      ),
    }),
  };
}

/** The same as statements of their own, from rows `n`. */
function newRunStatements(seams: Seams, source: Sql, runs: readonly NewRun[], now: Instant): Sql[] {
  const statements = [
    insertRuns(source, now, withParents(runs)),
    insertExecutions(source, now, hasOf(runs)),
    insertFirstHistory(source, now),
  ];
  if (hasDeadlines(runs)) statements.push(insertDeadlines(seams, runs, source));
  const attributes = firstAttributes(runs);
  if (attributes) {
    const marks = sql`${seams.rowsFrom("a", attributes)} JOIN ${source} ON n.id = a.run_id`;
    statements.push(insertFirstAttributes(marks, now));
  }
  const cancels = newCancelColumns(runs);
  if (!cancels) return statements;
  const cancel = sql`${seams.rowsFrom("c", cancels)} JOIN ${source} ON n.id = c.run_id`;
  statements.push(insertCancels(cancel, now), insertMatchers(cancel));
  return statements;
}

/** For the libSQL text of a flush. */
export function insertNewRuns(
  session: SyncSession,
  source: Sql,
  runs: readonly NewRun[],
  now: Instant,
): void {
  for (const statement of newRunStatements(session.seams, source, runs, now)) session.run(statement);
}

/** A run, and the position of the event that it is started on. */
export interface StartedRun {
  run: NewRun;
  position: number;
}

/** In a transaction that does more than this, on either engine. */
export async function insertStartedRuns(
  session: Session,
  started: readonly StartedRun[],
  now: Instant,
): Promise<void> {
  const runs = started.map(({ run }) => run);
  const source = session.seams.rowsFrom("n", {
    ...newRunColumns(runs),
    position: column.bigint(started.map(({ position }) => position)),
  });
  for (const statement of newRunStatements(session.seams, source, runs, now)) await session.run(statement);
}

/** A concurrency queue in which runs ask to be leased at creation. */
export interface WantedLane {
  laneId: string;
  environmentId: string;
  functionId: string;
  limit: number;
}

export function wantedLanes(runs: readonly NewRun[]): WantedLane[] {
  const lanes = new Map<string, WantedLane>();
  for (const { laneId, lease, environmentId, functionId } of runs)
    if (laneId !== null && lease !== null)
      lanes.set(laneId, { laneId, environmentId, functionId, limit: lease.laneLimit ?? 0 });
  return [...lanes.values()];
}

/**
 * `room` (lane_id, free): leases left in each queue of `asked` without older queued runs, locked until the
 * commit.
 */
export const holdRoom = (source: Sql, now: Instant): Ctes => ({
  "asked AS MATERIALIZED": sql`SELECT * FROM ${source} ORDER BY lane_id`,
  ...holdLanes(now),
  "room AS MATERIALIZED": sql`SELECT a.lane_id, a.lane_limit - ${leasedIn(sql.raw("a.lane_id"))} AS free FROM asked a
      WHERE a.lane_id IN (SELECT lane_id FROM open) AND (
        SELECT q.run_id FROM executions q WHERE q.lane_id = a.lane_id AND q.state = 'queued' LIMIT 1) IS NULL`,
});

export const wantedLaneColumns = (lanes: readonly WantedLane[]) => ({
  ...columnsOf(lanes, { text: "laneId environmentId functionId" }),
  lane_limit: column.bigint(lanes.map((lane) => lane.limit)),
});

const leaseColumns = ["lease_hash", "worker_id", "deployment", "lease_until"];
const leasedColumns = (columns: readonly string[]) =>
  sql.raw(
    columns
      .map((name) =>
        leaseColumns.includes(name) ? `CASE WHEN o.given THEN b.${name} END AS ${name}` : `b.${name}`,
      )
      .join(", "),
  );

/**
 * The rows of `new_run` as `run`. A lease stays only within `room`; a `denied` run has lost it and is queued.
 */
export const leaseInRoom = (columns: readonly string[], now: Instant): Ctes => ({
  "run AS MATERIALIZED": sql`SELECT ${leasedColumns(columns)}, b.lease_hash IS NOT NULL AND NOT o.given AS denied
      FROM (SELECT r.*, row_number() OVER (PARTITION BY r.lane_id, r.lease_hash IS NULL ORDER BY r.id) AS place FROM new_run r) b
        LEFT JOIN room m ON m.lane_id = b.lane_id
        CROSS JOIN LATERAL (SELECT b.lane_id IS NULL OR b.place <= COALESCE(m.free, 0) AS given) o
      ORDER BY b.id`,
  "leased AS": noteLeases(
    sql.raw("SELECT lane_id FROM run WHERE lane_id IS NOT NULL AND lease_hash IS NOT NULL"),
    now,
  ),
});

/** The same for libSQL: answers the runs, those without room stripped of their lease. */
export function leaseInRoomSync(session: SyncSession, runs: readonly NewRun[], now: Instant): NewRun[] {
  const free = new Map<string, number>();
  for (const { laneId, limit } of wantedLanes(runs)) {
    const older = session.one(
      sql`SELECT run_id FROM executions WHERE lane_id = ${laneId} AND state = 'queued' LIMIT 1`,
    );
    free.set(laneId, older ? 0 : limit - countLeased(session, laneId));
  }
  return runs.map((run) => {
    if (run.laneId === null || run.lease === null) return run;
    const left = free.get(run.laneId) ?? 0;
    if (left <= 0) return { ...run, lease: null };
    free.set(run.laneId, left - 1);
    noteLeasesSync(session, { ...run, laneId: run.laneId }, now);
    return run;
  });
}
