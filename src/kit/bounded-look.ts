import { countCap } from "./limits.ts";
import type { Listing } from "./operation.ts";
import { pageOf } from "./page.ts";
import { type Sql, sql } from "./sql.ts";

/** Rows a page looks at, where no index has all that its filter asks for; its cursor continues after them. */
export const looksMax = 10_000;
/** The same of a first page whose callers may know of no cursors. */
export const firstLooksMax = 100_000;

/** A list whose filter only partly stands in an index. */
export interface BoundedList {
  /** Columns that name a row, order it, or are filtered by: every row that is looked at is read with them. */
  columns: Sql;
  from: Sql;
  /** Conditions that the index of the order serves: it reads no row that does not meet them. */
  served: readonly Sql[];
  /** Conditions that each row is looked at for; none where the index serves all. */
  asked: readonly Sql[];
  order: Sql;
}

export interface BoundedPage<Row, Place = Row> {
  found: Row[];
  /** The last row looked at, where the look ended at its bound; there may be more after it. */
  end: Place | undefined;
  /** How many rows were looked at then; else 0. */
  scanned: number;
}

/**
 * A listing for callers from whom deny policies hide items. A cursor would name the last item found or looked
 * at, even a hidden one, and with a search show that there are hidden matches. Such callers page by offset.
 */
export const withoutPlace = <O>(listing: Listing<O>): Listing<O> => ({
  ...listing,
  only: (output, items) => ({
    ...listing.only(output, items),
    ...{ nextCursor: undefined, isTotalCut: false, scanned: 0 },
  }),
});

interface LookReader {
  all<Row extends object>(query: Sql): Promise<Row[]>;
  one<Row extends object>(query: Sql): Promise<Row | undefined>;
}

const window = ({ columns, from, served, order }: BoundedList, most: number, skip = 0): Sql =>
  sql`SELECT ${columns} FROM ${from} ${sql.where(served)} ORDER BY ${order} LIMIT ${most - skip} OFFSET ${skip}`;

/**
 * The first `limit` matching rows after `offset` others, within the bound. The bound counts rows looked at,
 * not rows found: a filter without a hit would otherwise read the whole table.
 */
export async function lookThrough<Row extends object>(
  reader: LookReader,
  list: BoundedList,
  { limit, offset = 0, looks = looksMax }: { limit: number; offset?: number; looks?: number },
): Promise<BoundedPage<Row>> {
  if (list.asked.length === 0)
    return { found: await reader.all<Row>(window(list, offset + limit, offset)), end: undefined, scanned: 0 };
  const most = looks + offset;
  const found = await reader.all<Row>(sql`SELECT ${list.columns} FROM (${window(list, most)}) looked
    ${sql.where(list.asked)} ORDER BY ${list.order} LIMIT ${limit} OFFSET ${offset}`);
  if (found.length === limit) return { found, end: undefined, scanned: 0 };
  const end = await reader.one<Row>(window(list, most, most - 1));
  return { found, end, scanned: end ? most : 0 };
}

export interface BoundedCount {
  /** At most `countCap`. */
  count: number;
  /** There may be more: so many match, or so many were looked at. */
  isCut: boolean;
}

/** How many of the first `looks` rows match, counted up to `countCap`. */
export async function countLooked(
  reader: Pick<LookReader, "one">,
  list: BoundedList,
  looks = countCap,
): Promise<BoundedCount> {
  const most = Math.max(looks, countCap + 1);
  const row = await reader.one<{ count: number }>(sql`SELECT count(*) AS count FROM (
    SELECT 1 AS one FROM (${window(list, list.asked.length === 0 ? countCap + 1 : most)}) looked
    ${sql.where(list.asked)} LIMIT ${countCap + 1}) matched`);
  const count = Number(row?.count ?? 0);
  if (count > countCap || list.asked.length === 0)
    return { count: Math.min(countCap, count), isCut: count > countCap };
  return { count, isCut: (await reader.one(window(list, most, most - 1))) !== undefined };
}

/** Of up to `size + 1` rows that were found those of the page, and where the next one begins. */
export function boundedPageOf<Row extends Place, Place>(
  { found, end, scanned }: BoundedPage<Row, Place>,
  size: number,
  cursorOf: (last: Place) => string,
): { items: Row[]; nextCursor: string | undefined; scanned: number } {
  const { items, nextCursor } = pageOf(found, size, cursorOf);
  return { items, nextCursor: nextCursor ?? (end && cursorOf(end)), scanned };
}
