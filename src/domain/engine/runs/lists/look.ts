import { countCap } from "../../../../kit/limits.ts";
import type { Cursor } from "../../../../kit/page.ts";
import { fitting } from "../../../../kit/slice-size.ts";
import { column, looksWithin, type Sql, sql } from "../../../../kit/sql.ts";
import type { Store } from "../../../../store/store.ts";
import { candidatesMax } from "../../attributes/rules.ts";
import { fewLiveMax } from "../limits.ts";
import * as rows from "../rows.ts";
import { namedBy, type RunFilter } from "../rows.ts";
import { storedStatuses } from "../rules.ts";
import type { ExecutionState, Run } from "../run.ts";

/** Candidates looked at first for each run of a page; when they are not enough, all that may be. */
const looksPerRun = 4;

/** Where a run stands in the order: after a value where an attribute orders the list. */
export type After = (Cursor & { value?: string }) | undefined;

export interface RunCandidate {
  run_id: string;
  created_at: number;
  /** Of the attribute that orders the list. */
  value: string | null;
}

/** Where the runs of a list are looked for, by an index. */
export interface Candidates {
  /** The first `most` rows of `RunCandidate` after a place, in the list's order, less the first `skip`. */
  upTo(after: After, most: number, skip?: number): Sql;
  /** The same runs as rows `r` of what `matching` asks, where one index finds them: no look-up for each. */
  rows?: (after: After, most: number) => Sql;
  /** Of rows `c`. */
  order: Sql;
  /** What run `r` of a candidate must meet; none where all candidates are in the list. */
  matching: readonly Sql[];
  /** How many are looked at where it would be `most` of a filter without texts. */
  within(most: number): number;
}

export interface RunsLook {
  ids: string[];
  /** Where the next page begins. */
  next: Cursor | undefined;
  /** How many candidates were looked at, when that ended the page; else 0. */
  scanned: number;
}

export interface RunsCount {
  /** Counted up to `countCap`, and among the first `candidatesMax` candidates. */
  totalCount: number;
  /** There may be more than were counted. */
  isTotalCut: boolean;
}

export interface RunsPage extends RunsCount {
  runs: Run[];
  nextCursor: string | undefined;
  /** As of a look. */
  scanned: number;
}

/** What is asked of each candidate beside its place in the list. */
export const lookupsOf = (rest: RunFilter): Sql[] => {
  const list = rows.lookups(rest);
  // A candidate is of its environment: without a further condition there is nothing to look at.
  return list.length === 1 ? [] : list;
};

/** A failure is longer than the names that others look through. */
const errorShare = 4;

export const withinOf =
  ({ search, errorText }: RunFilter): Candidates["within"] =>
  (most) =>
    looksWithin(errorText === undefined ? most : Math.ceil(most / errorShare), search, errorText);

/** One lookup a candidate, whatever the statistics say: a join would read every run that there is. */
const lookup = (matching: readonly Sql[]): Sql =>
  sql`(SELECT 1 FROM runs r ${sql.where([sql.raw("r.id = c.run_id"), ...matching])} LIMIT 1)`;

/** Looks at up to `most` candidates: the page may be short, and the next continues after the last of them. */
export async function lookThrough(
  store: Pick<Store, "all" | "one">,
  list: Candidates,
  { after, size, offset }: { after: After; size: number; offset: number },
  most = list.within(candidatesMax),
): Promise<RunsLook> {
  const wanted = offset + size + 1;
  const page = (found: readonly RunCandidate[], next: RunCandidate | undefined, scanned = 0): RunsLook => ({
    ids: found.slice(0, size).map(({ run_id }) => run_id),
    next: next && { at: next.created_at, id: next.run_id },
    scanned,
  });
  if (list.matching.length === 0) {
    const found = await store.all<RunCandidate>(list.upTo(after, wanted, offset));
    return page(found, found.length > size ? found[size - 1] : undefined);
  }

  async function look(bound: number): Promise<RunsLook> {
    const found = await store.all<RunCandidate>(sql`SELECT c.run_id, c.created_at, c.value
      FROM (${list.upTo(after, bound)}) c WHERE ${lookup(list.matching)} IS NOT NULL
      ORDER BY ${list.order} LIMIT ${size + 1} OFFSET ${offset}`);
    if (found.length > size) return page(found, found[size - 1]);
    const last = await store.one<RunCandidate>(list.upTo(after, bound, bound - 1));
    if (last && bound < most) return look(most);
    return page(found, last, last && most);
  }
  return look(Math.min(most, looksPerRun * wanted));
}

/** Of inputs, outputs and errors: an answer of more than 64 MiB is refused, and JSON may double them. */
const pageBytesMax = 24 * 1024 * 1024;

/** How many of the runs, in this order, a page may have. */
export async function fittingRuns(store: Store, ids: readonly string[]): Promise<number> {
  if (ids.length < 2) return ids.length;
  const bytes = ["v.data", "r.output", "r.error"].map((column) => `COALESCE(octet_length(${column}), 0)`);
  const rows = await store.all<{ id: string; bytes: number }>(
    sql`SELECT r.id, ${sql.raw(bytes.join(" + "))} AS bytes FROM runs r LEFT JOIN events v ON v.id = r.event_id
      WHERE r.id ${store.seams.among(column.text(ids))}`,
  );
  const found = new Map(rows.map((row) => [row.id, row.bytes]));
  return fitting(
    ids.map((id) => ({ environment_id: "", bytes: found.get(id) ?? 0 })),
    ({ bytes }) => bytes,
    pageBytesMax,
  ).length;
}

/** How many there are, as `RunsPage` says, when so many of them are known before a place. */
export async function countThrough(
  store: Pick<Store, "one">,
  list: Candidates,
  { known, after }: { known: number; after: After } = { known: 0, after: undefined },
): Promise<RunsCount> {
  const most = Math.min(countCap + 1 - known, list.within(countCap + 1));
  const isRow = sql`CASE WHEN ${sql.join(list.matching, " AND ")} THEN 1 END`;
  const [matches, from] =
    list.matching.length === 0
      ? [sql.raw("*"), sql`(${list.upTo(after, most)}) c`]
      : list.rows
        ? [isRow, sql`(${list.rows(after, most)}) r`]
        : [lookup(list.matching), sql`(${list.upTo(after, most)}) c`];
  const row = await store.one<{ count: number; looked: number }>(
    sql`SELECT count(${matches}) AS count, count(*) AS looked FROM ${from}`,
  );
  return {
    totalCount: Math.min(countCap, known + Number(row?.count ?? 0)),
    isTotalCut: Number(row?.looked ?? 0) >= most,
  };
}

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
