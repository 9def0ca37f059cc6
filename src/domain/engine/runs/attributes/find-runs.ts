import { invalid } from "../../../../kit/fault.ts";
import { countCap } from "../../../../kit/limits.ts";
import { type Cursor, readCursor, writeCursor } from "../../../../kit/page.ts";
import { type Sql, sql } from "../../../../kit/sql.ts";
import type { Store } from "../../../../store/store.ts";
import { type AttributeRange, candidatesMax, fewRunsMax } from "../../attributes/rules.ts";
import type { RunFilter } from "../rows.ts";
import * as rows from "../rows.ts";
import type { Run } from "../run.ts";
import { inRange } from "./ranges.ts";

/** Candidates looked at first for each run of a page; when they are not enough, all of `candidatesMax`. */
const looksPerRun = 4;

/** Newest first when left out. */
export interface AttributeOrder {
  name: string;
  isAscending: boolean;
}

/** Where a run stands in the order: behind a value where an attribute orders the list. */
type After = (Cursor & { value?: string }) | undefined;

/** Runs by their attributes, a page at a time. */
export interface FindRuns {
  filter: RunFilter & { attributes: readonly AttributeRange[] };
  order: AttributeOrder | undefined;
  cursor: string | undefined;
  size: number;
}

export interface FoundRuns {
  runs: Run[];
  nextCursor: string | undefined;
  totalCount: number;
}

/**
 * A page looks at no more than `candidatesMax` runs, in their order, and may be short: its cursor goes on behind the
 * last one looked at. Of several filters the one that few runs match is looked up first.
 */
export async function findRuns(store: Store, asked: FindRuns): Promise<FoundRuns> {
  const { filter, order, size } = asked;
  const after = await readPlace(store, asked);
  const { candidates, rest } = await candidatesOf(store, filter, order);

  async function look(most: number): Promise<{ found: RunCandidate[]; next: RunCandidate | undefined }> {
    const found = await store.all<RunCandidate>(sql`SELECT c.run_id, c.created_at, c.value
      FROM (${candidates(after)} LIMIT ${most}) c ${whereMatching(rest)}
      ORDER BY ${orderOf("c", order)} LIMIT ${size + 1}`);
    if (found.length > size) return { found: found.slice(0, size), next: found[size - 1] };
    const last = await store.one<RunCandidate>(sql`${candidates(after)} LIMIT 1 OFFSET ${most - 1}`);
    return last && most < candidatesMax ? look(candidatesMax) : { found, next: last };
  }

  const [{ found, next }, counted] = await Promise.all([
    look(looksPerRun * (size + 1)),
    store.one<{ count: number }>(sql`SELECT count(*) AS count
      FROM (${candidates(undefined)} LIMIT ${countCap}) c ${whereMatching(rest)}`),
  ]);
  const ids = found.map(({ run_id }) => run_id);
  return {
    runs: await rows.runsById(store, filter.environmentId, ids),
    nextCursor: next && writeCursor({ at: next.created_at, id: next.run_id }),
    totalCount: Number(counted?.count ?? 0),
  };
}

/** One lookup a candidate, whatever the statistics say: a join would read every run that there is. */
function whereMatching(rest: RunFilter): Sql {
  const list = rows.conditions(rest);
  // An attribute is of a run of its environment: without a further condition there is nothing to look at.
  if (list.length === 1) return sql.empty;
  return sql`WHERE (SELECT 1 FROM runs r ${sql.where([sql.raw("r.id = c.run_id"), ...list])} LIMIT 1) IS NOT NULL`;
}

interface RunCandidate {
  run_id: string;
  created_at: number;
  /** Of the attribute that orders the list. */
  value: string | null;
}

export interface Candidates {
  /** Rows `run_id`, `created_at` and `value` behind a place, in the order of the list. */
  candidates(after: After): Sql;
  /** What is left to be looked at in each candidate. */
  rest: RunFilter;
}

/** Where the runs are looked for that a filter by attributes finds. */
export async function candidatesOf(
  store: Pick<Store, "all">,
  filter: FindRuns["filter"],
  order?: AttributeOrder,
): Promise<Candidates> {
  const few = await fewestOf(store, filter, order);
  const lead =
    few ?? filter.attributes.find(({ name, equals }) => (order ? name === order.name : equals !== undefined));
  return {
    candidates: (after) =>
      few ? candidatesOfFew(filter, few, order, after) : candidatesInOrder(filter, order, lead, after),
    rest: { ...filter, attributes: filter.attributes.filter((range) => range !== lead) },
  };
}

