import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

/** A run that failed for good, whose event is still to be emitted. */
export interface FailedRunRow {
  run_id: string;
  failed_at: Instant;
  environment_id: string;
}

const due = (now: Instant): DueRows => ({
  table: "failed_runs",
  columns: sql`d.run_id, d.failed_at, d.environment_id`,
  where: sql`d.due_at >= 0`,
  dueAt: "due_at",
  until: now,
  tail: ["run_id"],
});

export const environmentsWithFailures = (store: Store, now: Instant): Promise<WorkScope[]> =>
  store.all<WorkScope>(environmentsDue(due(now)));

/** Takes some that are due until `until`, when another node may take them. */
export async function takeFailed(
  session: Session,
  slice: Slice,
  { now, until }: { now: Instant; until: Instant },
): Promise<(FailedRunRow & { turn: number })[]> {
  const found = await session.all<FailedRunRow & { turn: number }>(
    sliceOf(session.seams, { ...due(now), lock: session.seams.skipLocked }, slice),
  );
  if (found.length > 0)
    await session.run(sql`UPDATE failed_runs SET due_at = ${sql.bigint(until)}
      FROM ${session.seams.rowsFrom("v", ownColumns(found))} WHERE ${same}`);
  return found;
}

const ownColumns = (list: readonly FailedRunRow[]) => ({
  ...columnsOf(list, { text: "run_id", bigint: "failed_at" }),
});
const same = sql.raw("failed_runs.run_id = v.run_id AND failed_runs.failed_at = v.failed_at");

/** Answers the runs whose rows were still there. */
export async function forgetFailed(session: Session, list: readonly FailedRunRow[]): Promise<Set<string>> {
  const gone = await session.all<{ run_id: string }>(sql`DELETE FROM failed_runs WHERE EXISTS (
    SELECT 1 FROM ${session.seams.rowsFrom("v", ownColumns(list))} WHERE ${same})
    AND run_id ${session.seams.among(column.text(list.map((row) => row.run_id)))} RETURNING run_id`);
  return new Set(gone.map(({ run_id }) => run_id));
}

export async function nextFailedAt(store: Store): Promise<Instant | undefined> {
  const row = await store.one<{ at: number | null }>(sql`SELECT min(due_at) AS at FROM failed_runs`);
  return row?.at ?? undefined;
}

export interface FailedRunFacts
  extends RowOf<
    "runs",
    "environment_id, function_id, function_version, event_id, event_name, attempt, ended_at"
  > {
  run_id: string;
  /** JSON text of a RunError; of a run that was resumed since, not the error that it failed with. */
  error: string | null;
}

/** Of these runs, those that are still there. */
export const failedRunFacts = (store: Store, runIds: readonly string[]): Promise<FailedRunFacts[]> =>
  store.all(sql`SELECT id AS run_id, environment_id, function_id, function_version, event_id, event_name, attempt,
      error, ended_at
    FROM runs WHERE id ${store.seams.among(column.text(runIds))}`);

/** What led to a run: an event, which may be of another run, or a run that waits for it. */
export interface RunBeginning {
  of_run: string;
  environment_id: string;
  /** Of the event; empty of a run. */
  name: string;
  run_id: string | null;
}

/** What led to each of these runs: their events, and the runs that these, or the runs themselves, are of. */
export function beginningsOf({ all, seams }: Store, runIds: readonly string[]): Promise<RunBeginning[]> {
  const these = seams.among(column.text(runIds));
  return all(sql`SELECT r.id AS of_run, r.environment_id, v.name, v.run_id FROM runs r JOIN events v ON v.id = r.event_id
      WHERE r.id ${these} AND v.environment_id || '' = r.environment_id
    UNION SELECT r.id AS of_run, r.environment_id, v.name, v.run_id FROM batch_events b JOIN runs r ON r.id = b.run_id
      JOIN events v ON v.id = b.event_id
      WHERE b.run_id ${these} AND v.environment_id || '' = r.environment_id
    UNION SELECT r.id AS of_run, r.environment_id, '' AS name, r.parent_run_id AS run_id FROM runs r
      WHERE r.id ${these} AND r.parent_run_id IS NOT NULL`);
}
