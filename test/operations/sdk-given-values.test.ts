import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type SvcFunction,
  type Worker,
} from "../../src/sdk/index.ts";
import { testFunction } from "../../src/sdk/testing/testing.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const patience = { timeoutMs: 20_000 };

/** What a caller gives counts as it is given, at the server and in memory. */
describe.each(engines)("values that are given, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  });
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  const work = async (functions: SvcFunction[], transport: "rest" | "stream" = "rest") => {
    const worker = createWorker({ client, functions, transport, handleSignals: false, log: silent });
    workers.push(worker);
    await worker.start();
  };
  const start = async (event: string, data: unknown) => (await client.emit(event, data)).runIds[0]!;

  test.each(["rest", "stream"] as const)(
    "a value to match that is null is null, over %s",
    async (transport) => {
      const single = createFunction({ id: `single-${transport}`, event: `single.${transport}` }, ({ step }) =>
        step
          .waitForEvent(`met.${transport}`, { match: "parent", matchValue: null, timeout: "1m" })
          .then(dataOf),
      );
      const many = createFunction({ id: `many-${transport}`, event: `many.${transport}` }, ({ step }) =>
        step
          .waitForAny(
            "any",
            { met: { event: `met.${transport}`, match: "parent", matchValue: null } },
            { timeout: "1m" },
          )
          .then((met) => dataOf(met?.event)),
      );
      const dataOf = (event: { data: unknown } | null | undefined) => event?.data;
      await work([single, many], transport);
      const runIds = [
        await start(`single.${transport}`, { parent: 7 }),
        await start(`single.${transport}`, {}),
        await start(`many.${transport}`, { parent: 7 }),
      ];
      const waiting = async (id: string) => (await client.getRun(id)).pauseReason === "wait_event";
      for (const id of runIds) await until(() => waiting(id), { about: "the wait" });
      for (const parent of [7, "null", null]) await client.emit(`met.${transport}`, { parent });
      for (const id of runIds)
        expect(await client.waitForRun(id, patience)).toMatchObject({
          status: "completed",
          output: { parent: null },
        });
      for (const one of [single, many]) {
        const memory = testFunction(one);
        for (const parent of [7, "null", null]) memory.deliver(`met.${transport}`, { parent });
        expect((await memory.run({ parent: 7 })).output).toEqual({ parent: null });
      }
    },
  );

  test("a duration in any unit is whole milliseconds wherever it goes", async () => {
    const relay = createFunction({ id: "relay", event: "relay" }, async ({ event, step }) => {
      const { delay } = event.data as { delay: string };
      await step.emit("relay.later", {}, { delay });
      return true;
    });
    await work([relay]);
    for (const [delay, ms] of [
      ["1.1h", 3_960_000],
      ["0.7d", 60_480_000],
      ["8.05s", 8_050],
      [1_500.4, 1_500],
    ] as const) {
      const before = Date.now();
      const { delayed } = await client.emit("much.later", {}, { delay });
      const dueInMs = Date.parse(delayed!.dueAt) - before;
      expect([delay, dueInMs >= ms - 1_000 && dueInMs < ms + 10_000]).toEqual([delay, true]);
    }
    const runId = await start("relay", { delay: "2.2h" });
    expect((await client.waitForRun(runId, patience)).status).toBe("completed");
    expect(await client.triggerSync("nobody.waits", {}, { timeoutMs: 1_500.5 })).toMatchObject({
      results: [],
    });
  });

  test("an instant without a zone is refused, in memory too", async () => {
    const napping = createFunction(
      { id: "napping", event: "napping", retry: { maxAttempts: 1 } },
      async ({ event, step }) => {
        await step.sleepUntil("nap", (event.data as { at: string }).at);
        return "rested";
      },
    );
    await work([napping]);
    for (const at of ["2026-11-27 05:13:30", "2026-11-27T05:13:30", "2026-11-27", "27 Nov 2026"]) {
      const run = await client.waitForRun(await start("napping", { at }), patience);
      expect([at, run.status, run.error?.message]).toEqual([
        at,
        "failed",
        expect.stringContaining("RFC 3339"),
      ]);
      expect(await testFunction(napping).run({ at })).toMatchObject({
        status: "failed",
        error: { name: "TypeError" },
      });
    }
    for (const at of ["2020-11-27T05:13:30Z", "2020-11-27T05:13:30.25+05:30"])
      expect((await client.waitForRun(await start("napping", { at }), patience)).output).toBe("rested");
  });
});
