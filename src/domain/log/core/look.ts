import { countCap } from "../../../kit/limits.ts";
import type { Cursor } from "../../../kit/page.ts";
import { containsIgnoringCase, looksWithin, type Sql, sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { conditions, conditionsBeside, type EventFilter, namesMax, namesScanCap } from "./rows.ts";

/** Names of a log that a part of a name is looked for in. */
const namesKnownMax = 1_000;
/** Events of the names looked for that are found by these names alone. */
const fewEventsMax = 1_000;

/** Events looked at first for each of a page; when they are not enough, `namesScanCap`. */
const looksPerEvent = 4;

export type PageAnchor = { olderThan: Cursor } | { newerThan: Cursor } | undefined;

export interface EventKey extends Cursor {
  position: number;
}

/** Event ids are made of these letters, and begin with the time; so many name a second of it. */
const eventId = /^evt_0[0-9a-hjkmnp-tv-z]{7,25}$/;

/** Events by the beginning of their id, where the search is one. */
const namedBy = (search: string | undefined): Sql | undefined => {
  const text = search?.toLowerCase() ?? "";
  return eventId.test(text) ? sql`id >= ${text} AND id < ${`${text}~`}` : undefined;
};

/** Whether not every event of its time is in the list. */
const isChoosy = ({ name, names, sources, search }: EventFilter): boolean =>
  [name, names, sources, search].some((part) => part !== undefined);

interface LookOrder {
  beyond: Sql[];
  by: Sql;
}

/** Newest first, or with `newerThan` the nearest newer ones, oldest first. */
function orderBy(anchor: PageAnchor): LookOrder {
  if (anchor && "newerThan" in anchor) {
    const { at, id } = anchor.newerThan;
    return { beyond: [sql`(at, id) > (${sql.bigint(at)}, ${id})`], by: sql.raw("at, id") };
  }
  const by = sql.raw("at DESC, id DESC");
  if (!anchor) return { beyond: [], by };
  const { at, id } = anchor.olderThan;
  return { beyond: [sql`(at, id) < (${sql.bigint(at)}, ${id})`], by };
}

/**
 * The first `most` events of the filter's time, as it orders them; of names and sources an index has all that
 * is asked: libSQL would otherwise read every payload that it passes.
 */
const windowOf = (
  { environmentId, since, until }: EventFilter,
  { beyond, by }: LookOrder,
  most: number,
  skip = 0,
) => {
  const times = conditions({
    environmentId,
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  });
  return sql`SELECT at, id, position, name, source FROM events ${sql.where([...times, ...beyond])}
    ORDER BY ${by} LIMIT ${most - skip} OFFSET ${skip}`;
};

const among = (source: Sql, filter: EventFilter, { beyond, by }: LookOrder, limit: number): Sql =>
  sql`SELECT at, id, position FROM (${source}) looked ${sql.where([...conditionsBeside(filter), ...beyond])}
    ORDER BY ${by} LIMIT ${limit}`;

// `|| ''` hides the environment from the planner, which without statistics would read all its events.
const ofId = ({ environmentId }: EventFilter, named: Sql): Sql =>
  sql`SELECT at, id, position, name, source FROM events WHERE ${named} AND environment_id || '' = ${environmentId}`;

/** Indexes of the log's names that hold the text; undefined when it has more than `namesKnownMax` names. */
async function namesHolding(
  store: Pick<Store, "all">,
  environmentId: string,
  text: string,
): Promise<string[] | undefined> {
  const next = (beyond: Sql) =>
    sql`(SELECT v.name FROM events v WHERE v.environment_id = ${environmentId} ${beyond} ORDER BY v.name LIMIT 1)`;
  const found = await store.all<{ name: string; place: number }>(sql`WITH RECURSIVE known(name, place) AS (
      SELECT ${next(sql.empty)}, ${sql.bigint(1)}
      UNION ALL SELECT ${next(sql.raw("AND v.name > known.name"))}, known.place + 1 FROM known
        WHERE known.name IS NOT NULL AND known.place <= ${namesKnownMax})
    SELECT name, place FROM known
    WHERE name IS NOT NULL AND (place > ${namesKnownMax} OR ${containsIgnoringCase("name", text)})`);
  if (found.some(({ place }) => Number(place) > namesKnownMax)) return undefined;
  return found.map(({ name }) => name);
}

/** Rows with all events of a filter by names, if the index of names has few of them; else undefined. */
async function fewOf(store: Pick<Store, "all" | "one">, filter: EventFilter): Promise<Sql | undefined> {
  const { environmentId, name, names, sources, search } = filter;
  if (search !== undefined || (name === undefined && names === undefined)) return undefined;
  const wanted = names ?? (await namesHolding(store, environmentId, name!));
  if (wanted === undefined || wanted.length > namesMax) return undefined;
  const nothing = sql`SELECT 0 AS at, '' AS id, 0 AS position, '' AS name, '' AS source WHERE 1 = 0`;
  if (wanted.length === 0) return nothing;
  // On libSQL the source is stored after the payload.
  if (sources !== undefined) return undefined;
  // Ids are read by position: otherwise libSQL reads the whole index of times, which has ids and names.
  const list = sql.join(
    wanted.map(
      (one) => sql`SELECT at, (SELECT v.id FROM events v
          WHERE v.environment_id = ${environmentId} AND v.position = one.position) AS id, position, name
        FROM (SELECT at, position, name FROM events
          WHERE environment_id = ${environmentId} AND name = ${one} LIMIT ${fewEventsMax + 1}) one`,
    ),
    " UNION ALL ",
  );
  const row = await store.one<{ count: number }>(
    sql`SELECT count(*) AS count FROM (SELECT 1 FROM (${list}) every LIMIT ${fewEventsMax + 1}) counted`,
  );
  return Number(row?.count ?? 0) <= fewEventsMax ? list : undefined;
}

/** Looks of one list: what is few is found out once, and only when it is asked for. */
export type EventLook = ReturnType<typeof openLook>;

export function openLook(store: Pick<Store, "all" | "one">, filter: EventFilter) {
  const named = namedBy(filter.search);
  const looksOf = (most: number) => looksWithin(most, filter.search, filter.name);
  const looksMax = looksOf(namesScanCap);
  let found: Promise<Sql | undefined> | undefined;
  const few = () => {
    found ??= fewOf(store, filter);
    return found;
  };
  return {
    looksMax,
    /**
     * Events that match, as the anchor orders them. `last` is the last one looked at, when there may be more
     * after `looksMax` of them.
     */
    async keys(anchor: PageAnchor, limit: number): Promise<{ keys: EventKey[]; last: Cursor | undefined }> {
      const order = orderBy(anchor);
      if (named)
        return { keys: await store.all(among(ofId(filter, named), filter, order, limit)), last: undefined };
      if (!isChoosy(filter))
        return { keys: await store.all(windowOf(filter, order, limit)), last: undefined };
      for (const most of [Math.min(looksPerEvent * limit, looksMax), looksMax]) {
        const keys = await store.all<EventKey>(among(windowOf(filter, order, most), filter, order, limit));
        if (keys.length >= limit) return { keys, last: undefined };
        const last = await store.one<EventKey>(windowOf(filter, order, most, most - 1));
        if (!last) return { keys, last };
        if (most < looksMax) continue;
        const source = await few();
        if (source === undefined) return { keys, last };
      }
      const source = (await few())!;
      return { keys: await store.all(among(source, filter, order, limit)), last: undefined };
    },

    /** How many match, and whether more may. */
    async count(): Promise<{ count: number; isCut: boolean }> {
      const order = orderBy(undefined);
      const most = looksOf(countCap + 1);
      const source = named ? ofId(filter, named) : windowOf(filter, order, most);
      const where = sql.join([sql.raw("1 = 1"), ...conditionsBeside(filter)], " AND ");
      const row = await store.one<{ count: number; looked: number }>(sql`SELECT
        count(CASE WHEN ${where} THEN 1 END) AS count, count(*) AS looked FROM (${source}) looked`);
      const counted = {
        count: Math.min(countCap, Number(row?.count ?? 0)),
        isCut: Number(row?.looked ?? 0) >= most,
      };
      const all = counted.isCut ? await few() : undefined;
      if (!all) return counted;
      const keys = await store.all(among(all, filter, order, fewEventsMax + 1));
      return { count: keys.length, isCut: false };
    },
  };
}
