import type { Instant } from "../../../kit/clock.ts";
import { gaugeCountMax, gaugeKeptMs, gaugeWaitMsMax, purgeSliceMax } from "../../../kit/limits.ts";
import { cachedQuery } from "../../../kit/ttl-cache.ts";
import type { Basics, LeaderWrite, Store } from "../../../store/store.ts";
import { purgeGraceMs, purgeRemoteSliceMs, purgeRoundMs, purgeSliceMs } from "./limits.ts";
import * as rows from "./purge-rows.ts";

const sliceMin = 8;

export interface PurgePace {
  /** What a slice aims at. */
  sliceMs: number;
  /** Also of the cheapest rows: a commit has its price too. */
  sliceMax: number;
  /** Runs whose rows are removed together. */
  runsAtOnce: number;
}

/**
 * On libSQL a slice blocks this thread, so it is short. On PostgreSQL most of a slice is the round trip,
 * which blocks no other call: slices of a few milliseconds would shrink to single rows wherever the database
 * is far away.
 */
const paces: Record<Store["engine"], PurgePace> = {
  libsql: { sliceMs: purgeSliceMs, sliceMax: 250, runsAtOnce: 50 },
  postgres: { sliceMs: purgeRemoteSliceMs, sliceMax: purgeSliceMax, runsAtOnce: 250 },
};

/**
 * How many rows a slice of each table has, as the last ones took: rows of one table cost more than another's.
 */
class PurgeSlices {
  readonly #pace: PurgePace;
  readonly #limits = new Map<string, number>();
  /** The last slice of each table, and how long it took. */
  readonly #last = new Map<string, { limit: number; tookMs: number }>();

  constructor(pace: PurgePace) {
    this.#pace = pace;
  }

  limitOf(table: string): number {
    return this.#limits.get(table) ?? sliceMin;
  }

  /** Fits the next slice of the table to what this one took. */
  note(table: string, { limit, tookMs, isShort }: { limit: number; tookMs: number; isShort: boolean }): void {
    const { sliceMs, sliceMax } = this.#pace;
    if (tookMs > sliceMs) this.#limits.set(table, this.#halved(table, limit, tookMs));
    else if (!isShort && tookMs < sliceMs / 2) this.#limits.set(table, Math.min(sliceMax, limit * 2));
    this.#last.set(table, { limit, tookMs });
  }

  /**
   * Half as many rows do not help where a slice takes as long all the same: on a slow disk or a busy machine
   * the commit costs more than the rows, and a purge of single rows would never end.
   */
  #halved(table: string, limit: number, tookMs: number): number {
    const last = this.#last.get(table);
    const isInVain = limit <= sliceMin && last && last.limit > limit && tookMs > 0.7 * last.tookMs;
    return isInVain ? sliceMin : Math.max(1, Math.floor(limit / 2));
  }
}

export type PurgeDeps = Basics<"store" | "clock" | "metrics">;

const environmentsAtOnce = 1_000;
/** How long one environment is emptied before the next one's turn. */
const purgeTurnMs = 50;
const runs = rows.ownedTables.find((table) => table.name === "runs")!;
const tablesOfRuns = rows.ownedTables.filter((table) => table.ofRun !== undefined);
const tables = rows.ownedTables.filter((table) => table.ofRun === undefined);

/** One pass over all tables. */
interface PurgePass {
  /** Index in `tables` of the table that is emptied next. */
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

function watchBacklog(
  { clock, metrics }: Pick<PurgeDeps, "clock" | "metrics">,
  query: () => Promise<number>,
) {
  const purging = metrics.gauge({
    name: "svc_environments_purging",
    help: "Deleted environments of which rows may be left.",
  })();
  const count = cachedQuery({ clock, keptMs: gaugeKeptMs, waitMsMax: gaugeWaitMsMax, query });
  metrics.beforeReading(async () => purging.set(await count()));
}

export function openPurge({ store, clock, metrics }: PurgeDeps) {
  const { runsAtOnce } = paces[store.engine];
  const backlog = () => rows.countUnpurged(store, gaugeCountMax);
  watchBacklog({ clock, metrics }, backlog);

  /** Environments that were found empty; a late transaction may still commit rows in them. */
  const emptied = new Set<string>();
  /** Where the last round stopped: on a slow store one round does not get through all tables. */
  const passes = new Map<string, PurgePass>();
  const slices = new PurgeSlices(paces[store.engine]);

  /** Deletes slices, at least one, until the table has none of the rows or the time is over. */
  async function empty(
    table: rows.OwnedTable,
    owner: rows.Owner,
    until: number,
    write: LeaderWrite,
  ): Promise<{ done: boolean; removed: number }> {
    let removed = 0;
    let isShort = true;
    do {
      // A short slice does not prove that the table is empty: rows may have changed while it ran.
      if (isShort && !(await rows.anyLeft(store, table, owner))) return { done: true, removed };
      const limit = slices.limitOf(table.name);
      const beganAt = clock.elapsed();
      const gone = await write((session) => rows.purgeSlice(session, table, owner, limit));
      const tookMs = clock.elapsed() - beganAt;
      removed += gone;
      isShort = gone < limit;
      slices.note(table.name, { limit, tookMs, isShort });
      // Other writers come in between.
      await clock.sleep(1);
    } while (clock.elapsed() < until);
    return { done: false, removed };
  }

  /** Deletes runs in groups, their rows first. A group is finished even when the time is over. */
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

  /** Continues a pass; true when it reached the last table. */
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

  /** The environment that had the last turn. */
  let servedLast = "";

  /** Environments to empty, beginning after the one that had the last turn. */
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
        // To the end of the queue: a large environment must not delay the others.
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
    /** How many deleted environments may still have rows. */
    backlog,
    /** Deletes rows of deleted environments for `purgeRoundMs`, one slice a transaction. */
    duty: {
      duty: "retention",
      name: "tenancy.purge",
      about: "Deletes the rows of deleted environments, in slices.",
      everyMs: 5_000,
      tick: purgeOnce,
    },
  };
}
