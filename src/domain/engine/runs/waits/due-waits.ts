import type { Instant } from "../../../../kit/clock.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import { stepKey } from "../step-moves.ts";
import type { WaitingRow } from "./resolve-steps.ts";

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
