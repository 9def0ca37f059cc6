import { afterAll, beforeAll, expect, test } from "bun:test";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { clock, concurrently, emitUntilAcked, type Refusal, storeOf } from "./load.ts";
import { type Journal, makeJournal, spawnWorker, stepsRepeated, type WorkerProcess } from "./workers.ts";

const emits = 1_500;

let postgres: PostgresServer;
let home: Home;
let server: SpawnedServer;
let journal: Journal;
const workers: WorkerProcess[] = [];

beforeAll(async () => {
  postgres = await startPostgres();
  const base = await makeHome("libsql");
  home = { ...base, place: { ...base.place, databaseUrl: await postgres.createDatabase() } };
  server = await spawnServer({ engine: "postgres", home, settings: { leaseMs: 1_500 } });
  journal = await makeJournal();
  const place = { url: server.url, key: server.adminKey };
  workers.push(
    ...(await Promise.all(["first", "second"].map((name) => spawnWorker(name, place, { journal })))),
  );
}, 120_000);
afterAll(async () => {
  await Promise.all(workers.map((worker) => worker.kill9()));
  await server?.stop();
  await home?.remove();
  await postgres?.stop();
  await journal?.remove();
}, 120_000);

test("a database that restarts under load, fast and at once, costs callers a retry and the server nothing", async () => {
  const acked: AckedEmit[] = [];
  const refusals: Refusal[] = [];
  const tenant = { environmentId: server.env, key: server.adminKey };
  const restarts = [
    () => postgres.restart(),
    async () => {
      process.kill(postgres.pid(), "SIGQUIT");
      await postgres.restart();
    },
  ];
  let restarted = 0;
  let restarting = Promise.resolve();
  await concurrently(emits, 16, async (number) => {
    acked.push(
      await emitUntilAcked(
        { event: "step.me", data: { number }, idempotencyKey: `k-${number}` },
        { url: () => server.url, tenant, onRefusal: (refusal) => refusals.push(refusal) },
      ),
    );
    const restart = restarts[restarted];
    if (restart && acked.length >= 400 * (restarted + 1)) {
      restarted++;
      restarting = restarting.then(restart);
    }
  });
  await restarting;
  expect(restarted).toBe(2);
  expect(refusals.length).toBeGreaterThan(0);
  const other = refusals.filter(
    ({ status, code, retryAfter }) => status !== 503 || code !== "unavailable" || retryAfter !== "1",
  );
  expect(other).toEqual([]);

  await until(
    async () => {
      const page = await server.rpc("SvcService", "ListRuns", { statuses: ["completed"] });
      return Number(page.body.totalCount) === emits;
    },
    { about: "every run to complete", deadlineMs: 60_000, everyMs: 100 },
  );
  const store = await storeOf(home);
  try {
    expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
  } finally {
    await store.close();
  }
  expect(acked).toHaveLength(emits);
  expect(stepsRepeated(await journal.lines())).toEqual([]);
  // The process of the beginning: `kill 0` would throw if it had ended.
  process.kill(server.pid(), 0);
}, 150_000);
