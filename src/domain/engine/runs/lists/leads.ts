import { type Sql, sql } from "../../../../kit/sql.ts";
import type { Store } from "../../../../store/store.ts";
import { fewLiveMax } from "../limits.ts";
import { namedBy, type RunFilter } from "../rows.ts";
import { storedStatuses } from "../rules.ts";
import type { ExecutionState } from "../run.ts";
import { type After, type Candidates, lookupsOf, withinOf } from "./look.ts";

export const newestFirst = (alias: string): Sql => sql.raw(`${alias}.created_at DESC, ${alias}.run_id DESC`);

/** Row comparisons are ranges of the index; with the columns before them in the row they would be filters. */
function isWithin({ since, until }: RunFilter, after: After, runId = "n.run_id"): Sql[] {
  const at = sql.raw(runId.replace(/\w+$/, "created_at"));
  return [
    ...(since === undefined ? [] : [sql`${at} >= ${since}`]),
    ...(until === undefined ? [] : [sql`${at} <= ${until}`]),
    ...(after ? [sql`(${at}, ${sql.raw(runId)}) < (${sql.bigint(after.at)}, ${after.id})`] : []),
  ];
}

/** What filters ask of a run, but for texts of errors, which are long. */
const askedColumns =
  sql.raw(`r.id, r.environment_id, r.function_id, r.event_id, r.event_name, r.created_at, r.status,
  r.undo_failed, r.error_group`);

/** Runs by an index as of `indexed`, newest first. */
const rowsBy = (where: Sql, filter: RunFilter, after: After, most: number): Sql =>
  sql`SELECT ${askedColumns} FROM runs r ${sql.where([where, ...isWithin(filter, after, "r.id")])}
    ORDER BY r.created_at DESC, r.id DESC LIMIT ${most}`;

/** Candidates among rows `n` of `run_id` and `created_at`, newest first. */
function inOrder(rows: Sql, filter: RunFilter, after: After): Sql {
  const where = isWithin(filter, after);
  return sql`SELECT n.run_id, n.created_at, NULL AS value FROM (${rows}) n
    ${where.length === 0 ? sql.empty : sql.where(where)} ORDER BY ${newestFirst("n")}`;
}

/** Candidates by an index of runs that begins with the columns of `where` and goes on in the list's order. */
export const indexed = (where: Sql, filter: RunFilter, after: After): Sql =>
  inOrder(sql`SELECT id AS run_id, created_at FROM runs WHERE ${where}`, filter, after);

/** Candidates of several lists, merged. */
function merged(lists: readonly Sql[], most: number, skip: number): Sql {
  const cut = sql`LIMIT ${most - skip} OFFSET ${skip}`;
  const [only] = lists;
  if (only && lists.length === 1) return sql`${only} ${cut}`;
  const all = lists.map((list) => sql`SELECT p.run_id, p.created_at, p.value FROM (${list} LIMIT ${most}) p`);
  return sql`SELECT m.run_id, m.created_at, m.value FROM (${sql.join(all, " UNION ALL ")}) m
    ORDER BY ${newestFirst("m")} ${cut}`;
}

/** Runs that are not over, where the environment has few of them. */
const live = (
  { environmentId, functionId }: RunFilter,
  states: readonly ExecutionState[] | undefined,
): Sql => {
  const where = [
    sql`x.environment_id = ${environmentId}`,
    ...(functionId === undefined ? [] : [sql`x.function_id = ${functionId}`]),
    ...(states === undefined ? [] : [sql`x.state IN ${sql.list(states)}`]),
  ];
  return sql`SELECT x.run_id FROM executions x ${sql.where(where)} LIMIT ${fewLiveMax + 1}`;
};

async function areFewLive(store: Pick<Store, "one">, filter: RunFilter): Promise<boolean> {
  const row = await store.one<{ count: number }>(
    sql`SELECT count(*) AS count FROM (${live(filter, undefined)}) counted`,
  );
  return Number(row?.count ?? 0) <= fewLiveMax;
}

