import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { isNight } from "../support/night.ts";
import { engines, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { clock, concurrently, emitUntilAcked, storeOf } from "./load.ts";
import {
  endWork,
  type Journal,
  makeJournal,
  spawnWorker,
  stepsRepeated,
  type WorkerProcess,
} from "./workers.ts";

const emits = 600;
/** Of so many of them. */
const raceEvery = 10;
const races = emits / raceEvery;
const killAfter = [150, 400];

/** Whoever takes a run over sees the winners of before, and no line of its handler comes twice or is lost. */
async function requireOneWinner({ rpc }: SpawnedServer, lines: readonly string[][]): Promise<void> {
  const winners = new Map<string, Set<string>>();
  for (const [, what, run, round, winner] of lines) {
    if (what !== "won") continue;
    const key = `${run} ${round}`;
    winners.set(key, (winners.get(key) ?? new Set()).add(winner!));
  }
  expect(winners.size).toBe(3 * races);
  expect([...winners].filter(([, all]) => all.size !== 1)).toEqual([]);
  const runs = new Set([...winners.keys()].map((key) => key.split(" ")[0]!));
  for (const runId of runs) {
    const { body } = await rpc("SvcService", "GetRunLogs", { runId });
    const texts = ["1", "2", "3"].flatMap((round) => {
      const [winner] = winners.get(`${runId} ${round}`)!;
      return Array.from({ length: 66 }, (_, at) => `${round} ${winner} ${at + 1}`);
    });
    expect(body.lines.map(({ text }: { text: string }) => text)).toEqual(texts);
  }
}

describe.each(engines.filter((engine) => isNight || engine === "postgres"))(
  "a server on %s that is killed under load",
  (engine) => {
    let server: SpawnedServer;
    let journal: Journal;
    const workers: WorkerProcess[] = [];

    const addWorker = async (name: string) =>
      workers.push(await spawnWorker(name, { url: server.url, key: server.adminKey }, { journal }));

    beforeAll(async () => {
      server = await spawnServer({ engine, settings: { leaseMs: 1_500 } });
      journal = await makeJournal();
      await Promise.all(["first", "second"].map(addWorker));
    }, 120_000);
    afterAll(() => endWork({ workers, server, journal }), 120_000);

    test("has every acked emit once with its one run, and every run completes with no stored step repeated", async () => {
      const acked: AckedEmit[] = [];
      const tenant = { environmentId: server.env, key: server.adminKey };
      let refused = 0;
      let kills = 0;
      let restarting = Promise.resolve();
      const kill = async () => {
        await server.kill9();
        await server.restart();
        // What this worker was at goes on elsewhere, behind the steps that are stored.
        if (kills === 1) await Promise.all([workers[0]!.kill9(), addWorker("third")]);
      };
      await concurrently(emits, 16, async (number) => {
        acked.push(
          await emitUntilAcked(
            {
              event: number % raceEvery === 0 ? "race.me" : "step.me",
              data: { number },
              idempotencyKey: `k-${number}`,
            },
            { url: () => server.url, tenant, onRefusal: () => refused++ },
          ),
        );
        if (kills < killAfter.length && acked.length >= killAfter[kills]!) {
          kills++;
          restarting = restarting.then(kill);
        }
      });
      await restarting;
      expect(kills).toBe(killAfter.length);
      expect(refused).toBeGreaterThan(0);
      expect(acked.filter(({ runIds }) => runIds.length !== 1)).toEqual([]);

      const { rpc } = server;
      await until(
        async () => {
          const page = await rpc("SvcService", "ListRuns", { statuses: ["completed"] });
          return Number(page.body.totalCount) === emits;
        },
        { about: "every run to complete", deadlineMs: 60_000, everyMs: 100 },
      );
      const lines = await journal.lines();
      await requireOneWinner(server, lines);
      // libSQL's file is one process's.
      await server.terminate();
      const store = await storeOf(server.home);
      try {
        expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
        const [counts] = await store.all(sql`SELECT (SELECT COUNT(*) FROM events) AS events,
        (SELECT COUNT(*) FROM runs WHERE status = 'completed') AS runs, (SELECT COUNT(*) FROM executions) AS executions,
        (SELECT COUNT(*) FROM steps WHERE status = 'completed' AND name IN ('one', 'two')) AS steps`);
        expect(counts).toEqual({ events: emits, runs: emits, executions: 0, steps: 2 * (emits - races) });
      } finally {
        await store.close();
      }
      expect(stepsRepeated(lines)).toEqual([]);
      expect(lines.filter(([, what]) => what === "stored").length).toBeGreaterThan(emits);
    }, 150_000);
  },
);
