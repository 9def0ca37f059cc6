import { cachedQuery } from "../../../kit/cached-query.ts";
import type { Clock, Instant } from "../../../kit/clock.ts";
import {
  gaugeCountMax,
  gaugeKeptMs,
  gaugeWaitMsMax,
  purgeGraceMs,
  purgeRemoteSliceMs,
  purgeRoundMs,
  purgeSliceMax,
  purgeSliceMs,
} from "../../../kit/limits.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import type { Session, Store } from "../../../store/store.ts";
import * as rows from "./purge-rows.ts";

type LeaderWrite = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

export interface Purge {
  /** Removes rows of deleted environments for a while, a slice a transaction. */
  duty: {
    duty: "retention";
    name: string;
    about: string;
    everyMs: number;
    tick(write: LeaderWrite): Promise<{ againInMs?: number }>;
  };
  /** Deleted environments of which rows may be left. */
  backlog(): Promise<number>;
}

export interface PurgeDeps {
  store: Store;
  clock: Clock;
  metrics: Metrics;
}

const environmentsAtOnce = 1_000;
/** How long one environment is emptied before it is the next one's turn. */
const purgeTurnMs = 50;
const sliceMin = 8;

interface PurgePace {
  /** What a slice aims at. */
  sliceMs: number;
  /** Also of the cheapest rows: a commit has its price too. */
  sliceMax: number;
  /** Runs whose rows are removed together. */
  runsAtOnce: number;
}

/**
 * On libSQL a slice is work of this very thread. On Postgres most of its time is spent on the way there and back, and it
 * holds up nobody: slices that aim at a few milliseconds would end as single rows wherever the database is not next door.
 */
const paces: Record<Store["engine"], PurgePace> = {
  libsql: { sliceMs: purgeSliceMs, sliceMax: 250, runsAtOnce: 50 },
  postgres: { sliceMs: purgeRemoteSliceMs, sliceMax: purgeSliceMax, runsAtOnce: 250 },
};

const runs = rows.ownedTables.find((table) => table.name === "runs")!;
const tablesOfRuns = rows.ownedTables.filter((table) => table.ofRun !== undefined);
const tables = rows.ownedTables.filter((table) => table.ofRun === undefined);

/** One way through all tables. */
interface PurgePass {
  /** In `tables`, of the one to be emptied next. */
  place: number;
  removed: number;
  beganAt: Instant;
}

/** What is left of an org's deleted environments. */
export const purgeBacklogOf = (store: Store) => async (orgId: string) => {
  const [found, environments] = await Promise.all([
    rows.oldestUnpurged(store, orgId),
    rows.countUnpurged(store, gaugeCountMax, orgId),
  ]);
  return { environments, oldest: found ? { id: found.id, at: found.deletedAt } : null };
};

