import type { Clock } from "./clock.ts";
import { column, type Sql, type SqlArray, sql } from "./sql.ts";

/** A place where work is due: an environment, or a part of one that has an index of its own. */
export interface WorkScope {
  environmentId: string;
}

/** At most `quota` pieces of work of this scope. */
export interface Turn<P extends WorkScope = WorkScope> {
  scope: P;
  quota: number;
}

/** The longest due of all environments, of those due at `from` or later; or a quota for each scope. */
export type Slice<P extends WorkScope = WorkScope> =
  | { oldest: number; from?: number | undefined }
  | { turns: readonly Turn<P>[] };

/** Due work of many environments, claimed by a loop. */
export interface SharedWork<P extends WorkScope = WorkScope> {
  /** Looks at the longest due of all environments and claims what can be claimed now. */
  oldest(limit: number): Promise<{ found: number; taken: number }>;
  /** Every scope with something due now: one index probe each, however much is due there. */
  scopes(): Promise<readonly P[]>;
  /**
   * Answers how much of each scope was claimed; less than its quota means that nothing more can be claimed
   * there now.
   */
  claim(turns: readonly Turn<P>[]): Promise<readonly number[]>;
}

/** Work of which everything found is also claimed. */
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

/** The same of work that may be found locked: it stays due. */
export const workOnSome = (
  some: (slice: Slice) => Promise<{ found: number; taken: readonly { turn: number }[] }>,
  scopes: () => Promise<readonly WorkScope[]>,
): SharedWork => ({
  async oldest(limit) {
    const { found, taken } = await some({ oldest: limit });
    return { found, taken: taken.length };
  },
  scopes,
  claim: async (turns) => countTurns(turns, (await some({ turns })).taken),
});

export interface TurnsOptions {
  clock: Pick<Clock, "elapsed">;
  /** Of one slice. */
  limit: number;
  /** No round begins after this. */
  msMax?: number;
}

/** Scopes are looked up again after this many times the duration of the last look-up. */
const looksApart = 10;

/**
 * Claims everything due of each work, slice by slice. Work that fits into one slice is one statement. When
 * there is more, environments take turns with an equal share of each slice, so that none waits behind
 * another's backlog. Works take turns after each round, however long a look-up took. Works without a backlog
 * are looked at beside those with one, which may grow as fast as claims. False: `msMax` was over first.
 */
export async function roundRobin(
  works: readonly SharedWork[],
  { clock, limit, msMax = Number.POSITIVE_INFINITY }: TurnsOptions,
): Promise<boolean> {
  const until = clock.elapsed() + msMax;
  const behind = new Map<SharedWork, Backlog>();
  for (;;) {
    for (const work of works)
      if (!behind.has(work) && (await work.oldest(limit)).found >= limit)
        behind.set(work, openBacklog(work, clock, limit));
    for (const [work, backlog] of behind) if (!(await backlog.round())) behind.delete(work);
    if (behind.size === 0) return true;
    if (clock.elapsed() >= until) return false;
  }
}

/** Work that did not fit into one slice. */
type Backlog = ReturnType<typeof openBacklog>;

function openBacklog(work: SharedWork, clock: TurnsOptions["clock"], limit: number) {
  let waiting = new Map<string, WorkScope[]>();
  let goodUntil = 0;
  let taken = 0;
  const isLookedThrough = () => waiting.size === 0 || clock.elapsed() >= goodUntil;

  async function lookUp() {
    const lookedAt = clock.elapsed();
    waiting = Map.groupBy(await work.scopes(), ({ environmentId }) => environmentId);
    goodUntil = clock.elapsed() + looksApart * (clock.elapsed() - lookedAt);
    taken = 0;
  }

  return {
    /** One turn of all environments. False when another node claims the rest, or it cannot be claimed now. */
    async round(): Promise<boolean> {
      if (isLookedThrough()) await lookUp();
      taken += waiting.size === 1 ? await alone(work, waiting, limit) : await round(work, waiting, limit);
      return taken > 0 || !isLookedThrough();
    },
  };
}

/** Only one environment has work: no scopes need to be compared. */
async function alone(work: SharedWork, waiting: Map<string, WorkScope[]>, limit: number): Promise<number> {
  const { found, taken } = await work.oldest(limit);
  if (found < limit) waiting.clear();
  // Rows that cannot be claimed must not hide rows that can.
  return taken > 0 ? taken : round(work, waiting, limit);
}

/** One turn of every environment. An environment with no more work leaves `waiting`. */
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

/** Divides an environment's share among its scopes; the remainder goes to the first ones. */
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

/** Describes the due rows of a table, whose alias is `d`. */
export interface DueRows {
  table: string;
  /** Each prefixed with `d.`. */
  columns: Sql;
  /** The condition of the partial indexes. */
  where?: Sql;
  dueAt: string;
  until: number;
  /** Columns of the order after `dueAt`. */
  tail?: readonly string[];
  /**
   * The order of the index that keeps a scope's rows together. Left out, the order is by `dueAt + 0`: the `+
   * 0` keeps the planner from the index on `dueAt` alone, which looks cheap when one tenant has nearly all
   * rows.
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

/** The due rows of one scope, in their order. */
function inPlace({ where = every, dueAt, until, tail = [], scopeOrder: placeOrder }: DueRows, same: Sql) {
  const at = placeOrder?.dueAt ?? `${dueAt} + 0`;
  const order = placeOrder ? placeOrder.by : [at, ...tail];
  return { where: sql`${same} AND ${where} AND ${columnsOf([at])} <= ${until}`, order: columnsOf(order) };
}

/**
 * The rows of a slice; rows of turns carry the number of their turn as `turn`. `key` gives the columns of a
 * scope.
 */
export function sliceOf<P extends WorkScope>(
  seams: TurnSeams,
  rows: DueRows,
  slice: Slice<P>,
  key: (places: readonly P[]) => Record<string, SqlArray> = byEnvironment,
): Sql {
  const { table, columns, where = every, dueAt, until, tail = [], lock = sql.empty } = rows;
  if ("oldest" in slice) {
    const { from } = slice;
    const since = from === undefined ? sql.empty : sql`AND ${columnsOf([dueAt])} >= ${from}`;
    return sql`SELECT ${columns} FROM ${sql.raw(table)} d WHERE ${where} ${since} AND ${columnsOf([dueAt])} <= ${until}
      ORDER BY ${columnsOf([dueAt, ...tail])} LIMIT ${slice.oldest} ${lock}`;
  }
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

/**
 * The environments with due rows: jumps in an index from one environment to the next, past all rows in
 * between.
 */
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
