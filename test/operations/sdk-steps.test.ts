import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { randomUUID } from "node:crypto";
import {
  type Client,
  createClient,
  createWorker,
  type HandlerContext,
  NonRetryableError,
  type SvcFunction,
  type Worker,
} from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

type Events = { go: { kind: string; bytes: number } };
type Context = HandlerContext<Events["go"], "go", Events>;
const silent = { debug() {}, info() {}, warn() {}, error() {} };
const marker = randomUUID();

const kinds: Record<string, (context: Context) => unknown> = {
  parallel: ({ step }) =>
    step.parallel("both", {
      left: async () => {
        await step.sleep("nap", 20);
        return step.run("x", () => "l");
      },
      right: () => step.map("each", [1, 2, 3], (n) => step.run("x", () => n * 2), { concurrency: 2 }),
    }),
  saga: async ({ step }) => {
    await step.run("book: seat", () => "12A", { compensate: (seat) => `freed ${seat}` });
    await step.run("pay", () => 5, {
      compensate: () => {
        throw new Error("bank closed");
      },
    });
    throw new NonRetryableError("sold out", { code: "SOLD_OUT" });
  },
  exhausted: async ({ step }) => {
    await step.run("book", () => 1, { compensate: () => "undone" });
    throw new Error("again");
  },
  late: ({ step, run }) =>
    step.run("slow", () => (run.attempt === 1 ? new Promise(() => {}) : "in time"), { timeout: 20 }),
  big: async ({ step, event }) => {
    const text = await step.run("big", () => "x".repeat(event.data.bytes));
    await step.sleep("nap", 1);
    const again = await step.run("second", () => "y".repeat(event.data.bytes));
    return text.length === again.length ? text : "lost";
  },
  unserialisable: ({ step }) => step.run("bad", () => 1n),
  odd: async ({ step }) => {
    const values = [
      await step.run("nothing", () => undefined),
      await step.run("text", () => "t"),
      await step.run("zero", () => 0),
      await step.run("list", () => [1]),
    ];
    await step.sleep("nap", 1);
    return values;
  },
  many: async ({ step }) => {
    let sum = 0;
    for (let n = 0; n < 1_000; n++) sum += await step.run("s", () => n);
    await step.sleep("nap", 1);
    for (let n = 0; n < 1_000; n++) sum += await step.run("s", () => n);
    return sum;
  },
};

