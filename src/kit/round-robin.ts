import type { Clock } from "./clock.ts";
import { column, type Sql, type SqlArray, sql } from "./sql.ts";

/** Where work is due: an environment, or a part of one that can be found by itself. */
export interface WorkScope {
  environmentId: string;
}

/** At most so many pieces of work of this place. */
export interface Turn<P extends WorkScope = WorkScope> {
  scope: P;
  quota: number;
}

/** The longest due, whoever's, or a share of each of these places. */
export type Slice<P extends WorkScope = WorkScope> = { oldest: number } | { turns: readonly Turn<P>[] };

/** Due work of many environments, as a loop takes it from the store. */
export interface SharedWork<P extends WorkScope = WorkScope> {
  /** Looks at the longest due, whoever's, and takes it unless it cannot be taken now. */
  oldest(limit: number): Promise<{ found: number; taken: number }>;
  /** Every place where something is due now: one probe of an index each, however much is due there. */
  scopes(): Promise<readonly P[]>;
  /** Answers how much of each place was taken: less than its quota means that nothing more can be taken there now. */
  claim(turns: readonly Turn<P>[]): Promise<readonly number[]>;
}

/** Work of which everything that is found is taken, too. */
export const workOn = <P extends WorkScope>(
  some: (slice: Slice<P>) => Promise<readonly { turn: number }[]>,
  scopes: () => Promise<readonly P[]>,
): SharedWork<P> => ({
  async oldest(limit) {
    const { length } = await some({ oldest: limit });
    return { found: length, taken: length };
  },
  scopes,
  claim: async (turns) => countTurns(turns, await some({ turns })),
});

export interface TurnsOptions {
  clock: Pick<Clock, "elapsed">;
  /** Of one slice. */
  limit: number;
  /** No round begins after this. */
  msMax?: number;
}

/** Places are looked up again no sooner than after this many times what the last look took. */
const looksApart = 10;

/**
 * Takes all that is due of each work, a slice after the other. While it fits into one slice that is one statement. When there
 * is more, environments take turns with an equal share of each slice, so that none waits behind what another has piled up, and
 * so do the works among themselves. Answers false when its time was over before the work was.
 */
export async function roundRobin(
  works: readonly SharedWork[],
  { clock, limit, msMax = Number.POSITIVE_INFINITY }: TurnsOptions,
): Promise<boolean> {
  const until = clock.elapsed() + msMax;
  const behind = new Set<SharedWork>();
  for (const work of works) if ((await work.oldest(limit)).found >= limit) behind.add(work);
  for (;;) {
    for (const work of behind) {
      const lookedAt = clock.elapsed();
      const waiting = Map.groupBy(await work.scopes(), ({ environmentId }) => environmentId);
      const goodUntil = clock.elapsed() + looksApart * (clock.elapsed() - lookedAt);
      let taken = 0;
      do taken += waiting.size === 1 ? await alone(work, waiting, limit) : await round(work, waiting, limit);
      while (waiting.size > 0 && clock.elapsed() < Math.min(goodUntil, until));
      // What is still due there is in other hands, or cannot be taken now.
      if (taken === 0) behind.delete(work);
    }
    if (behind.size === 0) return true;
    if (clock.elapsed() >= until) return false;
  }
}

/** Where only one has work, its longest due is the longest due. */
async function alone(work: SharedWork, waiting: Map<string, WorkScope[]>, limit: number): Promise<number> {
  const { found, taken } = await work.oldest(limit);
  if (found < limit) waiting.clear();
  // What cannot be taken must not stand before what can.
  return taken > 0 ? taken : round(work, waiting, limit);
}

/** One turn of every environment. Those that have no more leave `waiting`. */
async function round<P extends WorkScope>(
  work: SharedWork<P>,
  waiting: Map<string, P[]>,
  limit: number,
): Promise<number> {
  const queue = [...waiting.keys()];
  let taken = 0;
  while (queue.length > 0) {
    const some = queue.splice(0, limit);
    const share = Math.floor(limit / some.length);
    const turns = some.flatMap((id) => turnsOf(waiting.get(id)!.splice(0, share), share));
    const counts = await work.claim(turns);
    for (const [at, { scope, quota }] of turns.entries()) {
      const count = counts[at] ?? 0;
      taken += count;
      if (count >= quota) waiting.get(scope.environmentId)!.push(scope);
    }
    for (const id of some) if (waiting.get(id)!.length === 0) waiting.delete(id);
  }
  return taken;
}

