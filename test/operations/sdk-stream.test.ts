import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "../../src/kit/sql.ts";
import {
  type Client,
  createClient,
  createWorker,
  type Worker,
  type WorkerOptions,
} from "../../src/sdk/index.ts";
import { engines, spawnServer, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines)("a worker of the SDK on a stream, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];

  const start = async (options: Pick<WorkerOptions, "functions"> & Partial<WorkerOptions>) => {
    const worker = createWorker({
      client,
      transport: "stream",
      handleSignals: false,
      log: silent,
      ...options,
    });
    workers.push(worker);
    await worker.start();
    return worker;
  };
  const listed = async (id: string) =>
    (await server.api("/api/v1/workers")).body.workers.find((one: { id: string }) => one.id === id);

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { leaseMs: 6_000 } });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  });
  afterEach(async () => {
    for (const worker of workers.splice(0)) await worker.drain({ timeoutMs: 2_000 });
  });
  afterAll(() => server.stop());

  test("runs with steps, a retry, a sleep and a result that is no object", async () => {
    const all = client.createFunction(
      { id: "all", event: "stream.all", retry: { maxAttempts: 2, initialDelayMs: 10 } },
      async ({ event, step, run }) => {
        const a = await step.run("one", () => [1, 2]);
        if (run.attempt === 1) throw new Error("once more");
        await step.sleep("nap", 20);
        return step.run("two", () => `${a.length} ${(event.data as { word: string }).word}`);
      },
    );
    for (const checkpointMs of [20, 0]) {
      const worker = await start({ functions: [all], checkpointMs });
      expect(await listed(worker.id)).toMatchObject({ transport: "stream", max_concurrent: 10 });
      const { runIds } = await client.emit("stream.all", { word: "x" });
      const run = await client.waitForRun(runIds[0]!);
      expect(run).toMatchObject({ status: "completed", attempt: 2, output: "2 x" });
      const steps = await client.getRunSteps(run.id);
      expect(steps.map(({ name, type, status }) => [name, type, status])).toEqual([
        ["one", "invoke", "completed"],
        ["nap", "sleep", "completed"],
        ["two", "invoke", "completed"],
      ]);
      await worker.drain();
      await until(async () => !(await listed(worker.id)), { about: "the worker to leave the list" });
    }
  });

  test("many runs at once, no more than there is room for", async () => {
    let now = 0;
    let most = 0;
    const many = client.createFunction({ id: "many", event: "stream.many" }, async ({ step }) => {
      most = Math.max(most, ++now);
      await step.run("wait", () => new Promise((done) => setImmediate(done)));
      now--;
      return { ok: true };
    });
    await start({ functions: [many], maxConcurrentJobs: 4 });
    const emitted = await Promise.all(Array.from({ length: 60 }, () => client.emit("stream.many", {})));
    for (const { runIds } of emitted) expect((await client.waitForRun(runIds[0]!)).status).toBe("completed");
    expect(most).toBeLessThanOrEqual(5);
  }, 120_000);

  test("a cancelled run raises the handler's signal, and so does a lost lease", async () => {
    const raised: string[] = [];
    const stuck = client.createFunction({ id: "stuck", event: "stream.stuck" }, async ({ signal, run }) => {
      await new Promise<void>((done) => signal.addEventListener("abort", () => done()));
      raised.push(run.id);
      return {};
    });
    const worker = await start({ functions: [stuck] });
    const begun = async () => {
      const { runIds } = await client.emit("stream.stuck", {});
      await until(() => worker.activeJobs === 1, { about: "the job to begin" });
      return runIds[0]!;
    };
    const first = await begun();
    const cancelled = { environmentId: server.env, workerId: worker.id, executionSeq: 1, reason: "test" };
    server.running.domain.workers.cancelled({ ...cancelled, runId: first });
    await until(() => raised.includes(first), { about: "the signal of a cancelled run" });
    await until(() => worker.activeJobs === 0, { about: "the job to be over" });

    const second = await begun();
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(
        sql`UPDATE executions SET lease_hash = 'other', worker_id = 'other' WHERE run_id = ${second}`,
      ),
    );
    await until(() => raised.includes(second), { about: "the signal of a lost lease" });
  });

  test("a key that is refused stops the worker", async () => {
    const { keys } = server.running.domain;
    const made = await keys.create({
      orgId: "org_default",
      environmentId: server.env,
      name: "s",
      roleIds: ["role_developer"],
    });
    const own = createClient({ url: server.url, apiKey: made.key });
    const idle = own.createFunction({ id: "idle", event: "stream.idle" }, () => ({}));
    const worker = await start({ client: own, functions: [idle] });
    await keys.remove(made.id);
    await expect(worker.closed).rejects.toMatchObject({ status: 401 });
    const refused = start({
      client: createClient({ url: server.url, apiKey: "ifkey_no" }),
      functions: [idle],
    });
    await expect(refused).rejects.toMatchObject({ status: 401 });
  });
});

