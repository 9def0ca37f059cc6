import type { Instant } from "../../../../kit/clock.ts";
import {
  countTurns,
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../../kit/round-robin.ts";
import { fitting } from "../../../../kit/slice-size.ts";
import { column, sql } from "../../../../kit/sql.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Session, Store } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { noteEnds } from "../awaited/state-rows.ts";
import { stepKey } from "../step-moves.ts";
import {
  isHeld,
  lockWaiting,
  queueHintsOfRows,
  type Resolution,
  resolveSteps,
} from "../waits/resolve-steps.ts";
import { type FailedInvoke, failInvokes, pendingRows, type ResolvedRuns } from "./invokes.ts";

/** A child that is still to be started. */
export interface Invocation {
  parent_run_id: string;
  step_id: string;
  environment_id: string;
  function_id: string;
  kind: "invoke" | "invoke_async";
  /** Null: only a function without event triggers may be invoked. */
  any_function: number | null;
  input: string | null;
  child_run_id: string | null;
  /** When the step was yielded. */
  started_at: Instant;
  parent_depth: number;
  /** Null when the parent no longer waits for it. */
  is_wanted: number | null;
}

interface SizedRow {
  environment_id: string;
  turn: number;
  /** Of its payload. */
  bytes: number | null;
}

/** As many as are read at once. If some are left, the slice counts as full, so that there is a next one. */
function readNow<Row extends SizedRow>(due: readonly Row[], slice: Slice): { some: Row[]; counts: number[] } {
  const some = fitting(due, ({ bytes }) => bytes ?? 0);
  if ("turns" in slice) return { some, counts: countTurns(slice.turns, some) };
  return { some, counts: [some.length < due.length ? slice.oldest : some.length] };
}

const dueInvocations = (now: Instant): DueRows => ({
  table: "invocations",
  columns: sql`d.parent_run_id, d.step_id, d.environment_id,
    (SELECT octet_length(s.input) FROM steps s WHERE s.run_id = d.parent_run_id AND s.step_id = d.step_id) AS bytes`,
  where: sql`d.due_at >= 0`,
  dueAt: "due_at",
  until: now,
  tail: ["parent_run_id", "step_id"],
});

export const invocationEnvironments = (store: Store, now: Instant): Promise<WorkScope[]> =>
  store.all(environmentsDue(dueInvocations(now)));

/** Claims due invocations until `until`: other nodes skip them. Locks: invocations (never waited for). */
export async function claimInvocations(
  session: Session,
  { now, until, slice }: { now: Instant; until: Instant; slice: Slice },
): Promise<{ claimed: Invocation[]; counts: number[] }> {
  const due = await session.all<SizedRow & { parent_run_id: string; step_id: string }>(
    sliceOf(session.seams, { ...dueInvocations(now), lock: session.seams.skipLocked }, slice),
  );
  const { some: claimed, counts } = readNow(due, slice);
  if (claimed.length === 0) return { claimed: [], counts };
  const { byKey, rowsFrom } = session.seams;
  const parents = column.text(claimed.map((row) => row.parent_run_id));
  const list = rowsFrom("v", {
    parent_run_id: parents,
    step_id: column.text(claimed.map((row) => row.step_id)),
  });
  await session.run(sql`UPDATE invocations SET due_at = ${sql.bigint(until)} FROM ${list}
    WHERE invocations.parent_run_id = v.parent_run_id AND invocations.step_id = v.step_id
      ${byKey("invocations.parent_run_id", parents)}`);
  const found =
    await session.all<Invocation>(sql`SELECT i.parent_run_id, i.step_id, i.environment_id, i.function_id, i.kind, i.any_function, s.input,
      s.child_run_id, s.started_at, r.depth AS parent_depth,
      CASE WHEN s.status = 'waiting' AND e.state NOT IN ('held', 'resuming') THEN 1 END AS is_wanted
    FROM ${list} JOIN invocations i ON i.parent_run_id = v.parent_run_id AND i.step_id = v.step_id
        ${byKey("i.parent_run_id", parents)}
      JOIN steps s ON s.run_id = v.parent_run_id AND s.step_id = v.step_id ${byKey("s.run_id", parents)}
      JOIN runs r ON r.id = v.parent_run_id ${byKey("r.id", parents)}
      LEFT JOIN executions e ON e.run_id = v.parent_run_id ${byKey("e.run_id", parents)}`);
  return { claimed: found, counts };
}

/**
 * The child of a step that a node before 0.37 started without recording it: such a node stored the key
 * unmarked, as those of callers are. A caller's run under the same key is not a child of the step.
 */
export async function childStartedBefore(
  store: Pick<Store, "all">,
  one: Pick<Invocation, "environment_id" | "parent_run_id" | "step_id">,
  key: string,
): Promise<string | undefined> {
  const [used] = await store.all<{ run_ids: string }>(sql`SELECT run_ids FROM idempotency_keys
    WHERE environment_id = ${one.environment_id} AND key = ${key}`);
  const ids = used ? (JSON.parse(used.run_ids) as string[]) : [];
  if (ids.length === 0) return undefined;
  const [child] = await store.all<{ id: string }>(sql`SELECT id FROM runs WHERE id IN ${sql.list(ids)}
    AND parent_run_id = ${one.parent_run_id} AND parent_step_id = ${one.step_id}`);
  return child?.id;
}

export const isKept = async (store: Pick<Store, "one">, runId: string): Promise<boolean> =>
  (await store.one(sql`SELECT 1 AS there FROM runs WHERE id = ${runId}`)) !== undefined;

export interface InvocationOutcome {
  one: Invocation;
  /** Undefined when no child was started: not wanted any more, or tried again later. */
  outcome: { childRunId: string } | { refused: string } | undefined;
}

/**
 * Records the children of steps, and moves parents that waited only for the start or were refused it. After a
 * crash before this commit the child is started again: its idempotency key answers the same run. Locks:
 * executions sorted by run, then their rows.
 */
export async function finishInvocations(
  session: Session,
  outcomes: readonly InvocationOutcome[],
  { now, againMs }: { now: Instant; againMs: number },
): Promise<ResolvedRuns> {
  const held = await lockWaiting(
    session,
    outcomes.map(({ one }) => one.parent_run_id),
  );
  const started = outcomes.flatMap(({ one, outcome }) =>
    outcome && "childRunId" in outcome ? { one, childRunId: outcome.childRunId } : [],
  );
  const again = outcomes.filter(({ one, outcome }) => one.is_wanted !== null && !outcome);
  const over = outcomes.filter((each) => !again.includes(each));
  const { rowsFrom, byKey } = session.seams;
  if (started.length > 0) {
    const run_id = column.text(started.map(({ one }) => one.parent_run_id));
    await session.run(
      sql`UPDATE steps SET child_run_id = v.child_run_id FROM ${rowsFrom("v", {
        run_id,
        step_id: column.text(started.map(({ one }) => one.step_id)),
        child_run_id: column.text(started.map(({ childRunId }) => childRunId)),
      })} WHERE steps.run_id = v.run_id AND steps.step_id = v.step_id ${byKey("steps.run_id", run_id)}`,
    );
  }
  // A child that ended before its parent began to wait for it (again) wrote no row of `child_ends` for this
  // wait.
  const known = started.filter(({ one }) => one.kind === "invoke");
  if (known.length > 0)
    await session.run(sql`INSERT INTO child_ends (child_run_id, environment_id, ended_at)
      SELECT r.id, r.environment_id, ${sql.bigint(now)}
      FROM ${rowsFrom("v", { id: column.text(known.map(({ childRunId }) => childRunId)) })}
        JOIN runs r ON r.id = v.id WHERE r.status <> 'active' ON CONFLICT DO NOTHING`);

  const waits = ({ one }: { one: Invocation }) => {
    const row = held.get(one.parent_run_id);
    return one.is_wanted === null || isHeld(row) ? undefined : row;
  };
  const woken = started.flatMap(({ one, childRunId }): { resolution: Resolution; text: string }[] => {
    const row = one.kind === "invoke_async" ? waits({ one }) : undefined;
    if (!row) return [];
    const resolution: Resolution = {
      row,
      stepId: one.step_id,
      status: "completed",
      output: null,
      error: null,
      seenPosition: null,
      detail: JSON.stringify({ step_id: one.step_id, child_run_id: childRunId }),
    };
    return [{ resolution, text: JSON.stringify({ run_id: childRunId }) }];
  });
  await resolveSteps(
    session,
    woken.map(({ resolution }, at) => ({ ...resolution, output: at + 1 })),
    woken.map(({ text }) => text),
    now,
  );

  const refused = outcomes.flatMap(({ one, outcome }) => {
    const row = waits({ one });
    return row && outcome && "refused" in outcome ? [{ row, one, reason: outcome.refused }] : [];
  });
  const steps = refused.length === 0 ? new Map() : await pendingRows(session, refused.map(refOf));
  const moved = await failInvokes(
    session,
    refused.flatMap(({ row, one, reason }): FailedInvoke[] => {
      const step = steps.get(stepKey(one.parent_run_id, one.step_id));
      if (!step) return [];
      const error = {
        message: reason,
        code: "INVOKE_REFUSED",
        retryable: false,
        function_id: one.function_id,
      };
      return [{ row, step, error }];
    }),
    now,
  );

  const done = column.text(over.map(({ one }) => one.parent_run_id));
  await session.run(sql`DELETE FROM invocations WHERE (parent_run_id, step_id) IN (
    SELECT v.run_id, v.step_id FROM ${rowsFrom("v", {
      run_id: done,
      step_id: column.text(over.map(({ one }) => one.step_id)),
    })}) ${session.seams.byKey("parent_run_id", done)}`);
  if (again.length > 0)
    await session.run(
      sql`UPDATE invocations SET due_at = ${sql.bigint(now + againMs)} FROM ${rowsFrom("v", {
        run_id: column.text(again.map(({ one }) => one.parent_run_id)),
        step_id: column.text(again.map(({ one }) => one.step_id)),
      })} WHERE invocations.parent_run_id = v.run_id AND invocations.step_id = v.step_id`,
    );
  const lanes = queueHintsOfRows(woken.map(({ resolution }) => resolution.row));
  return { lanes: [...lanes, ...moved.lanes], failed: moved.failed };
}

const refOf = ({ one }: { one: Invocation }) => ({ runId: one.parent_run_id, stepId: one.step_id });

interface EndRow extends RowOf<"runs", "status, output, error, cancellation_cause, function_id"> {
  child_run_id: string;
  parent_run_id: string;
  parent_step_id: string;
  /** Null when the parent's step waits for it no longer. */
  is_awaited: number | null;
}

const endedChildren: DueRows = {
  table: "child_ends",
  columns: sql`d.child_run_id, d.environment_id, (SELECT COALESCE(octet_length(r.output), 0)
      + COALESCE(octet_length(r.error), 0) FROM runs r WHERE r.id = d.child_run_id) AS bytes`,
  where: sql`d.ended_at >= 0`,
  dueAt: "ended_at",
  until: Number.MAX_SAFE_INTEGER,
  tail: ["child_run_id"],
};

export const childEndEnvironments = (store: Store): Promise<WorkScope[]> =>
  store.all(environmentsDue(endedChildren));

/**
 * Moves parents whose child has ended. A parent that waited only for the start continues by its invocation,
 * which is still there when the node that started the child crashed before it recorded that. Locks:
 * child_ends (never waited for), then executions sorted by run.
 */
export async function resolveParents(
  session: Session,
  slice: Slice,
  now: Instant,
): Promise<{ counts: number[]; moved: ResolvedRuns; isAwaited: boolean }> {
  const due = await session.all<SizedRow & { child_run_id: string }>(
    sliceOf(session.seams, { ...endedChildren, lock: session.seams.skipLocked }, slice),
  );
  const { some: ended, counts } = readNow(due, slice);
  if (ended.length === 0) return { counts, moved: { lanes: [], failed: [] }, isAwaited: false };
  const { rowsFrom } = session.seams;
  const ids = rowsFrom("v", { id: column.text(ended.map((row) => row.child_run_id)) });
  const children = await session.all<EndRow>(sql`SELECT r.id AS child_run_id, r.status, r.output, r.error,
      r.cancellation_cause, r.function_id, r.parent_run_id, r.parent_step_id,
      CASE WHEN s.status = 'waiting' THEN 1 END AS is_awaited
    FROM ${ids} JOIN runs r ON r.id = v.id
      LEFT JOIN steps s ON s.run_id = r.parent_run_id AND s.step_id = r.parent_step_id WHERE r.parent_run_id IS NOT NULL AND r.parent_step_id IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM invocations i WHERE i.parent_run_id = r.parent_run_id
        AND i.step_id = r.parent_step_id AND i.kind = 'invoke_async')`);
  const held = await lockWaiting(
    session,
    children.map((child) => child.parent_run_id),
  );
  const waiting = children.flatMap((child) => {
    const row = held.get(child.parent_run_id);
    return row && !isHeld(row) && child.is_awaited !== null ? [{ row, child }] : [];
  });
  const asked = waiting.map(({ child }) => ({ runId: child.parent_run_id, stepId: child.parent_step_id }));
  const pending = asked.length === 0 ? new Map() : await pendingRows(session, asked);
  // A step that a resume ran again has another child by now.
  const waited = waiting.filter(({ child }) => {
    const own = pending.get(stepKey(child.parent_run_id, child.parent_step_id))?.child_run_id ?? null;
    return own === null || own === child.child_run_id;
  });
  const completed = waited.filter(({ child }) => child.status === "completed");
  await resolveSteps(
    session,
    completed.map(
      ({ row, child }, at): Resolution => ({
        row,
        stepId: child.parent_step_id,
        status: "completed",
        output: at + 1,
        error: null,
        seenPosition: null,
        detail: JSON.stringify({ step_id: child.parent_step_id, child_run_id: child.child_run_id }),
      }),
    ),
    completed.map(({ child }) => child.output ?? "null"),
    now,
  );
  const failed = waited.filter(({ child }) => child.status !== "completed");
  const moved = await failInvokes(
    session,
    failed.flatMap(({ row, child }): FailedInvoke[] => {
      const step = pending.get(stepKey(child.parent_run_id, child.parent_step_id));
      return step ? [{ row, step, error: errorOf(child) }] : [];
    }),
    now,
  );
  await session.run(sql`DELETE FROM child_ends WHERE child_run_id IN (SELECT v.id FROM ${ids})`);
  const awaited = await noteEnds(
    session,
    ended.map((row) => ({ environmentId: row.environment_id, runId: row.child_run_id })),
  );
  const lanes = queueHintsOfRows(completed.map(({ row }) => row));
  return {
    ...{ counts, isAwaited: awaited > 0 },
    moved: { lanes: [...lanes, ...moved.lanes], failed: moved.failed },
  };
}

/** The error that the parent's handler gets. */
function errorOf(child: EndRow): FailedInvoke["error"] {
  const error = child.error === null ? undefined : storedJson<{ message: string }>(child.error);
  const cause = child.cancellation_cause;
  return {
    function_id: child.function_id,
    child_run_id: child.child_run_id,
    message: error?.message ?? `the run of "${child.function_id}" was ${child.status}`,
    code: "INVOKE_FAILED",
    ...(cause !== null && { cause }),
    retryable: false,
  };
}
