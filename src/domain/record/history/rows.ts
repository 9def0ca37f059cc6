import { type BoundedList, type BoundedPage, lookThrough } from "../../../kit/bounded-look.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { Cursor } from "../../../kit/page.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { HistoryRow } from "./rules.ts";

export const historyOf = (store: Store, environmentId: string, runId: string): Promise<HistoryRow[]> =>
  store.all(sql`SELECT run_id, sequence, type, at, detail FROM run_history
    WHERE run_id = ${runId} AND environment_id = ${environmentId} ORDER BY sequence`);

export interface TrailRun {
  id: string;
  function_id: string;
  created_at: number;
}

export interface TrailFilter {
  environmentId: string;
  functionId?: string;
  from?: Instant;
  to?: Instant;
}

/**
 * Runs that may have history, newest first by (created, id), from the given position on, inclusive. No index
 * knows when a run was last changed, so that `from` is asked of so many runs only.
 */
export function trailRuns(
  store: Store,
  { environmentId, functionId, from, to }: TrailFilter,
  start: Cursor | undefined,
  limit: number,
): Promise<BoundedPage<TrailRun>> {
  const list: BoundedList = {
    columns: sql.raw("id, function_id, created_at, ended_at, updated_at"),
    from: sql.raw("runs"),
    served: [
      sql`environment_id = ${environmentId}`,
      ...(functionId === undefined ? [] : [sql`function_id = ${functionId}`]),
      // A run has no history before its creation. After its end only changes that set `updated_at` add some.
      ...(to === undefined ? [] : [sql`created_at <= ${to}`]),
      ...(start ? [sql`(created_at, id) <= (${sql.bigint(start.at)}, ${start.id})`] : []),
    ],
    asked:
      from === undefined ? [] : [sql`(ended_at IS NULL OR ended_at >= ${from} OR updated_at >= ${from})`],
    order: sql.raw("created_at DESC, id DESC"),
  };
  return lookThrough<TrailRun>(store, list, { limit });
}

/** History of several runs, by the primary key. */
export async function historyOfAll(
  store: Store,
  runIds: readonly string[],
): Promise<Map<string, HistoryRow[]>> {
  const { rowsFrom, byKey } = store.seams;
  const run_id = column.text(runIds);
  const rows = await store.all<HistoryRow>(sql`SELECT h.run_id, h.sequence, h.type, h.at, h.detail
    FROM ${rowsFrom("i", { run_id })} JOIN run_history h ON h.run_id = i.run_id ${byKey("h.run_id", run_id)}
    ORDER BY h.run_id, h.sequence`);
  const byRun = new Map<string, HistoryRow[]>(runIds.map((id) => [id, []]));
  for (const row of rows) byRun.get(row.run_id)?.push(row);
  return byRun;
}
