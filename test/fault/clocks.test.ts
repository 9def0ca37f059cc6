import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import { clockUncertaintyMsMax } from "../../src/nodes/time-base.ts";
import { createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { kvOf, pathOf } from "../support/kv.ts";
import { sharedNats } from "../support/nats.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { isSoak } from "../support/soak.ts";
import { until } from "../support/until.ts";

/** So long that a worker which is alive renews it over any pause, and shorter than the work and than the clocks are apart. */
const leaseMs = 4_000;
const napMs = 1_200;
const workMs = 6_000;
const ttlMs = 2_000;
const quiet = { debug() {}, info() {}, warn() {}, error() {} };

describe("nodes whose clocks are 60 s apart", () => {
  let home: Home;
  const nodes: TestServer[] = [];
  const workers: Worker[] = [];
  const naps: number[] = [];
  const begun: string[] = [];

  const napper = createFunction({ id: "napper", event: "nap.please" }, async ({ step }) => {
    const before = await step.run("before", () => performance.now());
    await step.sleep("nap", napMs);
    naps.push(performance.now() - before);
  });
  const digger = createFunction({ id: "digger", event: "dig.please" }, async ({ step, run }) => {
    await step.run("dig", async () => {
      begun.push(run.id);
      await Bun.sleep(workMs);
    });
  });

  beforeAll(async () => {
    const { url: nats } = await sharedNats();
    home = await makeHome("postgres");
    for (const aheadMs of [-30_000, 30_000])
      nodes.push(
        await startTestServer({
          engine: "postgres",
          nats,
          home,
          clock: systemClock(aheadMs),
          settings: { leaseMs },
        }),
      );
    for (const [place, functions] of [
      [napper, digger],
      [napper, digger],
    ].entries()) {
      const node = nodes[place]!;
      const worker = createWorker({
        url: node.url,
        apiKey: node.adminKey,
        functions,
        workerId: `w-${place}`,
        checkpointMs: 0,
        handleSignals: false,
        log: quiet,
      });
      await worker.start();
      workers.push(worker);
    }
  }, 120_000);
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await Promise.all(nodes.map((node) => node.stop()));
    await home?.remove();
  }, 120_000);

  const completed = (runIds: readonly string[]) =>
    until(
      async () => {
        const runs = await Promise.all(runIds.map((id) => nodes[0]!.rpc("SvcService", "GetRun", { id })));
        return runs.every((run) => run.body.status === "RUN_STATUS_COMPLETED")
          ? runs.map((run) => run.body)
          : undefined;
      },
      { about: "every run to complete", deadlineMs: 30_000, everyMs: 100 },
    );
  const emit = async (event: string) => {
    const ids = nodes
      .flatMap((node) => [node, node])
      .map(async (node) => {
        const client = createClient({ url: node.url, apiKey: node.adminKey });
        return (await client.emit(event, {})).runIds;
      });
    return (await Promise.all(ids)).flat();
  };

  test("stamp events in one order, with the database's time", async () => {
    await emit("order.me");
    const { store } = nodes[0]!.running.domain;
    const rows = await store.all<{ at: number }>(sql`SELECT at FROM events ORDER BY position`);
    const now = await store.now();
    for (const [place, { at }] of rows.entries()) {
      expect(Math.abs(at - now)).toBeLessThan(5_000);
      expect(at).toBeGreaterThanOrEqual(rows[place - 1]?.at ?? 0);
    }
  });

  test("end a key's time together, to the second", async () => {
    const stores = nodes.map((node) => kvOf(() => node));
    await stores[0]!.make("brief", { ttl_seconds: ttlMs / 1_000 });
    const path = (place: number) => pathOf("brief", `of-${place}`);
    const lived: number[] = [];
    const ends = stores.flatMap(async ({ put }, place) => {
      const askedAt = performance.now();
      expect((await put(path(place), "x")).status).toBe(200);
      const isOver = async ({ textOf }: (typeof stores)[number]) => (await textOf(path(place))) === 404;
      await Promise.all(
        stores.map(async (store) => {
          await until(() => isOver(store), { about: "the end of its time", everyMs: 20 });
          lived.push(performance.now() - askedAt);
        }),
      );
    });
    await Promise.all(ends);
    expect(lived.length).toBe(4);
    expect(Math.min(...lived)).toBeGreaterThan(ttlMs - clockUncertaintyMsMax);
    // A busy machine asks late; a clock that is 60 s ahead or behind would be told apart all the same.
    expect(Math.max(...lived)).toBeLessThan(ttlMs + 15_000);
    if (isSoak) console.log("lived for ms", lived);
  }, 120_000);

  test("wake no sleeper early", async () => {
    await completed(await emit("nap.please"));
    expect(naps.length).toBe(4);
    expect(Math.min(...naps)).toBeGreaterThanOrEqual(napMs);
  }, 120_000);

  test("take no run from a worker that is alive", async () => {
    const runIds = await emit("dig.please");
    const runs = await completed(runIds);
    expect(runs.map((run) => run.attempt)).toEqual(runIds.map(() => 1));
    expect(begun.sort()).toEqual([...runIds].sort());
  }, 120_000);
});
