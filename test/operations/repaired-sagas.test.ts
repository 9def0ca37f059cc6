import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  NonRetryableError,
  type SvcFunction,
  type Worker,
} from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines)("a run that was undone and is repaired, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];
  const warnings: string[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  });
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  async function begin(made: SvcFunction, data: unknown = {}): Promise<string> {
    const log = { ...silent, warn: (text: string) => void warnings.push(text) };
    const worker = createWorker({ client, functions: [made], handleSignals: false, log });
    workers.push(worker);
    await worker.start();
    const { runIds } = await client.emit(made.id, data);
    return runIds[0]!;
  }
  const ended = (runId: string) => client.waitForRun(runId, { timeoutMs: 20_000 });
  const stepOf = async (runId: string, name: string) =>
    (await client.getRunSteps(runId)).find((step) => step.name === name)!;
  /** As if two minutes had passed. */
  const resumable = (runId: string) =>
    server.running.domain.store.write((session) =>
      session.run(sql`DELETE FROM resumes WHERE run_id = ${runId}`),
    );
  const once = { maxAttempts: 1, initialDelayMs: 5 };

  test("keeps what a person set, runs again what was undone, and apologizes once", async () => {
    const deeds: string[] = [];
    const made = createFunction(
      {
        ...{ id: "order", event: "order", retry: once, nondeterminism: "fail" },
        onFailure: async ({ step }) => {
          await step.run("apology", () => deeds.push("apology"));
        },
      },
      async ({ step }) => {
        await step.run("note", () => deeds.push("note"));
        await step.run("seat", () => deeds.push("seat"), { compensate: () => deeds.push("undo seat") });
        await step.run("log", () => deeds.push("log"));
        const paid = await step.run("pay", () => {
          deeds.push("pay");
          throw new NonRetryableError("the bank is closed");
        });
        await step.sleep("settle", "10ms");
        return paid;
      },
    );
    const runId = await begin(made);
    expect(await ended(runId)).toMatchObject({ status: "failed" });
    expect(deeds).toEqual(["note", "seat", "log", "pay", "undo seat", "apology"]);
    await client.patchStep((await stepOf(runId, "pay")).id, { by: "hand" });

    const preview = await client.previewResume(runId);
    const flags = ["runsAgain", "patchLost", "notUndone", "builtOnAgain"] as const;
    expect(preview.map((step) => [step.name, step.status, ...flags.filter((flag) => step[flag])])).toEqual([
      ["note", "completed"],
      ["seat", "completed", "runsAgain"],
      ["log", "completed", "builtOnAgain"],
      ["pay", "completed", "builtOnAgain"],
    ]);
    deeds.length = 0;
    warnings.length = 0;
    await client.resumeRun(runId);
    expect(await ended(runId)).toMatchObject({ status: "completed", output: { by: "hand" } });
    // The sleep lets the handler come over its steps once more: their new order is no deviation.
    expect(deeds).toEqual(["seat"]);
    expect(warnings).toEqual([]);
    expect(client.previewResume(runId)).rejects.toThrow("the run is completed");
  }, 120_000);

  test("of a patch and an undoing the later one counts; what fails again is undone again", async () => {
    const deeds: string[] = [];
    let isOpen = false;
    const made = createFunction({ id: "trip", event: "trip", retry: once }, async ({ step }) => {
      for (const name of ["seat", "room"])
        await step.run(name, () => deeds.push(name), {
          compensate: (at) => step.run(`tell ${name}`, () => deeds.push(`undo ${name} ${at}`)),
        });
      if (!isOpen) throw new NonRetryableError("sold out");
    });
    const runId = await begin(made);
    expect(await ended(runId)).toMatchObject({ status: "failed" });
    expect(deeds).toEqual(["seat", "room", "undo room 2", "undo seat 1"]);
    await client.patchStep((await stepOf(runId, "room")).id, 77);
    deeds.length = 0;
    await client.resumeRun(runId);
    expect(await ended(runId)).toMatchObject({ status: "failed" });
    // The patched room was kept, and is undone with its new output.
    expect(deeds).toEqual(["seat", "undo room 77", "undo seat 1"]);
    // That undoing came after the patch.
    expect(client.previewResume(runId)).rejects.toThrow("within the last two minutes");
    await resumable(runId);
    expect(await client.previewResume(runId)).toMatchObject([
      { name: "seat", runsAgain: true, patchLost: false },
      { name: "room", runsAgain: true, patchLost: true },
    ]);
    deeds.length = 0;
    isOpen = true;
    await client.resumeRun(runId);
    expect(await ended(runId)).toMatchObject({ status: "completed" });
    expect(deeds).toEqual(["seat", "room"]);
  }, 120_000);

  test("after a repair a resume from a step goes by the order of the handler", async () => {
    const deeds: string[] = [];
    let fails = true;
    const made = createFunction({ id: "again", event: "again", retry: once }, async ({ step }) => {
      for (const name of ["note", "seat", "log"])
        await step.run(
          name,
          () => deeds.push(name),
          name === "seat" ? { compensate: () => deeds.push("undo") } : {},
        );
      // A name as the undoing has them is the user's own.
      await step.map("compensate", [1], (n) => step.run(String(n), () => deeds.push("mapped")));
      if (fails) throw new NonRetryableError("not yet");
    });
    const runId = await begin(made);
    await ended(runId);
    deeds.length = 0;
    await client.resumeRun(runId);
    await ended(runId);
    expect(deeds).toEqual(["seat", "undo"]);
    await resumable(runId);
    const names = async (fromStep: string) =>
      (await client.previewResume(runId, { fromStep })).flatMap((step) => (step.runsAgain ? step.name : []));
    expect(await names("seat")).toEqual(["seat", "log", "1"]);
    expect(await names("log")).toEqual(["seat", "log", "1"]);
    await client.patchStep((await stepOf(runId, "seat")).id, 1);
    expect(await names("log")).toEqual(["log", "1"]);
    deeds.length = 0;
    fails = false;
    await client.resumeRun(runId, { fromStep: "log" });
    expect(await ended(runId)).toMatchObject({ status: "completed" });
    expect(deeds).toEqual(["log", "mapped"]);
  }, 60_000);

  test("the end of the child of before is not that of the step that runs again", async () => {
    const held: { id: string; end: () => void }[] = [];
    const child = createFunction({ id: "slow-child" }, async ({ run, step }) =>
      step.run("hold", () => new Promise((done) => held.push({ id: run.id, end: () => done(run.id) }))),
    );
    const parent = createFunction({ id: "parent", event: "parent", retry: once }, async ({ step }) =>
      step.invoke(child),
    );
    const served = createWorker({ client, functions: [child], handleSignals: false, log: silent });
    workers.push(served);
    await served.start();
    const runId = await begin(parent);
    await until(() => held.length === 1, { about: "the first child" });
    const [invoke] = await client.getRunSteps(runId);
    await client.resumeRun(runId, { fromStep: invoke!.stepId });
    await until(() => held.length === 2, { about: "the second child" });
    const { store } = server.running.domain;
    const known = sql`SELECT 1 AS found FROM steps WHERE run_id = ${runId} AND child_run_id = ${held[1]!.id}`;
    await until(() => store.one(known), { about: "its id" });
    held[0]!.end();
    await client.waitForRun(held[0]!.id, { timeoutMs: 20_000 });
    await server.running.tick("runs.children");
    expect((await client.getRun(runId)).status).not.toBe("completed");
    held[1]!.end();
    expect(await ended(runId)).toMatchObject({ status: "completed", output: held[1]!.id });
  }, 60_000);

  test("a step that runs again has a child, an event and a message of its own", async () => {
    const child = createFunction({ id: "child" }, async ({ event }) => event.data);
    const heard = createFunction({ id: "heard", event: "sent" }, async () => {});
    let isClosed = true;
    const failing = createFunction({ id: "sender", event: "sender", retry: once }, async ({ step }) => {
      await step.invoke("child", { input: { n: 1 } });
      await step.emit("sent", { n: 1 });
      await step.publish("told", { n: 1 });
      await step.invoke("child", { input: { n: 2 } });
      if (isClosed) throw new NonRetryableError("closed");
    });
    const served = createWorker({ client, functions: [child, heard], handleSignals: false, log: silent });
    workers.push(served);
    await served.start();
    const runId = await begin(failing);
    expect(await ended(runId)).toMatchObject({ status: "failed" });
    isClosed = false;
    const first = (await client.getRunSteps(runId)).filter(({ type }) => type === "invoke_function");
    await client.resumeRun(runId, { fromStep: first[0]!.stepId });
    expect(await ended(runId)).toMatchObject({ status: "completed" });
    await until(async () => (await client.listRuns({ functionId: "heard" })).runs.length === 2, {
      about: "the second event",
    });
    const children = (await client.listRuns({ functionId: "child" })).runs;
    expect(children).toHaveLength(4);
    const { store } = server.running.domain;
    const said = await store.all(sql`SELECT position FROM topic_messages WHERE topic = 'told'`);
    expect(said).toHaveLength(2);
  }, 120_000);
});
