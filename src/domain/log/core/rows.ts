import type { Instant } from "../../../kit/clock.ts";
import { column, containsIgnoringCase, type Sql, sql } from "../../../kit/sql.ts";
import type { StoredEvent } from "../../../kit/stored-event.ts";
import type { Store } from "../../../store/store.ts";

/** Events that a page, or a count of names, looks at. */
export const namesScanCap = 10_000;
export const namesMax = 200;

/** A stored event with its position, its entity and the run that emitted it. */
export interface LoggedEvent extends StoredEvent {
  position: number;
  entity_id: string | null;
  entity_type: string | null;
  entity_version: number | null;
  run_id: string | null;
  /** When its payloads were overwritten. */
  redacted_at: Instant | null;
  /** The schema that it was checked by, and the rule that it broke; hints of its commit leave them out. */
  schema_hash?: string | null;
  schema_breach?: string | null;
}

export interface EventFilter {
  environmentId: string;
  /** Substring of the name. */
  name?: string;
  /** Exact, any of them. */
  names?: readonly string[];
  sources?: readonly string[];
  /** Substring of name or id. */
  search?: string;
  since?: Instant;
  until?: Instant;
}

const columns = sql.raw(`id, position, name, version, data, metadata, source, at, idempotency_key, entity_id,
  entity_type, entity_version, run_id, redacted_at, schema_hash, schema_breach`);

export const conditions = (filter: EventFilter): Sql[] => [
  sql`environment_id = ${filter.environmentId}`,
  ...conditionsBeside(filter),
];

/** Of an event of the environment. */
export function conditionsBeside(filter: EventFilter): Sql[] {
  const list: Sql[] = [];
  if (filter.name !== undefined) list.push(containsIgnoringCase("name", filter.name));
  if (filter.names !== undefined) list.push(sql`name IN ${sql.list(filter.names)}`);
  if (filter.sources !== undefined) list.push(sql`source IN ${sql.list(filter.sources)}`);
  if (filter.search !== undefined)
    list.push(
      sql`(${containsIgnoringCase("name", filter.search)} OR ${containsIgnoringCase("id", filter.search)})`,
    );
  if (filter.since !== undefined) list.push(sql`at >= ${filter.since}`);
  if (filter.until !== undefined) list.push(sql`at <= ${filter.until}`);
  return list;
}

export function getEvent(store: Store, environmentId: string, id: string): Promise<LoggedEvent | undefined> {
  return store.one(sql`SELECT ${columns} FROM events WHERE id = ${id} AND environment_id = ${environmentId}`);
}

/** Events that are looked at for those of a source, which no index has. */
const sourceLooksMax = 30_000;

/**
 * Names with their counts among the newest `namesScanCap` matching events, most frequent first, one more than
 * shown. `matched` goes one beyond that. A source is looked for in only so many events; `isCut`: more exist.
 */
export async function countNames(
  store: Store,
  { environmentId, since, until, ...asked }: EventFilter,
): Promise<{ names: { name: string; count: number }[]; matched: number; isCut: boolean }> {
  const times = conditions({
    environmentId,
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  });
  const beside = conditionsBeside({ environmentId, ...asked });
  const looksMost = beside.length === 0 ? namesScanCap + 1 : sourceLooksMax;
  const looked = sql`SELECT name, source FROM events ${sql.where(times)} ORDER BY at DESC, id DESC LIMIT ${looksMost}`;
  const matching = (most: number) =>
    sql`SELECT name FROM (${looked}) looked ${sql.where(beside)} LIMIT ${most}`;
  const [names, row, behind] = await Promise.all([
    store.all<{
      name: string;
      count: number;
    }>(sql`SELECT name, count(*) AS count FROM (${matching(namesScanCap)}) newest
      GROUP BY name ORDER BY count(*) DESC, name LIMIT ${namesMax + 1}`),
    store.one<{ count: number }>(sql`SELECT count(*) AS count FROM (${matching(namesScanCap + 1)}) counted`),
    store.one(sql`SELECT 1 AS there FROM events ${sql.where(times)} ORDER BY at DESC, id DESC
      LIMIT 1 OFFSET ${sourceLooksMax}`),
  ]);
  return { names, matched: Number(row?.count ?? 0), isCut: beside.length > 0 && behind !== undefined };
}

/** The events after a position, in order; up to and including `last` when it is given. */
export const eventsAfter = (
  store: Pick<Store, "all">,
  environmentId: string,
  after: number,
  limit: number,
  last?: number,
): Promise<LoggedEvent[]> => {
  const where = [sql`environment_id = ${environmentId}`, sql`position > ${after}`];
  if (last !== undefined) where.push(sql`position <= ${last}`);
  return store.all(sql`SELECT ${columns} FROM events ${sql.where(where)} ORDER BY position LIMIT ${limit}`);
};

/** The last position of a log, and the first that is kept. */
export interface LogPosition {
  environment_id: string;
  position: number;
  retention_floor: number;
}

export interface Head extends LogPosition {
  epoch: number;
}

export const headsOf = (store: Pick<Store, "all">, environmentIds: readonly string[]): Promise<Head[]> =>
  store.all(sql`SELECT environment_id, position, retention_floor, epoch FROM heads
    WHERE environment_id IN ${sql.list(environmentIds)}`);

/** Newest first, up to and including position `last`; of one name when it is given. */
export function newestEvents(
  store: Pick<Store, "all">,
  environmentId: string,
  { last, name }: { last: number; name: string | undefined },
  limit: number,
): Promise<LoggedEvent[]> {
  const inLog = sql`environment_id = ${environmentId}`;
  if (name === undefined)
    return store.all(sql`SELECT ${columns} FROM events WHERE ${inLog} AND position <= ${last}
      ORDER BY position DESC LIMIT ${limit}`);
  // Events are in the same order by time and by position, so the index over names and times serves. `+ 0`
  // keeps libSQL from the primary key, by which it would read and sort the whole log, payloads included, for
  // each slice.
  const lastAt = sql`SELECT at FROM events WHERE ${inLog} AND position <= ${last} ORDER BY position DESC LIMIT 1`;
  return store.all(sql`SELECT ${columns} FROM events
    WHERE ${inLog} AND name = ${name} AND at <= (${lastAt}) AND position + 0 <= ${last}
    ORDER BY at DESC, position DESC LIMIT ${limit}`);
}

/** The events at these positions, without those that have expired. */
export const eventsAt = (
  store: Pick<Store, "all" | "seams">,
  environmentId: string,
  positions: readonly number[],
): Promise<LoggedEvent[]> =>
  store.all(sql`SELECT ${columns} FROM events WHERE environment_id = ${environmentId}
    AND position ${store.seams.among(column.bigint(positions))} ORDER BY position`);
