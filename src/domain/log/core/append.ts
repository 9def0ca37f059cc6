import type { Instant } from "../../../kit/clock.ts";
import { lostKeys } from "../../../kit/key-claims.ts";
import { type Ctes, column, type Sql, type SqlArray, sql } from "../../../kit/sql.ts";
import { raiseMark, StoreError, type SyncSession } from "../../../store/store.ts";

/**
 * Appends to a gapless log: entries of many callers and environments in one transaction, in these steps.
 *
 * 1. Idempotency keys are taken, sorted. An entry whose key is taken already does not survive.
 * 2. The heads of the survivors' environments are locked, sorted: two flushes never wait for each other in a
 *    circle.
 * 3. Survivors get the positions that follow their head, in order of arrival; the head moves by their count.
 * 4. The rows are written; this is left to the log's own flush.
 *
 * Positions are given after keys are decided, so none is skipped. The head stays locked from step 2 to the
 * commit, so position `n + 1` is never visible before `n`.
 *
 * On PostgreSQL the steps are expressions of one statement that begins with `item` (the entries, with `ord`
 * from 1); on libSQL they are calls inside the one writer.
 */
export interface AppendLog<Entry> {
  /** Table with a row for each environment: `environment_id, position, last_at`. */
  heads: "heads" | "topic_heads";
  /** What the row of a key says of the entry, written over the columns of `item`. */
  keyKind: Sql;
  keyUse: Sql;
  keyRunIds: Sql;
  /** `id`, `environment_id`, `key` and whatever the three above read. */
  keyColumns(entries: readonly Entry[]): Record<string, SqlArray>;
  /** From when the time of a key is counted, where that is not now. */
  keyAt?(now: Sql): Sql;
}

/** Part of every entry. */
export interface AppendEntry {
  id: string;
  environmentId: string;
  idempotencyKey: string | null;
}

/** An entry with its position; `ord` is its place among the entries, from 1. */
export interface Appended<Entry> {
  ord: number;
  position: number;
  at: Instant;
  entry: Entry;
}

const keyTarget = sql.raw(
  "idempotency_keys (environment_id, key, kind, function_id, event_id, run_ids, created_at)",
);

export const isKeyed = (entries: readonly AppendEntry[]): boolean =>
  entries.some(({ idempotencyKey }) => idempotencyKey !== null);

/** Marks, in column `bound` of `item`, the entries whose keys `refuseLostKeys` insists on. */
export const boundColumn = <Entry>(
  entries: readonly Entry[],
  bound: ReadonlySet<Entry> | undefined,
): Record<string, SqlArray> =>
  bound && bound.size > 0
    ? { bound: column.bigint(entries.map((entry) => (bound.has(entry) ? 1 : null))) }
    : {};

const takeKeysFrom = <Entry>(
  log: AppendLog<Entry>,
  items: Sql,
  { alias, now, after = sql.empty }: { alias: string; now: Sql; after?: Sql },
): Sql =>
  sql`INSERT INTO ${keyTarget}
      SELECT environment_id, key, ${log.keyKind}, ${log.keyUse}, id, ${log.keyRunIds}, ${log.keyAt?.(now) ?? now} FROM ${items}
      WHERE key IS NOT NULL AND EXISTS (
        SELECT 1 FROM ${sql.raw(log.heads)} h WHERE h.environment_id = ${sql.raw(alias)}.environment_id) ${after}`;

const keepFirst = sql.raw("ON CONFLICT (environment_id, key) DO NOTHING RETURNING event_id");

/**
 * Step 1: `fresh`, the entries that got their keys. An environment without a head takes none. `after` is a
 * condition that must be computed before the first key is taken.
 */
export const takeKeys = <Entry>(log: AppendLog<Entry>, now: Instant, after?: Sql): Ctes => ({
  "fresh AS": sql`${takeKeysFrom(log, sql.raw("item"), {
    ...{ alias: "item", now: sql`${now}::bigint` },
    ...(after && { after: sql`AND ${after}` }),
  })}
      ORDER BY environment_id, key, ord
      ${keepFirst}`,
});

