import type { Instant } from "../../../../kit/clock.ts";
import { type Slice, sliceOf, type WorkScope } from "../../../../kit/round-robin.ts";
import { column, type Sql, sql } from "../../../../kit/sql.ts";
import type { Session, Store } from "../../../../store/store.ts";

/** Executions of one function in one state: an index holds them in the order of `wake_at`. */
export interface WakeQueue extends WorkScope {
  functionId: string;
  state: string;
}

/** Locks and answers due executions. `which` limits the states when the slice is the longest due of all. */
export const sliceOfWakes = (
  session: Session,
  columns: Sql,
  now: Instant,
  slice: Slice<WakeQueue>,
  which: Sql = sql.raw("d.state <> 'queued'"),
): Sql =>
  sliceOf(
    session.seams,
    {
      table: "executions",
      columns,
      // A place names its state, and must be found by its own index.
      ...("oldest" in slice && { where: which }),
      dueAt: "wake_at",
      until: now,
      scopeOrder: { dueAt: "wake_at", by: ["wake_at"] },
      lock: session.seams.skipLocked,
    },
    slice,
    (places) => ({
      environment_id: column.text(places.map(({ environmentId }) => environmentId)),
      function_id: column.text(places.map(({ functionId }) => functionId)),
      state: column.text(places.map(({ state }) => state)),
    }),
  );

/**
 * Where executions are due. The index of lanes is walked in jumps, from the first execution of one function
 * and state to that of the next: what is queued, or asleep for long, costs a jump and no more. So the hot
 * table needs no index for this.
 */
export function wakeQueues(store: Pick<Store, "all" | "seams">, now: Instant): Promise<WakeQueue[]> {
  const key = (name: string) => sql.raw(`(${name}.environment_id, ${name}.function_id, ${name}.state)`);
  const order = (name: string) =>
    sql.raw(`${name}.environment_id, ${name}.function_id, ${name}.state, ${name}.wake_at`);
  const due = sql`SELECT environment_id AS "environmentId", function_id AS "functionId", state FROM found
    WHERE state <> 'queued' AND wake_at <= ${now}`;
  if (store.seams.engine === "postgres")
    return store.all(sql`WITH RECURSIVE found AS (
        (SELECT ${order("e")} FROM executions e ORDER BY ${order("e")} LIMIT 1)
        UNION ALL
        SELECT n.* FROM found CROSS JOIN LATERAL (SELECT ${order("e")} FROM executions e
          WHERE ${key("e")} > ${key("found")} ORDER BY ${order("e")} LIMIT 1) n)
      ${due}`);
  // SQLite finds a place in an index by one comparison behind equalities, not by a row of several.
  const next = (same: string) =>
    sql`(SELECT e.rowid FROM executions e WHERE ${sql.raw(same)} ORDER BY ${order("e")} LIMIT 1)`;
  return store.all(sql`WITH RECURSIVE at(id) AS (
      SELECT (SELECT e.rowid FROM executions e ORDER BY ${order("e")} LIMIT 1)
      UNION ALL
      SELECT COALESCE(
        ${next("e.environment_id = l.environment_id AND e.function_id = l.function_id AND e.state > l.state")},
        ${next("e.environment_id = l.environment_id AND e.function_id > l.function_id")},
        ${next("e.environment_id > l.environment_id")})
      FROM at CROSS JOIN executions l ON l.rowid = at.id),
    found AS (SELECT e.* FROM at CROSS JOIN executions e ON e.rowid = at.id)
    ${due}`);
}
