import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { type Slice, sliceOf, type WorkScope } from "../../../../kit/round-robin.ts";
import { type Sql, sql } from "../../../../kit/sql.ts";
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
      ...columnsOf(places, { text: "environmentId functionId state" }),
    }),
  );

/**
 * Where executions are due. The index of lanes is walked in jumps, from the first execution of one function
 * and state to that of the next: what is queued, or asleep for long, costs a jump and no more. So the hot
 * table needs no index for this.
 */
export function wakeQueues(store: Pick<Store, "all" | "seams">, now: Instant): Promise<WakeQueue[]> {
  const key = ["environment_id", "function_id", "state"];
  const found = store.seams.firstOfKeys({
    ...{ table: "executions", columns: [...key, "wake_at"], key, order: ["wake_at"] },
  });
  return store.all(sql`WITH RECURSIVE ${found}
    SELECT environment_id AS "environmentId", function_id AS "functionId", state FROM found
    WHERE state <> 'queued' AND wake_at <= ${now}`);
}