test("a worker finds its server again, and what it could not report meanwhile is stored", async () => {
  const server = await spawnServer({ engine: "libsql" });
  const client = createClient({ url: server.url, apiKey: server.adminKey });
  // A run whose lease ended while the server was slow to come back begins once more, and goes through the same gate.
  let gate = Promise.withResolvers<void>();
  const begun: string[] = [];
  const held = client.createFunction({ id: "held", event: "stream.held" }, async ({ step, run }) => {
    await step.run("first", () => 1);
    begun.push(run.id);
    await gate.promise;
    return { done: true };
  });
  const worker = createWorker({
    client,
    functions: [held],
    transport: "stream",
    handleSignals: false,
    log: silent,
  });
  await worker.start();
  const { runIds } = await client.emit("stream.held", {});
  await until(() => begun.length === 1, { about: "the job to begin" });
  await server.terminate();
  gate.resolve();
  await server.restart();
  const run = await client.waitForRun(runIds[0]!, { timeoutMs: 60_000 });
  expect(run).toMatchObject({ status: "completed", attempt: 1, output: { done: true } });
  gate = Promise.withResolvers<void>();
  const next = await client.emit("stream.held", {});
  await until(() => begun.at(-1) === next.runIds[0], { about: "the next job to begin" });
  gate.resolve();
  expect((await client.waitForRun(next.runIds[0]!)).status).toBe("completed");
  await worker.drain({ timeoutMs: 1_000 });
  await server.stop();
}, 90_000);

const program = (url: string, apiKey: string) => `
import { createFunction, createWorker } from "./index.js";
const greet = createFunction({ id: "greet", event: "hello" }, async ({ event, step }) => {
  const name = await step.run("name", () => event.data.name);
  await step.sleep("think", "20ms");
  return step.run("greeting", () => "hello " + name);
});
await createWorker({ url: "${url}", apiKey: "${apiKey}", functions: [greet], transport: "stream" }).start();
`;

test("built for Node, a worker on a stream runs there, and leaves on SIGTERM", async () => {
  const node = Bun.which("node");
  if (node === null) throw new Error("node was not found. Install it: apt-get install nodejs");
  const folder = await mkdtemp(join(tmpdir(), "svc-sdk-"));
  const built = await Bun.build({ entrypoints: ["src/sdk/index.ts"], target: "node", outdir: folder });
  expect(built.success).toBe(true);
  const server = await startTestServer({ engine: "libsql" });
  await Bun.write(join(folder, "worker.mjs"), program(server.url, server.adminKey));
  const child = Bun.spawn([node, join(folder, "worker.mjs")], {
    env: { PATH: process.env.PATH },
    stderr: "inherit",
  });
  try {
    const workers = async () => (await server.api("/api/v1/workers")).body.workers;
    await until(async () => (await workers())[0]?.transport === "stream", {
      about: "the worker to register",
    });
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    const { runIds } = await client.emit("hello", { name: "you" });
    expect(await client.waitForRun(runIds[0]!)).toMatchObject({ status: "completed", output: "hello you" });
    child.kill("SIGTERM");
    await child.exited;
    expect(child.signalCode).toBe("SIGTERM");
    await until(async () => (await workers()).length === 0, { about: "the worker to leave the list" });
  } finally {
    child.kill("SIGKILL");
    await child.exited;
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
}, 120_000);
