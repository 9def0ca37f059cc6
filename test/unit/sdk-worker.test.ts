import { afterEach, beforeEach, expect, test } from "bun:test";
import type { HandlerContext } from "../../src/sdk/index.ts";
import {
  createClient,
  createFunction,
  createWorker,
  NonRetryableError,
  type Worker,
} from "../../src/sdk/index.ts";
import { sdkVersion } from "../../src/sdk/wire/version.ts";
import type { WorkerOptions } from "../../src/sdk/worker/worker.ts";
import { type FakeServer, startFakeServer } from "../support/fake-server.ts";
import { until } from "../support/until.ts";

let server: FakeServer;
let workers: Worker[] = [];
beforeEach(() => {
  server = startFakeServer();
});
afterEach(async () => {
  for (const worker of workers) worker.stop();
  workers = [];
  await server.stop();
});

const silent = { debug() {}, info() {}, warn() {}, error() {} };

type Handle = (context: HandlerContext<{ n: number }>) => unknown;

async function work(handle: Handle, options: Partial<WorkerOptions> = {}): Promise<Worker> {
  const handler = createFunction<{ go: { n: number } }, "go">({ id: "f", event: "go" }, handle as never);
  const worker = createWorker({
    url: server.url,
    functions: [handler],
    handleSignals: false,
    log: silent,
    ...options,
  });
  workers.push(worker);
  await worker.start();
  return worker;
}

const emit = async (n = 1) => (await createClient({ url: server.url }).emit("go", { n })).runIds[0]!;
const ended = (runId: string) =>
  until(() => ["completed", "failed"].includes(server.runs.get(runId)!.status) && server.runs.get(runId)!, {
    about: `run ${runId} to end`,
  });
const told = (status: string) => server.reports().filter((report) => report.status === status);

test("three trivial steps cost one report, with ids, order and outputs as the contract says", async () => {
  await work(async ({ step, event }) => {
    const a = await step.run("a", () => event.data.n + 1);
    const b = await step.run("a", async () => a + 1);
    return step.run("x:y\\z", () => ({ sum: a + b }));
  });
  const run = await ended(await emit(1));
  expect(run.output).toEqual({ sum: 5 });
  expect([...run.steps.keys()]).toEqual([`${run.id}:a:0`, `${run.id}:a:1`, `${run.id}:x\\:y\\\\z:0`]);
  expect(server.reports()).toHaveLength(1);
  expect(server.reports()[0]).toMatchObject({ status: "completed", step_offset: 0 });
});

test("a retried attempt repeats only what had not finished", async () => {
  const seen: string[] = [];
  await work(async ({ step, run }) => {
    await step.run("once", () => seen.push("once"));
    await step.run("flaky", () => {
      seen.push("flaky");
      if (run.attempt === 1) throw new Error("not yet");
    });
    return "done";
  });
  const run = await ended(await emit());
  expect(run).toMatchObject({ status: "completed", attempt: 2, output: "done" });
  expect(seen).toEqual(["once", "flaky", "flaky"]);
  expect(told("failed")[0]).toMatchObject({ error: { message: "not yet", retryable: true } });
});

test("an error that says so ends the run, and a caught one does not", async () => {
  await work(async ({ step, event }) => {
    const fail = () => {
      throw new NonRetryableError("never", { code: "NO" });
    };
    if (event.data.n === 1) await step.run("bad", fail);
    await step.run("bad", fail).catch(() => {});
    return "fine";
  });
  expect(await ended(await emit(1))).toMatchObject({
    status: "failed",
    attempt: 1,
    error: { message: "never", code: "NO", retryable: false },
  });
  const caught = await ended(await emit(2));
  expect(caught).toMatchObject({ status: "completed", output: "fine" });
  expect([...caught.steps.values()][0]).toMatchObject({ status: "failed" });
});

test("a sleep gives the worker free, and what came before it is not repeated", async () => {
  const seen: string[] = [];
  await work(async ({ step }) => {
    await step.run("before", () => seen.push("before"));
    await step.sleep("nap", "30ms");
    await step.sleepUntil("until", new Date(Date.now() - 5));
    return step.run("after", () => seen.push("after"));
  });
  const run = await ended(await emit());
  expect(seen).toEqual(["before", "after"]);
  expect(run.status).toBe("completed");
  expect(told("yielded")).toHaveLength(2);
  expect(told("yielded")[0]).toMatchObject({
    yield: { type: "sleep", step_name: "nap", step_id: `${run.id}:nap:0` },
  });
});

test("a handler that swallows the suspension is asleep all the same", async () => {
  const seen: string[] = [];
  await work(async ({ step }) => {
    await step.sleep("nap", 20).catch(() => {});
    await step.run("after", () => seen.push("after")).catch(() => {});
    return "over";
  });
  const run = await ended(await emit());
  expect(run.output).toBe("over");
  expect(seen).toEqual(["after"]);
  expect(told("completed")).toHaveLength(1);
});