type LeadPart = (after: After) => Sql;

/** Failed and cancelled runs by the index of trouble, live ones by their executions. */
async function statusLead(store: Pick<Store, "one">, filter: RunFilter): Promise<LeadPart[] | undefined> {
  const { environmentId, errorText } = filter;
  // A text of an error is of a failure, whatever statuses are asked for besides.
  const statuses = errorText === undefined ? filter.statuses : (["failed"] as const);
  const { ended, states } = storedStatuses(statuses);
  if (statuses.length === 0 || ended.includes("completed")) return undefined;
  if (states.length > 0 && !(await areFewLive(store, filter))) return undefined;
  const troubles = ended.map(
    (trouble): LeadPart =>
      (after) =>
        indexed(sql`environment_id = ${environmentId} AND trouble = ${trouble}`, filter, after),
  );
  if (states.length === 0) return troubles;
  const runs = sql`SELECT f.run_id, (SELECT r.created_at FROM runs r WHERE r.id = f.run_id) AS created_at
    FROM (${live(filter, states)}) f`;
  return [...troubles, (after) => inOrder(runs, filter, after)];
}

const without = (filter: RunFilter, name: keyof RunFilter): RunFilter => {
  const { [name]: _, ...rest } = filter;
  return { environmentId: filter.environmentId, statuses: [], ...rest };
};

/** The candidates of a filter without attributes, by the index that leaves the least to look at. */
export async function leadOf(store: Pick<Store, "one">, filter: RunFilter): Promise<Candidates> {
  const { environmentId, eventId, search, errorGroup, undoFailed, functionId } = filter;
  const { since: _, until: __, ...asked } = filter;
  const by = (parts: readonly LeadPart[], name?: keyof RunFilter): Candidates => ({
    upTo: (after, most, skip = 0) =>
      merged(
        parts.map((part) => part(after)),
        most,
        skip,
      ),
    order: newestFirst("c"),
    matching: lookupsOf(name === undefined ? asked : without(asked, name)),
    within: withinOf(filter),
  });
  const own = sql`environment_id = ${environmentId}`;
  const one = (where: Sql, name?: keyof RunFilter): Candidates =>
    by([(after) => indexed(where, filter, after)], name);
  // `|| ''` hides the environment from the planner, which without statistics would read all its runs.
  const few = (where: Sql, name: keyof RunFilter) =>
    one(sql`${where} AND environment_id || '' = ${environmentId}`, name);
  if (eventId !== undefined) return few(sql`event_id = ${eventId}`, "eventId");
  const named = search === undefined ? undefined : namedBy(search);
  if (named) return few(named, "search");
  if (errorGroup !== undefined) return one(sql`${own} AND error_group = ${errorGroup}`, "errorGroup");
  if (undoFailed) return one(sql`${own} AND undo_failed IS NOT NULL`, "undoFailed");
  const byStatus = await statusLead(store, filter);
  if (byStatus) return by(byStatus, filter.errorText === undefined ? "statuses" : undefined);
  if (functionId !== undefined) return one(sql`${own} AND function_id = ${functionId}`, "functionId");
  // Where an index has more columns the planner might take that of time instead, and read all runs there are.
  return {
    ...one(own),
    ...(filter.errorText === undefined && { rows: (after, most) => rowsBy(own, filter, after, most) }),
  };
}

/** All runs of these functions that the rest of the filter takes. */
export const ofFunctions = (filter: RunFilter, functionIds: readonly string[]): Candidates => {
  const { since: _, until: __, search: ___, ...asked } = filter;
  return {
    upTo: (after, most, skip = 0) =>
      merged(
        functionIds.map((id) =>
          indexed(sql`environment_id = ${filter.environmentId} AND function_id = ${id}`, filter, after),
        ),
        most,
        skip,
      ),
    order: newestFirst("c"),
    matching: lookupsOf(asked),
    within: withinOf(asked),
  };
};
