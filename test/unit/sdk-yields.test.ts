import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  createClient,
  createFunction,
  createWorker,
  NonRetryableError,
  type SvcFunction,
  type Worker,
  type WorkerOptions,
} from "../../src/sdk/index.ts";
import { type FakeServer, startFakeServer } from "../support/fake-server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
let server: FakeServer;
let worker: Worker;
beforeEach(() => {
  server = startFakeServer();
});
afterEach(async () => {
  worker.stop();
  await server.stop();
});

async function work(functions: SvcFunction[], options: Partial<WorkerOptions> = {}): Promise<void> {
  worker = createWorker({ url: server.url, functions, handleSignals: false, log: silent, ...options });
  await worker.start();
}
const emit = async (event: string, data: unknown) =>
  (await createClient({ url: server.url }).emit(event, data)).runIds[0]!;
const ended = (runId: string) =>
  until(() => ["completed", "failed"].includes(server.runs.get(runId)!.status) && server.runs.get(runId)!, {
    about: `run ${runId} to end`,
  });
const yields = () =>
  server.reports().flatMap((report) => (report.status === "yielded" ? [report.yield] : []));

test("a wait says what it waits for and answers the event", async () => {
  const approve = createFunction({ id: "approve", event: "asked" }, async ({ step }) => {
    const event = await step.waitForEvent("answered", {
      name: "their answer",
      match: "data.id",
      matchValue: 7,
      timeout: "2d",
      payload: { question: "?" },
    });
    return event?.data;
  });
  await work([approve]);
  const runId = await emit("asked", { id: 7 });
  await until(() => server.runs.get(runId)!.status === "waiting", { about: "the wait" });
  await emit("answered", { yes: true });
  expect((await ended(runId)).output).toEqual({ yes: true });
  expect(yields()).toEqual([
    {
      step_id: `${runId}:their answer:0`,
      step_name: "their answer",
      type: "wait_for_event",
      event_filter: {
        event: "answered",
        on_timeout: "null",
        match: "data.id",
        match_value: 7,
        timeout: "172800000ms",
        payload: { question: "?" },
      },
    },
  ]);
});

test("a child's result comes back; its failure is not retried; one started aside has an id", async () => {
  const child = createFunction<{ c: number }, "c", number>({ id: "child" }, ({ event }) => {
    if (event.data < 0) throw new NonRetryableError("negative");
    return event.data * 2;
  });
  const parent = createFunction<{ go: number }, "go">(
    { id: "parent", event: "go" },
    async ({ event, step }) => {
      const { runId } = await step.invokeAsync(child, { input: 1 });
      const doubled = await step.invoke(child, { input: event.data, timeoutMs: 5_000 });
      return { runId, doubled };
    },
  );
  await work([child, parent]);
  const good = await ended(await emit("go", 4));
  expect(good.output).toEqual({ runId: expect.stringContaining("run_"), doubled: 8 });
  expect(yields()).toEqual([
    {
      step_id: `${good.id}:child:0`,
      step_name: "child",
      type: "invoke_function_async",
      function_id: "child",
      any_function: true,
      input: 1,
    },
    {
      step_id: `${good.id}:child:1`,
      step_name: "child",
      type: "invoke_function",
      function_id: "child",
      any_function: true,
      input: 4,
      invoke_timeout_ms: 5_000,
    },
  ]);
  expect(await ended(await emit("go", -1))).toMatchObject({
    status: "failed",
    attempt: 1,
    error: { message: "step child failed: negative", code: "INVOKE_FAILED", retryable: false },
  });
});

test("the worker says it understands failed rows", async () => {
  await work([createFunction({ id: "f", event: "go" }, () => 1)]);
  const { body } = server.requests.find((request) => request.path.endsWith("/register"))!;
  const [major, minor] = (body as { version: { sdk: string } }).version.sdk.split(".").map(Number);
  expect(major! > 0 || minor! >= 40).toBe(true);
});

test("publish and emit go out for their run, with keys that stay the same", async () => {
  const loud = createFunction({ id: "loud", event: "go" }, async ({ step, run }) => {
    const { eventId } = await step.publish("news", { a: 1 });
    await step.publish("news", [1], { idempotencyKey: "mine" });
    await step.emit("said", { b: 2 }, { version: 2 });
    if (run.attempt === 1) throw new Error("again");
    return eventId;
  });
  await work([loud]);
  const run = await ended(await emit("go", {}));
  expect(run).toMatchObject({ status: "completed", attempt: 2, output: expect.stringContaining("evt_") });
  const sent = server.requests.filter((request) => request.headers.has("x-svc-run-id"));
  expect(sent.map(({ body, headers }) => [headers.get("x-svc-run-id"), body])).toEqual([
    [run.id, { topic: "news", data: { a: 1 }, idempotencyKey: `${run.id}:publish:news:0` }],
    [run.id, { topic: "news", dataValue: [1], idempotencyKey: "mine" }],
    [run.id, { event: "said", data: { b: 2 }, idempotencyKey: `${run.id}:emit.said:0`, version: 2 }],
  ]);
  expect([...run.steps.values()].map((step) => [step.name, step.type])).toEqual([
    ["publish:news", "invoke"],
    ["publish:news", "invoke"],
    ["emit.said", "invoke"],
  ]);
});

