import { invalid } from "../../../../kit/fault.ts";
import { readCursor, writeCursor } from "../../../../kit/page.ts";
import { type Sql, sql } from "../../../../kit/sql.ts";
import type { Store } from "../../../../store/store.ts";
import { type AttributeRange, fewRunsMax } from "../../attributes/rules.ts";
import {
  type After,
  type Candidates,
  countThrough,
  fittingRuns,
  indexed,
  lookThrough,
  lookupsOf,
  type RunsPage,
  withinOf,
} from "../lists/look.ts";
import { type RunFilter, runsById } from "../rows.ts";
import { inRange } from "./attribute-rows.ts";

/** Newest first when left out. */
export interface AttributeOrder {
  name: string;
  isAscending: boolean;
}

/** Runs by their attributes, a page at a time. */
export interface FindRuns {
  filter: RunFilter & { attributes: readonly AttributeRange[] };
  order: AttributeOrder | undefined;
  cursor: string | undefined;
  size: number;
}

/** Of several filters the one that few runs match is looked up first. */
export async function findRuns(store: Store, asked: FindRuns): Promise<RunsPage> {
  const { filter, order, size } = asked;
  const after = await readPlace(store, asked);
  const { candidates, rest } = await candidatesOf(store, filter, order);
  const list: Candidates = {
    upTo: (place, most, skip = 0) => sql`${candidates(place)} LIMIT ${most - skip} OFFSET ${skip}`,
    order: orderOf("c", order),
    matching: lookupsOf(rest),
    within: withinOf(rest),
  };
  const [look, counted] = await Promise.all([
    lookThrough(store, list, { after, size, offset: 0 }),
    countThrough(store, list),
  ]);
  const most = await fittingRuns(store, look.ids);
  if (most < look.ids.length) return findRuns(store, { ...asked, size: most });
  return {
    runs: await runsById(store, filter.environmentId, look.ids),
    nextCursor: look.next && writeCursor(look.next),
    ...counted,
    scanned: look.scanned,
  };
}

/** Where the runs are looked for that a filter by attributes finds. */
export async function candidatesOf(
  store: Pick<Store, "all">,
  filter: FindRuns["filter"],
  order?: AttributeOrder,
) {
  const few = await fewestOf(store, filter, order);
  const lead =
    few ?? filter.attributes.find(({ name, equals }) => (order ? name === order.name : equals !== undefined));
  return {
    /** Rows `run_id`, `created_at` and `value` after a place, in the order of the list. */
    candidates: (after: After) =>
      few ? candidatesOfFew(filter, few, order, after) : candidatesInOrder(filter, order, lead, after),
    /** What is left to be looked at in each candidate. */
    rest: { ...filter, attributes: filter.attributes.filter((range) => range !== lead) },
  };
}

/** The filter that fewest runs match, if they are few. One equal value in order of creation needs no look. */
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
  filter: RunFilter,
  order: AttributeOrder | undefined,
  lead: AttributeRange | undefined,
  after: After,
): Sql {
  const { environmentId, since, until } = filter;
  const range = lead ?? (order && { name: order.name, type: undefined });
  if (!range) return indexed(sql`environment_id = ${environmentId}`, filter, after);
  const times = [
    ...(since === undefined ? [] : [sql`a.created_at >= ${since}`]),
    ...(until === undefined ? [] : [sql`a.created_at <= ${until}`]),
    ...(after ? [behind("a", after, order)] : []),
  ];
  return sql`SELECT a.run_id, a.created_at, a.value FROM run_attributes a
    ${sql.where([inRange(environmentId, range), ...times])} ORDER BY ${orderOf("a", order)}`;
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
 * Where a page begins. A cursor names a run and not its value, which policies may hide from who has the
 * cursor: the value is looked up.
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