/** The environment of all entries; undefined where they are of several. */
export function onlyEnvironment(entries: readonly AppendEntry[]): string | undefined {
  const environmentId = entries[0]?.environmentId;
  return entries.every((entry) => entry.environmentId === environmentId) ? environmentId : undefined;
}

/** Step 1: `alive`, the surviving entries, numbered by environment in `place`. */
export const survivors = (keyed: boolean, isOfOne: boolean): Ctes => {
  if (isOfOne && !keyed)
    return { "alive AS NOT MATERIALIZED": sql.raw("SELECT item.*, ord AS place FROM item") };
  const survives = keyed ? sql.raw("WHERE key IS NULL OR id IN (SELECT event_id FROM fresh)") : sql.empty;
  return {
    "alive AS MATERIALIZED": sql`SELECT item.*, row_number() OVER (PARTITION BY environment_id ORDER BY ord) AS place
      FROM item ${survives}`,
  };
};

/**
 * Step 2: `head`, locked; with further columns of it. `after` is a condition that must be computed before the
 * first lock.
 */
export const lockHeads = (
  { heads }: Pick<AppendLog<never>, "heads">,
  { further = [], after = sql.empty }: { further?: readonly string[]; after?: Sql } = {},
): Ctes => {
  const columns = ["environment_id", "position", "last_at", ...further];
  const of = (alias: string) => sql.raw(columns.map((name) => `${alias}.${name}`).join(", "));
  return {
    "head AS MATERIALIZED": sql`SELECT ${of("h")}
      FROM (SELECT DISTINCT environment_id FROM alive ${after} ORDER BY environment_id) a CROSS JOIN LATERAL (
        SELECT ${of("x")} FROM ${sql.raw(heads)} x
        WHERE x.environment_id = a.environment_id ORDER BY x.environment_id FOR UPDATE) h`,
  };
};

const byCount = sql.raw("head.position + n.count");

/**
 * Step 3: `moved`, with the position before the first survivor as `base`. `position` may refuse, over what
 * `join` brings.
 */
export const moveHeads = (
  { heads }: Pick<AppendLog<never>, "heads">,
  now: Instant,
  { join = sql.empty, position = byCount }: { join?: Sql; position?: Sql } = {},
): Ctes => ({
  "moved AS": sql`UPDATE ${sql.raw(heads)} h SET last_at = GREATEST(head.last_at, ${now}::bigint), position = ${position}
      FROM head ${join} JOIN (SELECT environment_id, count(*) AS count FROM alive GROUP BY environment_id) n
        ON n.environment_id = head.environment_id
      WHERE h.environment_id || '' = head.environment_id AND h.environment_id = ANY (ARRAY(SELECT environment_id FROM head))
      RETURNING h.environment_id, head.position AS base, h.last_at`,
});

interface MovedHead {
  environmentId: string;
  /** Of the survivors; undefined where keys decide. */
  count: number | undefined;
  /** May refuse, over columns of `h`. */
  position?: (moved: Sql) => Sql;
  /** A condition that must be computed before the lock. */
  after?: Sql | undefined;
}

/**
 * Steps 2 and 3 where all entries are of one environment: the update is the lock. A row that another flush
 * has moved since the statement began is looked at again by a copy of the statement's whole plan, for the
 * lock and for the update: that was two fifths of what PostgreSQL did for three nodes that emit at once.
 */
export const moveHead = (
  { heads }: Pick<AppendLog<never>, "heads">,
  now: Instant,
  { environmentId, count, position = (moved) => moved, after }: MovedHead,
): Ctes => {
  const tally = { "tally AS MATERIALIZED": sql.raw("SELECT count(*) AS count FROM alive") };
  const by = count === undefined ? sql.raw("(SELECT count FROM tally)") : sql.bigint(count);
  const conditions = [
    sql`h.environment_id = ${environmentId}`,
    ...(count === undefined ? [sql`${by} > 0`] : []),
    ...(after ? [after] : []),
  ];
  const moved = position(sql`h.position + ${by}`);
  return {
    ...(count === undefined && tally),
    "moved AS": sql`UPDATE ${sql.raw(heads)} h SET last_at = GREATEST(h.last_at, ${now}::bigint), position = ${moved}
      ${sql.where(conditions)} RETURNING h.environment_id, h.position - ${by} AS base, h.last_at`,
  };
};