/** The filter that fewest runs match, when they are few; one equal value in the order of creation needs no look. */
async function fewestOf(
  store: Pick<Store, "all">,
  { environmentId, attributes }: FindRuns["filter"],
  order: AttributeOrder | undefined,
): Promise<AttributeRange | undefined> {
  if (attributes.length === 0) return undefined;
  if (attributes.length === 1 && !order && attributes[0]!.equals !== undefined) return undefined;
  const counts = attributes.map(
    (
      range,
      at,
    ) => sql`SELECT ${sql.bigint(at)} AS place, (SELECT count(*) FROM (SELECT 1 FROM run_attributes a
      WHERE ${inRange(environmentId, range)} LIMIT ${fewRunsMax + 1}) counted) AS count`,
  );
  const found = await store.all<{ place: number; count: number }>(sql.join(counts, " UNION ALL "));
  const [least] = found.sort((a, b) => Number(a.count) - Number(b.count));
  return least && Number(least.count) <= fewRunsMax ? attributes[Number(least.place)] : undefined;
}

function candidatesOfFew(
  { environmentId }: RunFilter,
  few: AttributeRange,
  order: AttributeOrder | undefined,
  after: After,
): Sql {
  const found = sql`SELECT a.run_id, a.created_at FROM run_attributes a WHERE ${inRange(environmentId, few)}
    LIMIT ${fewRunsMax + 1}`;
  if (!order)
    return sql`SELECT f.run_id, f.created_at, NULL AS value FROM (${found}) f
      ${after ? sql`WHERE ${behind("f", after, undefined)}` : sql.empty} ORDER BY ${orderOf("f", undefined)}`;
  return sql`SELECT o.run_id, o.created_at, o.value FROM (${found}) f CROSS JOIN run_attributes o
    WHERE o.run_id = f.run_id AND o.name = ${order.name} AND o.environment_id || '' = ${environmentId}
      ${after ? sql`AND ${behind("o", after, order)}` : sql.empty} ORDER BY ${orderOf("o", order)}`;
}

function candidatesInOrder(
  { environmentId, since, until }: RunFilter,
  order: AttributeOrder | undefined,
  lead: AttributeRange | undefined,
  after: After,
): Sql {
  const range = lead ?? (order && { name: order.name, type: undefined });
  const times = (alias: string) => [
    ...(since === undefined ? [] : [sql`${sql.raw(alias)}.created_at >= ${since}`]),
    ...(until === undefined ? [] : [sql`${sql.raw(alias)}.created_at <= ${until}`]),
    ...(after ? [behind(alias, after, order)] : []),
  ];
  if (range)
    return sql`SELECT a.run_id, a.created_at, a.value FROM run_attributes a
      ${sql.where([inRange(environmentId, range), ...times("a")])} ORDER BY ${orderOf("a", order)}`;
  return sql`SELECT n.run_id, n.created_at, NULL AS value FROM (
      SELECT id AS run_id, created_at FROM runs WHERE environment_id = ${environmentId}) n
    ${after || since !== undefined || until !== undefined ? sql.where(times("n")) : sql.empty}
    ORDER BY ${orderOf("n", undefined)}`;
}

/** Row comparisons are ranges of the index; with the columns before them in the row they would be filters. */
function behind(
  alias: string,
  { value, at, id }: NonNullable<After>,
  order: AttributeOrder | undefined,
): Sql {
  const of = (names: string[]) => sql.raw(`(${names.map((name) => `${alias}.${name}`).join(", ")})`);
  if (!order) return sql`${of(["created_at", "run_id"])} < (${sql.bigint(at)}, ${id})`;
  const columns = of(["value", "created_at", "run_id"]);
  return sql`${columns} ${sql.raw(order.isAscending ? ">" : "<")} (${value ?? ""}, ${sql.bigint(at)}, ${id})`;
}

const orderOf = (alias: string, order: AttributeOrder | undefined): Sql => {
  const way = order?.isAscending ? "" : " DESC";
  const names = order ? ["value", "created_at", "run_id"] : ["created_at", "run_id"];
  return sql.raw(names.map((name) => `${alias}.${name}${way}`).join(", "));
};

/**
 * Where a page begins. A cursor names a run and not its value, which policies may hide from who has the cursor: the
 * value is looked up.
 */
async function readPlace(store: Pick<Store, "one">, { filter, cursor, order }: FindRuns): Promise<After> {
  if (cursor === undefined) return undefined;
  const { at, id } = readCursor("cursor", cursor);
  if (!order) return { at, id };
  const row = await store.one<{ value: string }>(sql`SELECT value FROM run_attributes
    WHERE run_id = ${id} AND name = ${order.name} AND environment_id || '' = ${filter.environmentId}`);
  if (!row) throw invalid("cursor", "its run is not in this list any more: begin at the first page");
  return { at, id, value: row.value };
}
