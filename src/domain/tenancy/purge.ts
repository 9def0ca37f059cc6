import type { Clock } from "../../kit/clock.ts";
import { lately } from "../../kit/lately.ts";
import {
  gaugeCountMax,
  gaugeKeptMs,
  gaugeWaitMsMax,
  purgeRoundMs,
  purgeSettleMs,
  purgeSliceMs,
} from "../../kit/limits.ts";
import type { Metrics } from "../../kit/metrics.ts";
import type { Session, Store } from "../../store/store.ts";
import * as rows from "./purge-rows.ts";

type Write = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

export interface Purge {
  /** The tick of loop `tenancy.purge`: removes rows of deleted environments for a while, a slice a transaction. */
  purgeOnce(write: Write): Promise<{ againInMs?: number }>;
  /** Deleted environments of which rows may be left. */
  backlog(): Promise<number>;
}

export interface PurgeDeps {
  store: Store;
  clock: Clock;
  metrics: Metrics;
}

const environmentsAtOnce = 1_000;
const sliceMin = 8;
/** Also of the cheapest rows: a commit has its price too. */
const sliceMax = 250;
/** Runs whose rows are removed together. */
const runsAtOnce = 200;

export function openPurge({ store, clock, metrics }: PurgeDeps): Purge {
  const backlog = () => rows.countUnpurged(store, gaugeCountMax);
  const purging = metrics.gauge({
    name: "svc_environments_purging",
    help: "Deleted environments of which rows may be left.",
  })();
  const count = lately({ clock, keptMs: gaugeKeptMs, waitMsMax: gaugeWaitMsMax, ask: backlog });
  metrics.beforeReading(async () => purging.set(await count()));

  /** Found empty, and waiting for stragglers. */
  const emptied = new Set<string>();

  /** Rows of a slice, by table: what lies in it decides how many of them take the time that a slice may. */
  const sliceOf = new Map<string, number>();

  /** Deletes slices until one comes back short or the time is over; answers whether it was short, and how many rows went. */
  async function empty(
    table: rows.OwnedTable,
    until: number,
    slice: (limit: number) => Promise<number>,
  ): Promise<{ done: boolean; removed: number }> {
    let removed = 0;
    while (clock.elapsed() < until) {
      const limit = sliceOf.get(table.name) ?? sliceMin;
      const beganAt = clock.elapsed();
      const gone = await slice(limit);
      const tookMs = clock.elapsed() - beganAt;
      removed += gone;
      if (tookMs > purgeSliceMs) sliceOf.set(table.name, Math.max(1, Math.floor(limit / 2)));
      else if (gone === limit && tookMs < purgeSliceMs / 2)
        sliceOf.set(table.name, Math.min(sliceMax, limit * 2));
      if (gone < limit) return { done: true, removed };
      // Others' turn: on libSQL a slice is work of this very thread.
      await clock.sleep(1);
    }
    return { done: false, removed };
  }

  /** The rows of some runs, then these runs; until there are none. */
  async function emptyRuns(
    environmentId: string,
    until: number,
    write: Write,
  ): Promise<{ done: boolean; removed: number }> {
    const runs = rows.ownedTables.find((table) => table.name === "runs")!;
    const ofRuns = rows.ownedTables.filter((table) => table.ofRun !== undefined);
    let removed = 0;
    while (clock.elapsed() < until) {
      const ids = await rows.someRuns(store, environmentId, runsAtOnce);
      if (ids.length === 0) return { done: true, removed };
      for (const table of ofRuns) {
        const { done, removed: gone } = await empty(table, until, (limit) =>
          write((session) => rows.purgeOfRuns(session, table, table.ofRun!, ids, limit)),
        );
        removed += gone;
        if (!done) return { done: false, removed };
      }
      const { removed: gone } = await empty(runs, until, (limit) =>
        write((session) => rows.purgeOfRuns(session, runs, "id", ids, limit)),
      );
      removed += gone;
    }
    return { done: false, removed };
  }

  /** Whether nothing is left of the environment, and whether anything was. */
  async function purge(id: string, until: number, write: Write): Promise<{ done: boolean; removed: number }> {
    let removed = 0;
    for (const table of rows.ownedTables) {
      if (table.ofRun !== undefined) continue;
      const { done, removed: gone } =
        table.name === "runs"
          ? await emptyRuns(id, until, write)
          : await empty(table, until, (limit) =>
              write((session) => rows.purgeSlice(session, table, id, limit)),
            );
      removed += gone;
      if (!done) return { done: false, removed };
    }
    return { done: true, removed };
  }

  return {
    backlog,
    async purgeOnce(write) {
      const until = clock.elapsed() + purgeRoundMs;
      const waiting = await rows.unpurged(store, environmentsAtOnce);
      for (const { id, deletedAt } of waiting) {
        const beganAt = clock.now();
        const isSettled = beganAt >= deletedAt + purgeSettleMs;
        if (emptied.has(id) && !isSettled) continue;
        const { done, removed } = await purge(id, until, write);
        if (!done) return { againInMs: 20 };
        emptied.add(id);
        if (removed > 0 || !isSettled) continue;
        await write((session) => rows.markPurged(session, id, beganAt));
        emptied.delete(id);
      }
      return {};
    },
  };
}