describe.each(engines)("steps of the SDK against a real server on %s", (engine) => {
  let server: TestServer;
  let client: Client<Events>;
  let worker: Worker;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = createClient<Events>({ url: server.url, apiKey: server.adminKey });
    const all: SvcFunction = client.createFunction(
      {
        id: "all",
        event: "go",
        retry: { maxAttempts: 2, initialDelayMs: 10 },
        metadata: { marker },
      },
      (context) => kinds[context.event.data.kind]!(context),
    );
    worker = createWorker({ client, functions: [all], handleSignals: false, log: silent });
    await worker.start();
  });
  afterAll(async () => {
    await worker.drain({ timeoutMs: 2_000 });
    await server.stop();
  });

  async function runOf(kind: string, bytes = 0) {
    const { runIds } = await client.emit("go", { kind, bytes });
    return client.waitForRun(runIds[0]!);
  }
  const stepsOf = async (runId: string) =>
    (await client.getRunSteps(runId)).map((step) => [
      step.stepId.replace(`${runId}:`, ""),
      step.type,
      step.status,
    ]);

  test("branches keep their own steps over a sleep", async () => {
    const run = await runOf("parallel");
    expect(run).toMatchObject({ status: "completed", output: { left: "l", right: [2, 4, 6] } });
    expect((await stepsOf(run.id)).toSorted()).toEqual([
      ["both:0:nap:0", "sleep", "completed"],
      ["both:0:x:0", "invoke", "completed"],
      ["both:1:each:0:x:0", "invoke", "completed"],
      ["both:1:each:1:x:0", "invoke", "completed"],
      ["both:1:each:2:x:0", "invoke", "completed"],
    ]);
  });

  test("a failure for good is compensated in reverse order, and the rows say so", async () => {
    const run = await runOf("saga");
    expect(run).toMatchObject({
      status: "failed",
      attempt: 1,
      error: { message: "sold out", code: "SOLD_OUT", retryable: false },
    });
    const steps = await client.getRunSteps(run.id);
    expect(steps.map((step) => [step.name, step.type, step.status, step.compensationFor])).toEqual([
      ["book: seat", "invoke", "completed", undefined],
      ["pay", "invoke", "completed", undefined],
      ["compensate:pay", "compensate", "failed", "pay"],
      ["compensate:book: seat", "compensate", "completed", "book: seat"],
    ]);
    expect(steps[3]).toMatchObject({
      stepId: `${run.id}:compensate:book\\: seat:0`,
      output: "freed 12A",
    });
  });

  test("running out of attempts is compensated, too", async () => {
    const run = await runOf("exhausted");
    expect(run).toMatchObject({ status: "failed", attempt: 2, error: { message: "again" } });
    expect(await stepsOf(run.id)).toEqual([
      ["book:0", "invoke", "completed"],
      ["compensate:book:0", "compensate", "completed"],
    ]);
  });

  test("a step out of time is tried again", async () => {
    const run = await runOf("late");
    expect(run).toMatchObject({ status: "completed", attempt: 2, output: "in time" });
  });

  test("results of megabytes come through, steps and all", async () => {
    for (const bytes of [100_000, 4_000_000]) {
      const run = await runOf("big", bytes);
      expect([run.status, String(run.output).length]).toEqual(["completed", bytes]);
    }
    expect(await runOf("big", 4 * 1024 * 1024)).toMatchObject({
      status: "failed",
      attempt: 1,
      error: { code: "OUTPUT_TOO_LARGE" },
    });
  }, 120_000);

  test("what JSON cannot hold ends the run; whatever else it holds comes back as it is", async () => {
    expect(await runOf("unserialisable")).toMatchObject({
      status: "failed",
      attempt: 1,
      error: { code: "SERIALIZATION_ERROR", retryable: false },
    });
    expect((await runOf("odd")).output).toEqual([null, "t", 0, [1]]);
  });

  test("two thousand steps, a sleep between them", async () => {
    const run = await runOf("many");
    expect(run).toMatchObject({ status: "completed", output: 999_000 });
    expect(await client.getRunSteps(run.id)).toHaveLength(2_001);
  }, 120_000);

  test("a definition comes back as it was written", async () => {
    expect(await client.getFunction("all")).toMatchObject({
      id: "all",
      triggers: [{ event: "go" }],
      retry: { maxAttempts: 2, initialDelayMs: 10 },
      metadata: { marker, __svc_code_hash: expect.stringMatching(/^[0-9a-f]{16}$/) },
    });
    const definition: Parameters<typeof client.registerFunction>[0] = {
      id: "whole",
      triggers: [{ event: "e", expression: "data.n > 1" }, { cron: "*/5 * * * *" }],
      retry: { maxAttempts: 4, initialDelayMs: 5, backoffFactor: 3, maxDelayMs: 50 },
      timeoutMs: 9_000,
      concurrency: { limit: 3, key: "userId" },
      debounce: { periodMs: 1_000, key: "userId", maxWaitMs: 5_000 },
      cancelOn: [{ event: "stop", match: "id" }],
      actorKey: "userId",
      secrets: ["TOKEN"],
      recording: true,
      recordingProfile: "steps",
      recordingRetention: "30d",
      metadata: { team: "a" },
    };
    const { function: stored, created } = await client.registerFunction(definition);
    expect(created).toBe(true);
    // The names of its secrets are nobody else's business.
    const { secrets, ...rest } = definition;
    expect(stored).toMatchObject({ ...rest, mode: "pull" });
  });
});