export function openPurge({ store, clock, metrics }: PurgeDeps): Purge {
  const { sliceMs, sliceMax, runsAtOnce } = paces[store.engine];
  const backlog = () => rows.countUnpurged(store, gaugeCountMax);
  const purging = metrics.gauge({
    name: "svc_environments_purging",
    help: "Deleted environments of which rows may be left.",
  })();
  const count = cachedQuery({ clock, keptMs: gaugeKeptMs, waitMsMax: gaugeWaitMsMax, query: backlog });
  metrics.beforeReading(async () => purging.set(await count()));

  /** Found empty, and waiting for stragglers. */
  const emptied = new Set<string>();
  /** Where the last round stopped: on a slow store one of them does not get through all tables. */
  const passes = new Map<string, PurgePass>();
  /** Rows of a slice, by table: what lies in it decides how many of them take the time that a slice may. */
  const sliceOf = new Map<string, number>();
  /** The last slice of each table, and how long it took. */
  const lastOf = new Map<string, { limit: number; tookMs: number }>();

  /**
   * Half as many rows are no way out where they take as long: a commit on a slow disk, or a busy machine, costs a single row
   * the same, and single rows would go on for ever.
   */
  function halved(table: string, limit: number, tookMs: number): number {
    const last = lastOf.get(table);
    const isInVain = limit <= sliceMin && last && last.limit > limit && tookMs > 0.7 * last.tookMs;
    return isInVain ? sliceMin : Math.max(1, Math.floor(limit / 2));
  }

  /** Deletes slices, at least one, until nothing is left or the time is over. */
  async function empty(
    table: rows.OwnedTable,
    owner: rows.Owner,
    until: number,
    write: LeaderWrite,
  ): Promise<{ done: boolean; removed: number }> {
    let removed = 0;
    let isShort = true;
    do {
      // A short slice may only have found rows that changed, or went, under it.
      if (isShort && !(await rows.anyLeft(store, table, owner))) return { done: true, removed };
      const limit = sliceOf.get(table.name) ?? sliceMin;
      const beganAt = clock.elapsed();
      const gone = await write((session) => rows.purgeSlice(session, table, owner, limit));
      const tookMs = clock.elapsed() - beganAt;
      removed += gone;
      isShort = gone < limit;
      if (tookMs > sliceMs) sliceOf.set(table.name, halved(table.name, limit, tookMs));
      else if (!isShort && tookMs < sliceMs / 2) sliceOf.set(table.name, Math.min(sliceMax, limit * 2));
      lastOf.set(table.name, { limit, tookMs });
      // Others' turn.
      await clock.sleep(1);
    } while (clock.elapsed() < until);
    return { done: false, removed };
  }

  /** Some runs after what belongs to them, until there are none; those begun are finished, however long it takes. */
  async function emptyRuns(
    environmentId: string,
    until: number,
    write: LeaderWrite,
  ): Promise<{ done: boolean; removed: number }> {
    let removed = 0;
    do {
      const ids = await rows.someRuns(store, environmentId, runsAtOnce);
      if (ids.length === 0) return { done: true, removed };
      for (const table of [...tablesOfRuns, runs]) {
        const { removed: gone } = await empty(table, { runIds: ids }, Number.POSITIVE_INFINITY, write);
        removed += gone;
      }
    } while (clock.elapsed() < until);
    return { done: false, removed };
  }

  /** Goes on with a pass; whether it came to its end. */
  async function goOn(id: string, pass: PurgePass, until: number, write: LeaderWrite): Promise<boolean> {
    while (pass.place < tables.length) {
      if (clock.elapsed() >= until) return false;
      const table = tables[pass.place]!;
      const { done, removed } =
        table === runs
          ? await emptyRuns(id, until, write)
          : await empty(table, { environmentId: id }, until, write);
      pass.removed += removed;
      if (done) pass.place++;
    }
    return true;
  }

  /** Whose turn was the last. */
  let servedLast = "";

  /** Those that are to be emptied, the one after whose turn was the last at first. */
  async function inTurn(): Promise<rows.Tombstone[]> {
    const all = await rows.unpurged(store, environmentsAtOnce);
    const from = all.findIndex(({ id }) => id === servedLast) + 1;
    const now = clock.now();
    return [...all.slice(from), ...all.slice(0, from)].filter(
      ({ id, deletedAt }) => !emptied.has(id) || now >= deletedAt + purgeGraceMs,
    );
  }

  async function purgeOnce(write: LeaderWrite) {
    const until = clock.elapsed() + purgeRoundMs;
    const queue = await inTurn();
    while (queue.length > 0) {
      if (clock.elapsed() >= until) return { againInMs: 20 };
      const tombstone = queue.shift()!;
      const { id, deletedAt } = tombstone;
      servedLast = id;
      const pass = passes.get(id) ?? { place: 0, removed: 0, beganAt: clock.now() };
      passes.set(id, pass);
      if (!(await goOn(id, pass, Math.min(until, clock.elapsed() + purgeTurnMs), write))) {
        // The others first: one that is large keeps none of them.
        queue.push(tombstone);
        continue;
      }
      passes.delete(id);
      emptied.add(id);
      if (pass.removed > 0 || pass.beganAt < deletedAt + purgeGraceMs) continue;
      await write((session) => rows.markPurged(session, id, clock.now()));
      emptied.delete(id);
    }
    return {};
  }

  return {
    backlog,
    duty: {
      duty: "retention",
      name: "tenancy.purge",
      about: "Deletes the rows of deleted environments, in slices.",
      everyMs: 5_000,
      tick: purgeOnce,
    },
  };
}