/** An environment's share over its places; what is left over of it goes to the first. */
function turnsOf<P extends WorkScope>(scopes: readonly P[], share: number): Turn<P>[] {
  const each = Math.floor(share / scopes.length);
  const more = share % scopes.length;
  return scopes.map((scope, at) => ({ scope, quota: each + (at < more ? 1 : 0) }));
}

/** How many rows each turn got, by the number (from 1) that they carry. */
export function countTurns(turns: readonly unknown[], rows: readonly { turn: number }[]): number[] {
  const counts = new Array<number>(turns.length).fill(0);
  for (const { turn } of rows) counts[turn - 1]!++;
  return counts;
}

/** Rows of a table (alias `d`) that are due, as slices of work are read. */
export interface DueRows {
  table: string;
  /** Each with `d.` before it. */
  columns: Sql;
  /** What the indexes cover. */
  where?: Sql;
  /** When a row is due. */
  dueAt: string;
  until: number;
  /** Further columns of the order. */
  tail?: readonly string[];
  /**
   * How the index has it in which the rows of a place stand together. `dueAt + 0` unless it says something else: another index
   * has that column by itself, and where one tenant has nearly all rows it would seem to serve as well.
   */
  scopeOrder?: { dueAt: string; by: readonly string[] };
  /** `skipLocked`, where the rows are claimed. */
  lock?: Sql;
}

/** What the two engines say differently (see `Seams`). */
interface TurnSeams {
  rowsFrom(alias: string, columns: Record<string, SqlArray>): Sql;
  firstOfEach(of: FirstOfEach): Sql;
}

export interface FirstOfEach {
  /** Alias `p`; `p.quota` says how many. */
  places: Sql;
  table: string;
  columns: Sql;
  where: Sql;
  order: Sql;
  /** The largest of the quotas. */
  most: number;
  lock?: Sql;
}

const every = sql.raw("1 = 1");
const columnsOf = (names: readonly string[]): Sql => sql.raw(names.map((name) => `d.${name}`).join(", "));

/** Rows of one place that are due, in their order. */
function inPlace({ where = every, dueAt, until, tail = [], scopeOrder: placeOrder }: DueRows, same: Sql) {
  const at = placeOrder?.dueAt ?? `${dueAt} + 0`;
  const order = placeOrder ? placeOrder.by : [at, ...tail];
  return { where: sql`${same} AND ${where} AND ${columnsOf([at])} <= ${until}`, order: columnsOf(order) };
}

/** The rows of a slice; those of turns carry the number of theirs as `turn`. `key` is how a place is found. */
export function sliceOf<P extends WorkScope>(
  seams: TurnSeams,
  rows: DueRows,
  slice: Slice<P>,
  key: (places: readonly P[]) => Record<string, SqlArray> = byEnvironment,
): Sql {
  const { table, columns, where = every, dueAt, until, tail = [], lock = sql.empty } = rows;
  if ("oldest" in slice)
    return sql`SELECT ${columns} FROM ${sql.raw(table)} d WHERE ${where} AND ${columnsOf([dueAt])} <= ${until}
      ORDER BY ${columnsOf([dueAt, ...tail])} LIMIT ${slice.oldest} ${lock}`;
  const { turns } = slice;
  const keys = key(turns.map(({ scope: place }) => place));
  const same = Object.keys(keys).map((name) => `d.${name} = p.${name}`);
  return seams.firstOfEach({
    ...inPlace(rows, sql.raw(same.join(" AND "))),
    places: seams.rowsFrom("p", { ...keys, quota: column.bigint(turns.map((turn) => turn.quota)) }),
    table,
    columns,
    most: Math.max(0, ...turns.map((turn) => turn.quota)),
    lock,
  });
}

const byEnvironment = (places: readonly WorkScope[]) => ({
  environment_id: column.text(places.map(({ environmentId }) => environmentId)),
});

/** The places of work that stands by environment: jumps in an index from one to the next, whatever lies between. */
export function environmentsDue(rows: DueRows): Sql {
  const from = sql`FROM ${sql.raw(rows.table)} d WHERE`;
  const next = (behind: Sql) => sql`(SELECT d.environment_id ${from} ${rows.where ?? every} ${behind}
    ORDER BY d.environment_id LIMIT 1)`;
  const mine = inPlace(rows, sql.raw("d.environment_id = found.id"));
  return sql`WITH RECURSIVE found(id) AS (
      SELECT ${next(sql.empty)}
      UNION ALL
      SELECT ${next(sql.raw("AND d.environment_id > found.id"))} FROM found WHERE found.id IS NOT NULL)
    SELECT id AS "environmentId" FROM found WHERE id IS NOT NULL
      AND (SELECT 1 ${from} ${mine.where} ORDER BY ${mine.order} LIMIT 1) IS NOT NULL`;
}