/**
 * Fails the statement when a bound entry did not get its key. It stands as rows of the answer, so that
 * PostgreSQL computes it whatever else comes of the statement; `further` fills the answer's columns after
 * `ord, position, at`.
 */
export const refuseLostKeys = (
  { heads }: Pick<AppendLog<never>, "heads">,
  bound: ReadonlySet<unknown> | undefined,
  further: Sql = sql.empty,
): Sql =>
  bound && bound.size > 0
    ? sql`UNION ALL SELECT ${raiseMark(lostKeys, sql.raw("i.environment_id"))}, 0, 0${further}
    FROM item i JOIN ${sql.raw(heads)} h ON h.environment_id = i.environment_id
    WHERE i.bound = 1 AND i.id NOT IN (SELECT event_id FROM fresh)`
    : sql.empty;

/** A head as libSQL reads it, with the further columns that were asked for. */
interface HeadRow {
  environment_id: string;
  position: number;
  last_at: number;
}

export interface AppendOptions<Entry, Head> {
  entries: readonly Entry[];
  bound: ReadonlySet<Entry> | undefined;
  now: Instant;
  environmentIds: Iterable<string>;
  further?: readonly string[];
  /** Throws when an entry may not follow this head. */
  check?: (entry: Entry, head: Head) => void;
}

/** Steps 1 to 3 on libSQL, heads included. */
export function append<Entry extends AppendEntry, Further extends object = object>(
  session: SyncSession,
  log: AppendLog<Entry>,
  options: AppendOptions<Entry, HeadRow & Further>,
): Appended<Entry>[] {
  const { entries, bound, now, environmentIds, further = [], check } = options;
  const alive = isKeyed(entries) ? takeKeysSync(session, log, entries, now) : undefined;
  const columns = sql.raw(["environment_id", "position", "last_at", ...further].join(", "));
  const heads = new Map(
    session
      .all<HeadRow & Further>(
        sql`SELECT ${columns} FROM ${sql.raw(log.heads)} WHERE environment_id ${session.seams.among(column.text([...environmentIds]))}`,
      )
      .map((head) => [head.environment_id, head]),
  );
  for (const entry of bound ?? [])
    if (alive && !alive.has(entry) && heads.has(entry.environmentId))
      throw new StoreError("marked", lostKeys + entry.environmentId);
  const appended: Appended<Entry>[] = [];
  for (const [at, entry] of entries.entries()) {
    const head = heads.get(entry.environmentId);
    if (head === undefined || alive?.has(entry) === false) continue;
    check?.(entry, head);
    head.last_at = Math.max(head.last_at, now);
    appended.push({ ord: at + 1, position: ++head.position, at: head.last_at, entry });
  }
  if (appended.length > 0) moveHeadsSync(session, log, appended);
  return appended;
}

/** The entries that got their keys or have none. */
function takeKeysSync<Entry extends AppendEntry>(
  session: SyncSession,
  log: AppendLog<Entry>,
  entries: readonly Entry[],
  now: Instant,
): Set<Entry> {
  const keyed = entries.filter((entry) => entry.idempotencyKey !== null);
  const items = session.seams.rowsFrom("i", log.keyColumns(keyed));
  const fresh = new Set(
    session
      .all<{ event_id: string }>(
        sql`${takeKeysFrom(log, items, { alias: "i", now: sql`${now}` })} ${keepFirst}`,
      )
      .map((row) => row.event_id),
  );
  return new Set(entries.filter((entry) => entry.idempotencyKey === null || fresh.has(entry.id)));
}

function moveHeadsSync<Entry extends AppendEntry>(
  session: SyncSession,
  { heads }: AppendLog<Entry>,
  appended: readonly Appended<Entry>[],
): void {
  const last = new Map(appended.map((one) => [one.entry.environmentId, one]));
  session.run(sql`UPDATE ${sql.raw(heads)} SET position = v.position, last_at = v.last_at
    FROM ${session.seams.rowsFrom("v", {
      environment_id: column.text([...last.keys()]),
      position: column.bigint([...last.values()].map((one) => one.position)),
      last_at: column.bigint([...last.values()].map((one) => one.at)),
    })} WHERE ${sql.raw(heads)}.environment_id = v.environment_id`);
}
