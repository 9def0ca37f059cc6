import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import type { QueueHint } from "../run.ts";
import { noteSteps, stepKey, tookUntil } from "../step-moves.ts";
import { countedRanks } from "./rank-met.ts";

/** An execution under its row's lock, with the step that it waits at. */
export interface WaitingRow
  extends RowOf<"executions", "run_id, environment_id, function_id, state, waiting_step_id, history_count"> {
  /** For a run with several waits: others that are met within that time are handed over with it. */
  gather_ms: number | null;
}

/** Locks: executions sorted by run. Runs that are over have none. */
export async function lockWaiting(
  session: Session,
  runIds: readonly string[],
): Promise<Map<string, WaitingRow>> {
  const rows =
    await session.all<WaitingRow>(sql`SELECT run_id, environment_id, function_id, state, waiting_step_id, history_count,
      gather_ms
    FROM executions WHERE run_id ${session.seams.among(column.text(runIds))}
    ORDER BY run_id ${session.seams.holdRow}`);
  return new Map(rows.map((row) => [row.run_id, row]));
}

/** Stands for the step of a run that is met and continues once more has been gathered, within its attempt. */
export const gathering = "";

/** Whether what is met brings the run on; under a lease, and between attempts, it only ends its step. */
export const isParked = ({
  state,
  waiting_step_id,
}: Pick<WaitingRow, "state" | "waiting_step_id">): boolean =>
  state === "waiting" ||
  state === "invoking" ||
  state === "sleeping" ||
  (state === "retrying" && waiting_step_id !== null && waiting_step_id !== gathering);

/** A person holds the run: what it waits for is compared again when it is resumed. */
export const isHeld = (row: Pick<WaitingRow, "state"> | undefined): boolean =>
  row?.state === "held" || row?.state === "resuming";

/** The outcome with which a waiting run continues. */
export interface Resolution {
  row: WaitingRow;
  stepId: string;
  status: "completed" | "failed" | "timed_out";
  /** Index of the output in `texts`, from 1, because many waits end with one event. Null for none. */
  output: number | null;
  /** JSON text. */
  error: string | null;
  /** The position that the run has seen now; null: the head of its log; `kept`: as far as before. */
  seenPosition: number | null | "kept";
  /** JSON text of the history row `run.woken`. */
  detail: string;
}

/** Others may have come since it was asked for: its rank is after theirs. */
const isOneOfSeveral = ({ row, stepId }: Resolution): boolean =>
  row.gather_ms !== null || row.waiting_step_id !== stepId;

/** Stands for `kept`: no log has such a position. */
const keptPosition = -1;

/**
 * Writes the outcomes of steps, and queues their runs as far as they are parked. A run may have several: it
 * waits for all of its open steps. The caller holds the executions' locks.
 */
