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
    const again = client.previewResume(runId);
    expect(again).rejects.toThrow("the run is completed");
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
    expect(await client.previewResume(runId)).toMatchObject([
      { name: "room", runsAgain: true, patchLost: true },
      { name: "seat", runsAgain: true, patchLost: false },
    ]);
    deeds.length = 0;
    isOpen = true;
    await resumable(runId);
    await client.resumeRun(runId);
    expect(await ended(runId)).toMatchObject({ status: "completed" });
    expect(deeds).toEqual(["seat", "room"]);
  }, 120_000);

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