test("steps that run beside a sleep are finished and stored before it", async () => {
  const seen: number[] = [];
  await work(async ({ step }) => {
    const slow = async () => {
      for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
      return seen.push(1);
    };
    await Promise.all([step.run("slow", slow), step.sleep("nap", 10)]);
    return seen.length;
  });
  expect(await ended(await emit())).toMatchObject({ status: "completed", output: 1 });
  expect(told("yielded")).toHaveLength(1);
});

test("in strict mode a step is over only when the server has it", async () => {
  const storedAtNext: boolean[] = [];
  await work(
    async ({ step, run }) => {
      await step.run("a", () => 1);
      storedAtNext.push(server.runs.get(run.id)!.steps.has(`${run.id}:a:0`));
      await Promise.all([step.run("b", () => 2), step.run("c", () => 3)]);
      storedAtNext.push(server.runs.get(run.id)!.steps.size === 3);
    },
    { checkpointMs: 0 },
  );
  await ended(await emit());
  expect(storedAtNext).toEqual([true, true]);
  expect(told("progress").every(({ awaited }) => awaited === true)).toBe(true);
});

test("a long step's neighbours are stored while it runs", async () => {
  let finish = () => {};
  await work(
    async ({ step }) => {
      await step.run("a", () => 1);
      await step.run("long", () => new Promise<void>((done) => (finish = done)));
    },
    { checkpointMs: 5 },
  );
  const runId = await emit();
  await until(() => server.runs.get(runId)!.steps.size === 1, { about: "the first step to be stored" });
  finish();
  await ended(runId);
  // With the completed report, or before it where the answer to the first one was late.
  const named = (report: Record<string, unknown>) =>
    ((report.steps ?? []) as { name: string }[]).map(({ name }) => name);
  const [first, second] = server.reports().filter((report) => named(report).length > 0);
  expect([first, second].map((report) => [named(report!), report!.step_offset])).toEqual([
    [["a"], 0],
    [["long"], 1],
  ]);
});

test("six hundred steps arrive, at most five hundred a report", async () => {
  await work(
    async ({ step }) => {
      for (let n = 0; n < 600; n++) await step.run("s", () => n);
    },
    { checkpointMs: 60_000 },
  );
  const run = await ended(await emit());
  expect(run.steps.size).toBe(600);
  expect(server.reports().map((report) => [(report.steps as unknown[]).length, report.step_offset])).toEqual([
    [500, 0],
    [100, 500],
  ]);
});

test("a report whose answer was lost is sent again and harms nothing", async () => {
  await work(() => {
    server.fail("/exchange", { status: 503, handled: true });
    return "x";
  });
  const runId = await emit();
  await ended(runId);
  expect(server.runs.get(runId)!.output).toBe("x");
});

test("a run that was taken over is dropped: its signal is raised and nothing more is reported", async () => {
  const aborted: string[] = [];
  await work(
    async ({ step, run, signal }) => {
      if (aborted.length > 0) return "second";
      signal.addEventListener("abort", () => aborted.push((signal.reason as { code: string }).code));
      server.supersede(run.id);
      await step.run("a", () => 1).catch(() => {});
      await step.run("b", () => 2).catch(() => {});
      return "first";
    },
    { checkpointMs: 0 },
  );
  await emit();
  await until(() => aborted.length > 0, { about: "the signal" });
  expect(aborted).toEqual(["STALE_EXECUTION"]);
  expect(server.reports()).toHaveLength(1);
});

test("a worker that was forgotten makes itself known again", async () => {
  await work(() => "x");
  server.forgetWorkers();
  expect(await ended(await emit())).toMatchObject({ output: "x" });
  expect(server.requests.filter((request) => request.path.endsWith("/register"))).toHaveLength(2);
  expect(server.requests.some((request) => request.path.endsWith("/jobs"))).toBe(false);
});

test("against a server without the exchange route it uses one request a job, with ack", async () => {
  server.setExchange(false);
  await work(async ({ step }) => step.run("a", () => "x"));
  const run = await ended(await emit());
  expect(run).toMatchObject({ output: "x", acked: true });
});

test("a worker whose key is refused stops and says why", async () => {
  const worker = await work(() => "x");
  server.fail("/exchange", { status: 401, body: { error: "Invalid API key", code: "unauthenticated" } });
  await expect(worker.closed).rejects.toMatchObject({ status: 401, message: "Invalid API key" });
});

test("a drain finishes what is active and takes nothing new", async () => {
  let finish = () => {};
  const worker = await work(() => new Promise<string>((done) => (finish = () => done("finished"))), {
    maxConcurrentJobs: 1,
  });
  const first = await emit();
  await until(() => worker.activeJobs === 1, { about: "the job" });
  const second = await emit();
  const drained = worker.drain();
  finish();
  expect(await drained).toBe(true);
  expect(server.runs.get(first)).toMatchObject({ status: "completed", output: "finished" });
  expect(server.runs.get(second)).toMatchObject({ status: "queued" });
});

