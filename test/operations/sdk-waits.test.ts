import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  createClient,
  createWorker,
  defineEvents,
  NonRetryableError,
  WaitTimeoutError,
  type Worker,
} from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const events = defineEvents<{
  "order.placed": { orderId: string };
  "order.approved": { orderId: string; by: string };
  "order.stopped": { orderId: string };
  "both.asked": { n: number };
  "child.asked": { n: number };
}>();
const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines)("waits and children of the SDK against a real server on %s", (engine) => {
  let server: TestServer;
  let worker: Worker;
  let client: ReturnType<typeof connect>;
  const connect = () => createClient({ url: server.url, apiKey: server.adminKey, events });

  const double = events.createFunction({ id: "double" }, async ({ event, step }) => {
    const { n } = event.data as { n: number };
    if (n < 0) throw new NonRetryableError("negative", { code: "NEGATIVE" });
    return step.run("double", () => n * 2);
  });
  const approval = events.createFunction(
    {
      id: "approval",
      event: "order.placed",
      cancelOn: [{ event: "order.stopped", match: "orderId" }],
    },
    async ({ step }) => {
      const answer = await step.waitForEvent("order.approved", {
        match: "orderId",
        timeout: "1h",
        onTimeout: "throw",
        payload: { question: "ship it?" },
      });
      return step.run("note", () => `approved by ${answer.data.by}`);
    },
  );
  const both = events.createFunction({ id: "both", event: "both.asked" }, ({ step }) =>
    step.parallel("p", {
      child: () => step.invoke<{ n: number }, number>(double as never, { input: { n: 4 } }),
      wait: async () =>
        (await step.waitForEvent("order.approved", { match: "by", matchValue: "ada" }))?.data.orderId,
      nap: () => step.sleep("nap", 10),
    }),
  );
  const parent = events.createFunction({ id: "parent", event: "child.asked" }, async ({ event, step }) => {
    const aside = await step.invokeAsync("double", { input: { n: 1 } });
    const doubled = await step.invoke<number>("double", { input: event.data });
    return { aside: aside.runId, doubled };
  });
  const handled = events.createFunction({ id: "handled" }, async ({ step }) => {
    const none = await step.waitForEvent("order.approved", { timeout: 20 });
    const caught = await step
      .waitForEvent("order.approved", { timeout: 20, onTimeout: "throw" })
      .catch((error) => [error instanceof WaitTimeoutError, error.message]);
    const next = await step.waitForEvent("order.placed", { match: "orderId", matchValue: "late" });
    return { none, caught, next: next?.data.orderId };
  });
  const many = events.createFunction({ id: "many" }, async ({ step }) => {
    const decided = await step.waitForAny("decision", {
      yes: { event: "order.approved", match: "by", matchValue: "eve" },
      no: { event: "order.stopped", match: "orderId", matchValue: "m1" },
    });
    const all = await step.waitForAll("both", {
      approval: { event: "order.approved", match: "orderId", matchValue: "m1" },
      child: { event: "child.asked" },
    });
    const none = await step.waitForNone("quiet", { stop: { event: "order.stopped" } }, { timeout: 20 });
    const one = await step.waitForAny("again", { stop: { event: "order.stopped" } }, { timeout: 20 });
    return [decided?.name, decided?.event.name, all?.approval.data.by, all?.child.data.n, none, one];
  });
  const impatient = events.createFunction({ id: "impatient" }, ({ step }) =>
    step.waitForEvent("order.approved", { timeout: 20, onTimeout: "throw" }),
  );
  const misspelt = events.createFunction({ id: "misspelt" }, ({ step }) =>
    step.waitForEvent("order.approved", { match: "data.by ==" }),
  );

  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = connect();
    const functions = [double, approval, both, parent, handled, many, impatient, misspelt];
    worker = createWorker({ client, functions, handleSignals: false, log: silent });
    await worker.start();
  });
  afterAll(async () => {
    await worker.drain({ timeoutMs: 2_000 });
    await server.stop();
  });

  const waiting = (runId: string) =>
    until(async () => (await client.getRun(runId)).pauseReason === "wait_event", {
      about: `${runId} to wait`,
    });

  test("a wait takes the event that matches its own, whole", async () => {
    const first = (await client.emit("order.placed", { orderId: "o1" })).runIds[0]!;
    const second = (await client.emit("order.placed", { orderId: "o2" })).runIds[0]!;
    await waiting(first);
    await waiting(second);
    await client.emit("order.approved", { orderId: "o2", by: "bob" });
    expect(await client.waitForRun(second)).toMatchObject({ status: "completed", output: "approved by bob" });
    expect((await client.getRun(first)).status).toBe("paused");
    await client.emit("order.stopped", { orderId: "o1" });
    expect(await client.waitForRun(first)).toMatchObject({ status: "cancelled" });
  });

  test("a wait that is over fails its run without another attempt", async () => {
    const { runId } = await client.invokeFunction("impatient", {});
    expect(await client.waitForRun(runId)).toMatchObject({ status: "failed", attempt: 1 });
    expect((await client.getRunSteps(runId))[0]).toMatchObject({ type: "wait_for_event" });
  });

  test("a match that cannot be read fails its run, and names the step", async () => {
    const { runId } = await client.invokeFunction("misspelt", {});
    const message =
      "result refused: step order.approved: match: Unexpected token: EOF, the text ends too early";
    expect((await client.waitForRun(runId)).error).toMatchObject({ code: "invalid_argument", message });
  });

  test("waits for any and for all of several events; a loser ends nothing later", async () => {
    const { runId } = await client.invokeFunction("many", {});
    await waiting(runId);
    await client.emit("order.stopped", { orderId: "m1" });
    await client.emit("order.approved", { orderId: "m1", by: "eve" });
    const atBoth = async () => (await client.getRunSteps(runId)).at(-1)?.name === "both";
    await until(atBoth, { about: "the second wait" });
    const held = await client.pauseRun(runId);
    expect(held).toBe("paused");
    await client.resumeRun(runId);
    await client.emit("child.asked", { n: 3 });
    const run = await client.waitForRun(runId);
    expect(run.output).toEqual(["no", "order.stopped", "eve", 3, null, null]);
    expect((await client.getRunSteps(runId)).map(({ name, status }) => `${name} ${status}`)).toEqual([
      "decision completed",
      "both completed",
      "quiet timed_out",
      "again timed_out",
    ]);
  });

  test("a wait that is over is handled; what came meanwhile may end the next one", async () => {
    const { runId } = await client.invokeFunction("handled", {});
    await client.emit("order.placed", { orderId: "late" });
    const run = await client.waitForRun(runId);
    expect(run).toMatchObject({ status: "completed", attempt: 1 });
    expect(run.output).toEqual({
      none: null,
      caught: [true, 'step order.approved: timed out waiting for the event "order.approved"'],
      next: "late",
    });
    const steps = await client.getRunSteps(runId);
    expect(steps.map((step) => step.status)).toEqual(["timed_out", "timed_out", "completed"]);
  });

  test("children answer, fail for good, and one aside is left alone", async () => {
    const good = (await client.emit("child.asked", { n: 21 })).runIds[0]!;
    const run = await client.waitForRun(good);
    expect(run).toMatchObject({ status: "completed", output: { doubled: 42 } });
    const aside = await client.waitForRun((run.output as { aside: string }).aside);
    expect(aside).toMatchObject({ status: "completed", output: 2 });
    const bad = (await client.emit("child.asked", { n: -1 })).runIds[0]!;
    const failed = await client.waitForRun(bad);
    expect(failed).toMatchObject({ status: "failed", attempt: 1, error: { retryable: false } });
    expect(failed.error!.message).toContain("negative");
  });

  test("a wait, a child and a sleep side by side", async () => {
    const runId = (await client.emit("both.asked", { n: 1 })).runIds[0]!;
    await waiting(runId);
    await client.emit("order.approved", { orderId: "o9", by: "ada" });
    expect(await client.waitForRun(runId)).toMatchObject({
      status: "completed",
      output: { child: 8, wait: "o9" },
    });
  });
});
