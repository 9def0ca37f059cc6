import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Client, createClient, createWorker, type Worker } from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

type Events = { "order.placed": { orderId: string; total: number }; "order.slow": { waitMs: number } };
const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines)("the SDK against a real server on %s", (engine) => {
  let server: TestServer;
  let client: Client<Events>;
  let worker: Worker;
  const handled: string[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = createClient<Events>({ url: server.url, apiKey: server.adminKey });
    const ship = client.createFunction(
      { id: "ship", event: "order.placed" },
      async ({ event, step, run }) => {
        const a = await step.run("reserve", () => `reserved ${event.data.orderId}`);
        const b = await step.run("charge", () => {
          if (event.data.total < 0 && run.attempt === 1) throw new Error("card declined");
          return event.data.total;
        });
        return step.run("ship", () => {
          handled.push(run.id);
          return { a, b };
        });
      },
    );
    const slow = client.createFunction({ id: "slow", event: "order.slow" }, async ({ event, step }) => {
      await step.run("before", () => 1);
      await step.sleep("nap", event.data.waitMs);
      return step.run("after", () => 2);
    });
    worker = createWorker({ client, functions: [ship, slow], handleSignals: false, log: silent });
    await worker.start();
  });
  afterAll(async () => {
    await worker.drain({ timeoutMs: 2_000 });
    await server.stop();
  });

  test("an event becomes a completed run with its steps", async () => {
    const { eventId, runIds, sequence } = await client.emit("order.placed", { orderId: "o1", total: 5 });
    expect(sequence).toBeGreaterThan(0);
    const run = await client.waitForRun(runIds[0]!);
    expect(run).toMatchObject({
      status: "completed",
      functionId: "ship",
      eventId,
      attempt: 1,
      output: { a: "reserved o1", b: 5 },
    });
    const steps = await client.getRunSteps(run.id);
    expect(steps.map((step) => [step.name, step.status, step.stepId])).toEqual(
      ["reserve", "charge", "ship"].map((name) => [name, "completed", `${run.id}:${name}:0`]),
    );
    expect(steps.map((step) => step.output)).toEqual(["reserved o1", 5, { a: "reserved o1", b: 5 }]);
    expect(await client.events.get(eventId)).toMatchObject({ id: eventId, name: "order.placed" });
  });

  test("a failed attempt is made again after its delay", async () => {
    const retry = { maxAttempts: 2, initialDelayMs: 10 };
    const definition = await client.getFunction("ship");
    await client.registerFunction({ id: "ship", triggers: definition.triggers ?? [], retry });
    const { runIds } = await client.emit("order.placed", { orderId: "o2", total: -1 });
    expect(await client.waitForRun(runIds[0]!)).toMatchObject({ status: "completed", attempt: 2 });
  });

  test("a sleep ends at its time", async () => {
    const { runIds } = await client.emit("order.slow", { waitMs: 50 });
    const run = await client.waitForRun(runIds[0]!);
    expect(run).toMatchObject({ status: "completed", output: 2 });
    const steps = await client.getRunSteps(run.id);
    expect(steps.map((step) => [step.name, step.type, step.status])).toEqual([
      ["before", "invoke", "completed"],
      ["nap", "sleep", "completed"],
      ["after", "invoke", "completed"],
    ]);
  });

  test("a keyed emit answers the first event again", async () => {
    const first = await client.emit("order.placed", { orderId: "o3", total: 1 }, { idempotencyKey: "k3" });
    const again = await client.emit("order.placed", { orderId: "o3", total: 1 }, { idempotencyKey: "k3" });
    expect(again.eventId).toBe(first.eventId);
    expect(again.runIds).toEqual(first.runIds);
  });

  test("three hundred events are handled once each", async () => {
    const events = Array.from({ length: 300 }, (_, n) => ({
      event: "order.placed" as const,
      data: { orderId: `m${n}`, total: n },
    }));
    const emitted = await client.emitMany(events);
    const runIds = emitted.flatMap((one) => one.runIds);
    expect(new Set(runIds).size).toBe(300);
    const runs = await Promise.all(runIds.map((id) => client.waitForRun(id)));
    expect(new Set(runs.map((run) => run.status))).toEqual(new Set(["completed"]));
    for (const id of runIds) expect(handled.filter((one) => one === id)).toHaveLength(1);
    const page = await client.listRuns({ functionId: "ship", statuses: ["completed"], limit: 100 });
    expect(page.runs).toHaveLength(100);
    expect(page.totalCount).toBeGreaterThanOrEqual(300);
  }, 90_000);

  test("what the server refuses reads as a typed error", async () => {
    await expect(client.getRun("run_nowhere")).rejects.toMatchObject({
      name: "SvcError",
      code: "not_found",
      status: 404,
    });
    const other = createClient({ url: server.url, apiKey: "ifkey_00000000000000000000000000000000" });
    await expect(other.listRuns()).rejects.toMatchObject({ code: "unauthenticated", status: 401 });
  });
});