test("branches that yield are reported as one yield, their finished steps before it", async () => {
  const wide = createFunction({ id: "wide", event: "go" }, ({ step }) =>
    step.parallel("p", [
      () => step.sleep("nap", 5),
      async () => {
        await step.run("beside", () => 1);
        await step.sleep("rest", 10);
        return 2;
      },
    ]),
  );
  await work([wide]);
  const run = await ended(await emit("go", {}));
  expect(run.output).toEqual([null, 2]);
  expect(yields().map((one) => (one as { step_id: string }).step_id)).toEqual([
    `${run.id}:p:0:nap:0`,
    `${run.id}:p:1:rest:0`,
  ]);
  expect(server.reports()[0]).toMatchObject({ status: "progress", steps: [{ name: "beside" }] });
});

test("before servers that hand out no runs to be undone, compensations arrive with the failed report", async () => {
  const saga = createFunction({ id: "saga", event: "go" }, async ({ step }) => {
    await step.run("book", () => "seat", { compensate: (seat) => `freed ${seat}` });
    throw new NonRetryableError("sold out");
  });
  await work([saga], { checkpointMs: 60_000 });
  const run = await ended(await emit("go", {}));
  expect(run).toMatchObject({ status: "failed", error: { message: "sold out" } });
  expect(server.reports()).toHaveLength(1);
  expect(server.reports()[0]).toMatchObject({
    status: "failed",
    steps: [
      { name: "book", type: "invoke", status: "completed" },
      {
        id: `${run.id}:compensate:book:0`,
        name: "compensate:book",
        type: "compensate",
        compensation_for: "book",
        status: "completed",
        output: "freed seat",
      },
    ],
  });
});

test("a large step and a large result travel in requests of their own", async () => {
  const big = "x".repeat(3_900_000);
  await work([
    createFunction({ id: "big", event: "go" }, async ({ step }) => {
      const { length } = await step.run("big", () => big);
      return [length, big];
    }),
  ]);
  const run = await ended(await emit("go", {}));
  expect((run.output as unknown[])[0]).toBe(big.length);
  for (const report of server.reports()) expect(JSON.stringify(report).length).toBeLessThan(4 * 1024 * 1024);
});

test("ten thousand steps arrive, at most five hundred a report", async () => {
  await work([
    createFunction({ id: "long", event: "go" }, async ({ step }) => {
      let sum = 0;
      for (let n = 0; n < 10_000; n++) sum += await step.run("s", () => n);
      return sum;
    }),
  ]);
  const run = await ended(await emit("go", {}));
  expect(run.output).toBe((10_000 * 9_999) / 2);
  expect(run.steps.size).toBe(10_000);
  const counts = server.reports().map((report) => (report.steps as unknown[]).length);
  expect(Math.max(...counts)).toBeLessThanOrEqual(500);
  expect(counts.length).toBeLessThan(40);
});

test("before servers that keep no tries of steps, the worker waits itself, however long", async () => {
  const tries: number[] = [];
  const charge = ({ attempt }: { attempt: number }) => {
    tries.push(attempt);
    if (attempt < 3) throw new Error("no");
    return "charged";
  };
  const stubborn = createFunction({ id: "f", event: "go" }, ({ step }) =>
    step.run("charge", charge, { retry: { delay: 2 } }),
  );
  await work([stubborn]);
  const run = await ended(await emit("go", 1));
  expect(run).toMatchObject({ status: "completed", attempt: 1, output: "charged" });
  expect(tries).toEqual([1, 2, 3]);
});

test("the log says which attempt failed, why and where, and when the run is tried again", async () => {
  const lines: [string, Record<string, unknown> | undefined][] = [];
  const warn = (message: string, fields?: Record<string, unknown>) => void lines.push([message, fields]);
  const retry = { maxAttempts: 3, initialDelayMs: 4_000 };
  const failing = createFunction({ id: "f", event: "go", retry }, ({ run }) => {
    if (run.attempt === 1) throw new Error("no");
    throw new NonRetryableError("never");
  });
  await work([failing], { log: { ...silent, warn } });
  await ended(await emit("go", 1));
  expect(lines.map(([message]) => message)).toEqual([
    "attempt 1 of 3 failed, again in 4 s",
    "attempt 2 of 3 failed, and is not tried again",
  ]);
  expect(lines[0]![1]).toMatchObject({
    ...{ functionId: "f", reason: "no" },
    stack: expect.stringContaining("sdk-yields.test.ts"),
  });
});