test("a drain that is out of patience says so", async () => {
  const worker = await work(() => new Promise(() => {}));
  await emit();
  await until(() => worker.activeJobs === 1, { about: "the job" });
  expect(await worker.drain({ timeoutMs: 20 })).toBe(false);
});

test("methods of a worker work without their worker", async () => {
  const { stop, drain, closed } = await work(() => "done");
  expect(await drain()).toBe(true);
  stop();
  await closed;
});

test("a drain whose server is away ends when the worker is stopped", async () => {
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  let tried = 0;
  const log = { ...silent, warn: (message: string) => void (message.includes("reached") && tried++) };
  const worker = await work(() => finished, { log });
  await emit();
  await until(() => worker.activeJobs === 1, { about: "the job to begin" });
  await server.stop();
  const drained = worker.drain();
  finish();
  await until(() => tried > 0, { about: "a report that does not arrive" });
  worker.stop();
  await drained;
});

test("heartbeats list the active jobs three times in a lease", async () => {
  await server.stop();
  server = startFakeServer({ leaseMs: 600 });
  await work(() => new Promise(() => {}));
  await emit();
  const beats = () => server.requests.filter((request) => request.path.endsWith("/heartbeat"));
  await until(() => beats().length >= 2, { about: "two heartbeats" });
  expect(beats()[0]!.body).toMatchObject({
    active_jobs: 1,
    jobs: [{ job_id: expect.stringContaining("job_") }],
  });
});

test("what JSON cannot hold fails the run at once and says which step", async () => {
  await work(async ({ step }) => step.run("big", () => 1n));
  const run = await ended(await emit());
  expect(run).toMatchObject({ status: "failed", attempt: 1, error: { code: "SERIALIZATION_ERROR" } });
});

test("many jobs travel in few requests and never exceed the worker's room", async () => {
  let now = 0;
  let most = 0;
  await work(
    async ({ step }) => {
      most = Math.max(most, ++now);
      for (const name of ["a", "b", "c"]) await step.run(name, () => name);
      now--;
    },
    { maxConcurrentJobs: 50 },
  );
  const before = server.requests.length;
  const events = Array.from({ length: 1_000 }, (_, n) => ({ event: "go", data: { n } }));
  await createClient({ url: server.url }).emitMany(events);
  await until(() => [...server.runs.values()].every((run) => run.status === "completed"), {
    about: "all runs",
  });
  expect(most).toBeLessThanOrEqual(50);
  expect(server.requests.length - before).toBeLessThan(120);
});

test("a result that the server refuses fails its run at once, instead of coming back for ever", async () => {
  await work(
    () => {
      server.fail("/exchange", { status: 413, body: { error: "too large", code: "payload_too_large" } });
      return "x";
    },
    // No room for another job: no poll takes the failure away from the report.
    { maxConcurrentJobs: 1 },
  );
  const run = await ended(await emit());
  expect(run).toMatchObject({
    status: "failed",
    attempt: 1,
    error: { code: "REPORT_TOO_LARGE", message: "result refused: too large", retryable: false },
  });
});

test("one bad report does not take its neighbours down", async () => {
  await work(
    ({ event }) => {
      // The last of them to report makes the server refuse them all as one request.
      if (event.data.n === 3)
        server.fail("/exchange", { status: 400, body: { error: "steps[0].name: too long" } });
      return event.data.n;
    },
    { maxConcurrentJobs: 3 },
  );
  const runIds = await createClient({ url: server.url })
    .emitMany([1, 2, 3].map((n) => ({ event: "go", data: { n } })))
    .then((emitted) => emitted.flatMap((one) => one.runIds));
  const runs = await Promise.all(runIds.map(ended));
  expect(runs.map((run) => run.output)).toEqual([1, 2, 3]);
});

test("a worker that starts before its server is ready keeps trying", async () => {
  server.fail("RegisterFunction", { status: 503 }, 3);
  server.fail("/register", { status: 503 });
  await work(() => "x");
  expect(await ended(await emit())).toMatchObject({ output: "x" });
});

test("SVC_WORKER_ID names a process's first worker, and with a number the others", () => {
  const { SVC_WORKER_ID: before = "" } = process.env;
  process.env.SVC_WORKER_ID = "dev";
  const made = () => createWorker({ functions: [createFunction({ id: "named" }, () => 1)] }).id;
  const ids = [made(), made()];
  process.env.SVC_WORKER_ID = before;
  expect(ids).toEqual(["dev", "dev-2"]);
});

test("a worker says once that its server is older than its SDK", async () => {
  const said: unknown[] = [];
  const log = { ...silent, warn: (message: string, fields: unknown) => said.push([message, fields]) };
  const body = { status: "registered", server_version: "0.9.1" };
  server.fail("/register", { status: 200, handled: true, body }, 2);
  await work(() => "x", { log });
  await work(() => "x", { log: silent });
  expect(said).toEqual([[expect.stringContaining("svc server info"), { sdk: sdkVersion, server: "0.9.1" }]]);
});
