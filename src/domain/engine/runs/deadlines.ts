import { type Instant, whenDue } from "../../../kit/clock.ts";
import {
  type DueRows,
  environmentsDue,
  roundRobin,
  type Slice,
  sliceOf,
  type WorkScope,
  workOn,
} from "../../../kit/round-robin.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Basics, Seams, Session } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { wakeSliceMax } from "./limits.ts";
import type { NewRun, QueueHint } from "./run.ts";
import { endRuns } from "./undo/end-runs.ts";
import { freedLaneHint } from "./wakes/due.ts";

/**
 * When a run is cancelled: at its function's `startWithin` if it has not begun, or at once when a newer run
 * took its singleton's place. The row is also the cause that callers see.
 */
type Deadline = "start-within" | "singleton";

const ofBeginning: Deadline = "start-within";
export const ofSingleton: Deadline = "singleton";

const startsWithin = ({ startBy }: NewRun): boolean => startBy !== undefined;

export const hasDeadlines = (runs: readonly NewRun[]): boolean => runs.some(startsWithin);

/** Rows of the runs that must begin by a time; `run` are the runs, as `n`, that are written. */
export function insertDeadlines(
  { rowsFrom }: Pick<Seams, "rowsFrom">,
  runs: readonly NewRun[],
  run: Sql,
): Sql {
  const late = runs.filter(startsWithin);
  const rows = rowsFrom("l", {
    run_id: column.text(late.map(({ id }) => id)),
    due_at: column.bigint(late.map(({ startBy }) => startBy ?? null)),
  });
  return sql`INSERT INTO run_deadlines (run_id, environment_id, cause, due_at)
    SELECT l.run_id, n.environment_id, ${sql.raw(`'${ofBeginning}'`)}, l.due_at FROM ${rows} JOIN ${run}
      ON n.id = l.run_id`;
}

const due = (now: Instant): DueRows => ({
  table: "run_deadlines",
  columns: sql.raw("d.run_id, d.cause"),
  where: sql`d.due_at >= 0`,
  dueAt: "due_at",
  until: now,
});

type CancelledRow = RowOf<"executions", "run_id, environment_id, function_id, lane_id, state">;

/** Ends what is due in a slice, or queues its undoing. Locks: deadlines (no wait), then executions by run. */
async function endDue(
  session: Session,
  now: Instant,
  slice: Slice,
): Promise<{ rows: { turn: number }[]; cancelled: CancelledRow[]; undone: QueueHint[] }> {
  const { among, rowsFrom, skipLocked, holdRow } = session.seams;
  const rows = await session.all<{ run_id: string; cause: Deadline; turn: number }>(
    sliceOf(session.seams, { ...due(now), lock: skipLocked }, slice),
  );
  if (rows.length === 0) return { rows, cancelled: [], undone: [] };
  const columns = {
    run_id: column.text(rows.map((row) => row.run_id)),
    cause: column.text(rows.map((row) => row.cause)),
  };
  const held = await session.all<
    CancelledRow & { execution_seq: number; ending: string | null }
  >(sql`SELECT run_id, environment_id, function_id,
      lane_id, state, execution_seq, ending FROM executions WHERE run_id ${among(columns.run_id)}
    ORDER BY run_id ${holdRow}`);
  const replaced = new Set(rows.flatMap(({ run_id, cause }) => (cause === ofSingleton ? run_id : [])));
  // A run that is being undone is over already but for that.
  const ending = held.filter(
    ({ run_id, state, execution_seq, ending: begun }) =>
      begun === null && (replaced.has(run_id) || (state === "queued" && execution_seq === 0)),
  );
  const undoing = await endRuns(
    session,
    ending.map(({ run_id }) => ({
      runId: run_id,
      status: "cancelled",
      error: null,
      cause: replaced.has(run_id) ? ofSingleton : ofBeginning,
    })),
    now,
  );
  await session.run(sql`DELETE FROM run_deadlines WHERE (run_id, cause) IN (
    SELECT v.run_id, v.cause FROM ${rowsFrom("v", columns)})`);
  return {
    rows,
    cancelled: ending.filter(({ run_id }) => !undoing.runIds.has(run_id)),
    undone: undoing.lanes,
  };
}

export interface DeadlinesDeps extends Basics<"store" | "clock"> {
  /** Called after the commit with the runs that were cancelled. */
  onCancelled: (runs: readonly { runId: string; environmentId: string }[]) => void;
  /** Called with the lanes whose leases were given up. */
  onQueued: (lanes: readonly QueueHint[]) => void;
}

/** The tick of loop `runs.deadlines`; answers in how many milliseconds the next is due. */
export function openDeadlines({ store, clock, onCancelled, onQueued }: DeadlinesDeps) {
  const nextAt = async (): Promise<Instant | undefined> => {
    const next = await store.one<{ at: number | null }>(sql`SELECT min(due_at) AS at FROM run_deadlines`);
    return next?.at ?? undefined;
  };
  const work = workOn(
    async (slice) => {
      const { rows, cancelled, undone } = await store.write((session) => endDue(session, clock.now(), slice));
      if (cancelled.length > 0)
        onCancelled(
          cancelled.map(({ run_id, environment_id }) => ({ runId: run_id, environmentId: environment_id })),
        );
      const freed = cancelled.flatMap(({ state, environment_id, function_id, lane_id }) =>
        state === "leased" ? (freedLaneHint(environment_id, function_id, lane_id) ?? []) : [],
      );
      if (freed.length + undone.length > 0) onQueued([...freed, ...undone]);
      return rows;
    },
    () => store.all<WorkScope>(environmentsDue(due(clock.now()))),
  );
  return (): Promise<{ againInMs?: number }> =>
    whenDue(clock, { nextAt, move: () => roundRobin([work], { clock, limit: wakeSliceMax }) });
}