export async function resolveSteps(
  session: Session,
  list: readonly Resolution[],
  texts: readonly string[],
  now: Instant,
): Promise<void> {
  if (list.length === 0) return;
  const { rowsFrom, byKey } = session.seams;
  const run_id = column.text(list.map((r) => r.row.run_id));
  const at = sql.bigint(now);
  const seen_position = column.bigint(
    list.map((r) => (r.seenPosition === "kept" ? keptPosition : r.seenPosition)),
  );
  const rankOf = countedRanks(now);
  await session.run(sql`UPDATE steps SET status = v.status, output = o.output, error = v.error, ended_at = ${at},
      updated_at = ${at}, duration_ms = ${tookUntil(now)}, seen_position = ${seenFrom("steps")},
      sequence = COALESCE(v.sequence, steps.sequence)
    FROM ${rowsFrom("v", {
      run_id,
      seen_position,
      ...columnsOf(list, { text: "stepId status error" }),
      sequence: column.bigint(list.map((r) => (isOneOfSeveral(r) ? rankOf(r.row.run_id) : null))),
      place: column.bigint(list.map((r) => r.output)),
    })} LEFT JOIN ${rowsFrom("o", { output: column.text(texts) })} ON o.ord = v.place
    WHERE steps.run_id = v.run_id AND steps.step_id = v.step_id AND steps.status = 'waiting'
      ${byKey("steps.run_id", run_id)}`);
  noteSteps(
    session,
    list.map(({ row, stepId }) => ({ ...row, step_id: stepId })),
    now,
  );
  // The last of a run's: what it has seen then is the most.
  const parked = [
    ...new Map(list.filter(({ row }) => isParked(row)).map((one) => [one.row.run_id, one])).values(),
  ];
  if (parked.length === 0) return;
  const parkedIds = column.text(parked.map((r) => r.row.run_id));
  await session.run(sql`UPDATE executions SET state = CASE WHEN gather_ms IS NULL THEN 'queued' ELSE 'retrying' END,
      wake_at = ${at} + COALESCE(gather_ms, 0), lease_hash = NULL, worker_id = NULL,
      waiting_step_id = CASE WHEN gather_ms IS NOT NULL THEN ${gathering} END, history_count = executions.history_count + 1,
      seen_position = CASE WHEN gather_ms IS NULL THEN ${seenFrom("executions")} ELSE executions.seen_position END
    FROM ${rowsFrom("v", {
      run_id: parkedIds,
      seen_position: column.bigint(
        parked.map((r) => (r.seenPosition === "kept" ? keptPosition : r.seenPosition)),
      ),
    })}
    WHERE executions.run_id = v.run_id ${byKey("executions.run_id", parkedIds)}`);
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT run_id, sequence, environment_id, 'run.woken', ${at}, detail FROM ${rowsFrom("v", {
      run_id: parkedIds,
      sequence: column.bigint(parked.map((r) => r.row.history_count + 1)),
      environment_id: column.text(parked.map((r) => r.row.environment_id)),
      detail: column.text(parked.map((r) => r.detail)),
    })}`);
  // Others of its waits may end in the same transaction.
  for (const { row } of parked) {
    row.history_count++;
    row.state = row.gather_ms === null ? "queued" : "retrying";
    row.waiting_step_id = row.gather_ms === null ? null : gathering;
  }
}

const seenFrom = (table: "steps" | "executions") =>
  sql.raw(`CASE WHEN v.seen_position = ${keptPosition} THEN ${table}.seen_position ELSE COALESCE(v.seen_position,
        (SELECT h.position FROM heads h WHERE h.environment_id = ${table}.environment_id), ${table}.seen_position) END`);

/** Of runs that continue now, and of those that gather first, which the loop that wakes them queues. */
export function queueHintsOfRows(
  rows: Iterable<{ environment_id: string; function_id: string; gather_ms?: number | null }>,
): QueueHint[] {
  const lanes = new Map<string, QueueHint>();
  for (const { environment_id: environmentId, function_id: functionId, gather_ms } of rows) {
    const isGathering = gather_ms != null;
    const lane = `${environmentId}\n${functionId}\n${isGathering}`;
    const inMs = isGathering && Math.min(gather_ms, lanes.get(lane)?.inMs ?? gather_ms);
    lanes.set(lane, { environmentId, functionId, ...(inMs !== false && { inMs }) });
  }
  return [...lanes.values()];
}

/** What was compared with waits that are due. */
export interface ComparedWith {
  /** Environments that were looked at. */
  asked: ReadonlySet<string>;
  /** Until when all that was logged has been compared. */
  events: ReadonlyMap<string, Instant>;
  /** Until when all that changed in streams, keys and children has been compared. */
  changes: ReadonlyMap<string, Instant>;
  /** An instant after the beginning of the transaction. */
  knownAt: Instant;
}

export interface DueWait {
  row: Pick<WaitingRow, "run_id" | "environment_id">;
  stepId: string;
  deadline: Instant;
}

/** What a run waits for at one step. */
interface Awaited {
  run_id: string;
  step_id: string;
  /** Conditions that nothing was compared with since they were stored, or that are to be looked at again. */
  uncompared: number;
  events: number;
  changes: number;
}

/** A wait whose log was not read up to its deadline is tried again after this. */
const behindMs = 2_000;
/** The next look compares waits stored after the last one; slow looks spread tries apart up to `behindMs`. */
const uncomparedMsMin = 50;

/**
 * Which of the due waits are over, and which are tried again `later`: what may have met them in time is
 * logged, or stands, and is not compared yet. Waits in environments that were not looked at stay due.
 */
export async function dueWaits<Row extends DueWait>(
  session: Session,
  rows: readonly Row[],
  { asked, events, changes, knownAt }: ComparedWith,
): Promise<{ over: Row[]; later: { row: Row; afterMs: number }[] }> {
  const looked = rows.filter(({ row }) => asked.has(row.environment_id));
  const awaited = await awaitedBy(session, looked, knownAt);
  const over: Row[] = [];
  const later: { row: Row; afterMs: number }[] = [];
  for (const one of looked) {
    const { row, stepId, deadline } = one;
    const of = awaited.get(stepKey(row.run_id, stepId));
    const isPassed = (until: ReadonlyMap<string, Instant>) =>
      (until.get(row.environment_id) ?? Number.NEGATIVE_INFINITY) >= deadline;
    if (of && of.uncompared > 0) {
      const lateMs = Math.max(uncomparedMsMin, knownAt - deadline);
      later.push({ row: one, afterMs: Math.min(behindMs, lateMs) });
    } else if ((of?.events !== 0 && !isPassed(events)) || (of?.changes !== 0 && !isPassed(changes)))
      later.push({ row: one, afterMs: behindMs });
    else over.push(one);
  }
  return { over, later };
}

async function awaitedBy(
  session: Session,
  rows: readonly DueWait[],
  now: Instant,
): Promise<Map<string, Awaited>> {
  if (rows.length === 0) return new Map();
  const { rowsFrom, byKey } = session.seams;
  const run_id = column.text(rows.map(({ row }) => row.run_id));
  const step_id = column.text(rows.map(({ stepId }) => stepId));
  const found = await session.all<Awaited>(sql`SELECT w.run_id, v.step_id,
      count(CASE WHEN (w.place IS NULL AND w.fresh_at IS NOT NULL) OR w.due_at <= ${sql.bigint(now)} THEN 1 END) AS uncompared,
      count(CASE WHEN w.place IS NULL THEN 1 END) AS events, count(w.place) AS changes
    FROM ${rowsFrom("v", { run_id, step_id })}
      JOIN waits w ON w.run_id = v.run_id AND COALESCE(w.of_step, w.step_id) = v.step_id ${byKey("w.run_id", run_id)}
    WHERE w.kind = 'wait' AND w.met IS NULL GROUP BY w.run_id, v.step_id`);
  return new Map(found.map((one) => [stepKey(one.run_id, one.step_id), one]));
}

export async function putOff(
  session: Session,
  later: readonly { row: DueWait; afterMs: number }[],
  now: Instant,
): Promise<void> {
  if (later.length === 0) return;
  const { rowsFrom, byKey } = session.seams;
  const soonest = new Map<string, number>();
  for (const {
    row: { row },
    afterMs,
  } of later)
    soonest.set(row.run_id, Math.min(now + afterMs, soonest.get(row.run_id) ?? Number.POSITIVE_INFINITY));
  const run_id = column.text([...soonest.keys()]);
  const wake_at = column.bigint([...soonest.values()]);
  await session.run(sql`UPDATE executions SET wake_at = v.wake_at FROM ${rowsFrom("v", { run_id, wake_at })}
    WHERE executions.run_id = v.run_id ${byKey("executions.run_id", run_id)}`);
}
