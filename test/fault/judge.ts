import { sql } from "../../src/kit/sql.ts";
import { clock } from "../cluster/load.ts";
import { type Journal, stepsRepeated } from "../cluster/workers.ts";
import { type AckedEmit, type Checked, checkAll } from "../support/checkers.ts";
import {
  checkDebounced,
  checkEverySlot,
  checkLedgers,
  checkResults,
  overfullLanes,
} from "../support/engine-checkers.ts";
import { callerOf } from "../support/server.ts";
import { until } from "../support/until.ts";
import type { EnginePeople } from "./engine.ts";
import { debounceMs, programsById } from "./programs.ts";

/** Who says, once the faults are over, whether every promise held. */
export interface Judge {
  /** Waits until every run is over, then answers the breaches that the checkers find and had not found before. */
  check(acked: readonly AckedEmit[]): Promise<string[]>;
  stop(): Promise<void>;
}

export interface JudgeOptions {
  /** The database as it is now; may fail while a fault has it. */
  store: Checked;
  server: { url: string; key: string };
  journal: Journal;
  people: EnginePeople;
}

const settleMs = 90_000;
/** From the end of the last fault. */
const balancedMs = settleMs;
const sampleEveryMs = 200;

export function openJudge({ store, server, journal, people }: JudgeOptions): Judge {
  const known = new Set<string>();
  const overfull = new Set<string>();
  let sampling = true;
  const sampler = (async () => {
    for (; sampling; await Bun.sleep(sampleEveryMs))
      for (const lane of await overfullLanes(store).catch(() => [])) overfull.add(lane);
  })();

  /** Reads once; a fault may just have taken the connection. */
  const rowsNow = (query: Parameters<Checked["all"]>[0]) =>
    store.all<{ run_id: string; state: string }>(query).catch(() => undefined);

  async function untilOver(): Promise<string[]> {
    const left = () =>
      rowsNow(sql`SELECT run_id, state FROM executions WHERE function_id <> 'ticker' LIMIT 1000`);
    const armed = () => rowsNow(sql`SELECT id AS run_id, function_id AS state FROM debounces LIMIT 1`);
    let last: { run_id: string; state: string }[] = [];
    try {
      await until(
        async () => {
          const rows = await left();
          if (rows) last = rows;
          for (const { run_id, state } of rows ?? []) if (state === "held") await people.resume(run_id);
          return rows?.length === 0 && (await armed())?.length === 0;
        },
        { about: "every run to be over", deadlineMs: settleMs, everyMs: 200 },
      );
      return [];
    } catch {
      return last.slice(0, 20).map(({ run_id, state }) => `run ${run_id} is ${state} for ever`);
    }
  }

  async function untilBalanced(): Promise<string[]> {
    const { api } = callerOf(
      () => server.url,
      () => server.key,
    );
    let report: { balanced: boolean; checks: { name: string; count: number }[] } | undefined;
    try {
      await until(
        async () => {
          const answer = await api("/api/v1/integrity").catch(() => undefined);
          if (answer?.status === 200) report = answer.body;
          return report?.balanced === true;
        },
        { about: "integrity", deadlineMs: balancedMs, everyMs: 500 },
      );
      return [];
    } catch {
      const off = report?.checks.filter(({ count }) => count > 0) ?? [];
      return [`integrity: ${report ? off.map(({ name, count }) => `${name} ${count}`) : "never answered"}`];
    }
  }

  return {
    async check(acked) {
      const integrity = untilBalanced();
      const stuck = await untilOver();
      const lines = await journal.lines();
      const found = [
        ...stuck,
        ...(await integrity),
        ...(await checkAll(store, { acked: [...acked, ...people.acked], now: clock.now() })),
        ...(await checkResults(store, { programs: programsById, steered: people.steered })),
        ...(await checkLedgers(store)),
        ...(await checkEverySlot(store, "ticker")),
        ...(await checkDebounced(store, {
          functionId: "debounced",
          event: "burst",
          periodMs: debounceMs,
          bursts: people.bursts,
        })),
        ...overfull,
        ...stepsRepeated(lines),
      ];
      const fresh = found.filter((breach) => !known.has(breach));
      for (const breach of fresh) known.add(breach);
      return fresh;
    },

    async stop() {
      sampling = false;
      await sampler;
    },
  };
}
