import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type SvcFunction,
  serve,
  type Worker,
} from "../../src/sdk/index.ts";
import { startProgram } from "../support/process.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const patience = { timeoutMs: 20_000 };
const signingKey = "k".repeat(40);

describe.each(engines)("steps that are tried by themselves, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];

  beforeAll(async () => {
    server = await startTestServer({
      engine,
      settings: { leaseMs: 1_000, pushAllowPrivate: ["127.0.0.0/8"], signingKey },
    });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  });
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  async function work(...functions: SvcFunction[]): Promise<void> {
    const worker = createWorker({ client, functions, handleSignals: false, log: silent });
    workers.push(worker);
    await worker.start();
  }
  const start = async (event: string, data: unknown = {}) => (await client.emit(event, data)).runIds[0]!;
  const ended = (runId: string) => client.waitForRun(runId, patience);

  test("a worker that is killed between two tries loses none, and its run no attempt", async () => {
    const journal = join(server.home.folder, "journal");
    const script = resolve(import.meta.dir, "../support/retrying-worker.ts");
    const run = (transport: string) =>
      startProgram(
        [process.execPath, script, server.url, server.adminKey, journal, transport],
        server.home.folder,
      );
    const first = run("rest");
    await until(async () => (await client.listFunctions()).length === 1, { about: "the function" });
    const runId = await start("stubborn");
    const stepOf = async () => (await client.getRunSteps(runId))[0];
    await until(async () => (await stepOf())?.tries === 3, { about: "the third try" });
    first.signal("SIGKILL");
    await first.exited;
    expect(await stepOf()).toMatchObject({ status: "failed", tries: 3, maxTries: 4 });
    const retryAt = Date.parse((await stepOf())!.retryAt!);
    const second = run("stream");
    expect(await ended(runId)).toMatchObject({ status: "completed", attempt: 1, output: "charged" });
    second.signal("SIGKILL");
    expect((await readFile(journal, "utf8")).trim().split("\n")).toEqual([
      ...["entered", "try 1", "try 2", "try 3", "entered", "try 4"],
    ]);
    const step = (await stepOf())!;
    expect(Date.parse(step.startedAt!)).toBeGreaterThanOrEqual(retryAt - 50);
    expect([step.status, step.tries, step.retryAt]).toEqual(["completed", undefined, undefined]);
  }, 120_000);

  test("an endpoint is called again when the next try is due", async () => {
    const tries: number[] = [];
    const charge = ({ attempt }: { attempt: number }) => {
      tries.push(attempt);
      if (attempt === 1) throw new Error("no");
      return "charged";
    };
    const pushed = createFunction({ id: "pushed", event: "pushed" }, ({ step }) =>
      step.run("charge", charge, { retry: { delay: 60 } }),
    );
    const handle = serve({ client, functions: [pushed], signingKey, log: silent });
    const endpoint = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: handle });
    try {
      await handle.register(`http://127.0.0.1:${endpoint.port}/`);
      const run = await ended(await start("pushed"));
      expect(run).toMatchObject({ status: "completed", attempt: 1, output: "charged" });
      expect(tries).toEqual([1, 2]);
    } finally {
      await endpoint.stop(true);
    }
  }, 120_000);

  test("after its last try it ends the run, and a resume of the run tries it anew", async () => {
    const tries: number[] = [];
    let isRepaired = false;
    await work(
      createFunction({ id: "doomed", event: "doomed" }, ({ step }) =>
        step.run(
          "charge",
          ({ attempt }) => {
            tries.push(attempt);
            if (!isRepaired) throw Object.assign(new Error("no"), { code: "CARD" });
          },
          { retry: { maxAttempts: 2, delay: 0 } },
        ),
      ),
    );
    const runId = await start("doomed");
    const run = await ended(runId);
    expect(run).toMatchObject({ status: "failed", attempt: 1 });
    expect(run.error).toEqual({
      ...{ name: "StepFailedError", code: "CARD", message: "step charge failed 2 times: no" },
      ...{ retryable: false, cause: { code: "CARD", message: "no" } },
    });
    expect((await client.getRunSteps(runId))[0]).toMatchObject({ status: "failed", tries: 2, maxTries: 2 });
    isRepaired = true;
    await client.resumeRun(runId);
    expect(await ended(runId)).toMatchObject({ status: "completed" });
    expect(tries).toEqual([1, 2, 1]);
  }, 120_000);

  test("between two tries it is paused, resumed with what is left of the delay, cancelled and undone", async () => {
    const deeds: string[] = [];
    await work(
      createFunction({ id: "patient", event: "patient" }, async ({ step }) => {
        await step.run("seat", () => 1, { compensate: () => deeds.push("seat undone") });
        await step.run(
          "charge",
          () => {
            deeds.push("tried");
            throw new Error("no");
          },
          { retry: { maxAttempts: 9, delay: "1h" }, compensate: () => deeds.push("charge undone") },
        );
      }),
    );
    const runId = await start("patient");
    const waiting = () =>
      until(async () => (await client.getRun(runId)).status === "waiting", { about: "the next try" });
    const retryAt = async () =>
      (await client.getRunSteps(runId)).find(({ name }) => name === "charge")?.retryAt;
    await waiting();
    const at = await retryAt();
    await client.pauseRun(runId);
    expect(await client.getRun(runId)).toMatchObject({ status: "paused", pauseReason: "injection" });
    await client.resumeRun(runId);
    await waiting();
    expect([await retryAt(), (await client.getRun(runId)).attempt]).toEqual([at, 1]);
    await client.cancelRun(runId);
    expect(await ended(runId)).toMatchObject({ status: "cancelled" });
    expect(deeds).toEqual(["tried", "seat undone"]);
  }, 120_000);

  test("any function is invoked, one with event triggers too", async () => {
    const billing = createFunction<{ due: { total: number } }, "due", string>(
      { id: "billing", event: "due" },
      ({ event }) => `${event.data.total} EUR`,
    );
    const parent = createFunction({ id: "parent", event: "parent" }, ({ step }) =>
      step.invoke(billing, { input: { total: 2 } }),
    );
    await work(billing, parent);
    expect(await ended(await start("parent"))).toMatchObject({ status: "completed", output: "2 EUR" });
  }, 120_000);

  test("tries that make no sense are refused by their field", async () => {
    const worker = pullWorker(server, "by-hand");
    await client.registerFunction({ id: "raw", triggers: [{ event: "raw" }] });
    await worker.register("raw");
    const runId = await start("raw");
    const [job] = await worker.poll();
    const step = { id: stepIdOf(job!, "charge"), name: "charge", type: "invoke", status: "failed" };
    const report = async (more: object) => {
      const { status, body } = await worker.report(job!, {
        status: "progress",
        steps: [{ ...step, ...more }],
      });
      return [status, body?.field];
    };
    expect(await report({ tries: 0 })).toEqual([400, "steps[0].tries"]);
    expect(await report({ tries: 1, max_tries: 101 })).toEqual([400, "steps[0].max_tries"]);
    expect(await report({ tries: 1, retry_in_ms: -1 })).toEqual([400, "steps[0].retry_in_ms"]);
    const { status, body } = await worker.leave(job!, "charge", { type: "retry_step" });
    expect([status, body.field]).toEqual([400, "yield.duration_ms"]);
    expect((await report({ tries: 1, max_tries: 2, retry_in_ms: 60 }))[0]).toBe(200);
    expect((await worker.leave(job!, "charge", { type: "retry_step", duration_ms: 60 })).status).toBe(200);
    expect((await client.getRun(runId)).status).toBe("waiting");
    const again = await until(async () => (await worker.poll())[0], { about: "the next try" });
    expect(again).toMatchObject({ attempt: 1, completed_steps: [{ step_id: step.id, status: "failed" }] });
    const told = again!.completed_steps[0]!.error;
    const error = typeof told === "string" ? JSON.parse(told) : told;
    expect(error).toMatchObject({ tries: 1, max_tries: 2, retry_in_ms: 0 });
    await worker.complete(again!);
  }, 120_000);
});
