import { fitting } from "../../../../kit/fitting.ts";
import { countCap } from "../../../../kit/limits.ts";
import type { Cursor } from "../../../../kit/page.ts";
import { column, type Sql, sql } from "../../../../kit/sql.ts";
import { looksWithin } from "../../../../kit/sql-contains.ts";
import type { Store } from "../../../../store/store.ts";
import { candidatesMax } from "../../attributes/rules.ts";
import type { RunFilter } from "../rows.ts";
import * as rows from "../rows.ts";
import type { Run } from "../run.ts";

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
