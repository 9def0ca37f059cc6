import type { Instant } from "../../../kit/clock.ts";
import type { Cursor } from "../../../kit/page.ts";
import { sql } from "../../../kit/sql.ts";
import type { StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/row.ts";
import type { AttributeNames } from "./attributes/attribute-names.ts";
import { candidatesOf } from "./attributes/find-runs.ts";
import { type ListRunsInput, toFilter } from "./list-runs.ts";
import { conditions, type RunFilter } from "./rows.ts";
import { statusOf } from "./rules.ts";
import type { ExecutionState, RunStatus } from "./run.ts";

/** A run as what selects many of them knows it: without its payloads. */
export interface SelectedRun {
  id: string;
  functionId: string;
  eventName: string;
  status: RunStatus;
  createdAt: Instant;
}

interface SelectedRow extends RowOf<"runs", "id, function_id, event_name, status, created_at"> {
  state: ExecutionState | null;
}

/** Selects runs as `runs.list` does, newest first. */
export type SelectRuns = ReturnType<typeof openSelectRuns>;

export const openSelectRuns = (
  store: Pick<StoreReader, "all">,
  names: Pick<AttributeNames, "requireTypes">,
) => ({
  /** Throws what is wrong with the filter. */
  filter: toFilter,

  /** Also for an attribute of another type. */
  async checked(environmentId: string, input: ListRunsInput): Promise<RunFilter> {
    const filter = toFilter(environmentId, input);
    if (filter.attributes) await names.requireTypes(environmentId, filter.attributes);
    return filter;
  },

  async page(filter: RunFilter, { after, limit }: { after: Cursor | undefined; limit: number }) {
    const { from, where, order } = await sourceOf(store, filter, after);
    const rows =
      await store.all<SelectedRow>(sql`SELECT r.id, r.function_id, r.event_name, r.status, r.created_at, e.state
      FROM ${from} LEFT JOIN executions e ON e.run_id = r.id ${sql.where(where)} ORDER BY ${order} LIMIT ${limit}`);
    return rows.map((row) => ({
      ...{ id: row.id, functionId: row.function_id, eventName: row.event_name },
      ...{ createdAt: row.created_at, status: statusOf(row.status, row.state).status },
    }));
  },

  /** By status; no more than `most` are counted. */
  async count(filter: RunFilter, most: number): Promise<Map<RunStatus, number>> {
    const { from, where } = await sourceOf(store, filter, undefined);
    const rows = await store.all<{ status: string; state: ExecutionState | null; count: number }>(
      sql`SELECT status, state, count(*) AS count FROM (
          SELECT r.status, e.state FROM ${from} LEFT JOIN executions e ON e.run_id = r.id
          ${sql.where(where)} LIMIT ${most}) counted
        GROUP BY status, state`,
    );
    const counts = new Map<RunStatus, number>();
    for (const { status: stored, state, count } of rows) {
      const { status } = statusOf(stored, state);
      counts.set(status, (counts.get(status) ?? 0) + Number(count));
    }
    return counts;
  },
});

/** A filter by attributes is led by the index of their values. */
async function sourceOf(store: Pick<StoreReader, "all">, filter: RunFilter, after: Cursor | undefined) {
  const { attributes } = filter;
  if (attributes) {
    const { candidates, rest } = await candidatesOf(store, { ...filter, attributes });
    return {
      from: sql`(${candidates(after)}) c CROSS JOIN runs r`,
      where: [sql.raw("r.id = c.run_id"), ...conditions(rest)],
      order: sql.raw("c.created_at DESC, c.run_id DESC"),
    };
  }
  const where = conditions(filter);
  if (after)
    where.push(sql`(r.created_at < ${after.at} OR (r.created_at = ${after.at} AND r.id < ${after.id}))`);
  return { from: sql.raw("runs r"), where, order: sql.raw("r.created_at DESC, r.id DESC") };
}
