import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  NonRetryableError,
  type Run,
  type SvcFunction,
  type Worker,
} from "../../src/sdk/index.ts";
import { type RunningProgram, startProgram } from "../support/process.ts";
import { sagaEnds, sagasOf } from "../support/sagas.ts";
import {
  engines,
  type SpawnedServer,
  spawnServer,
  startTestServer,
  type TestServer,
} from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const patience = { timeoutMs: 20_000 };

describe.each(engines)("runs are undone before they end, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { leaseMs: 1_500 } });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  });
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  async function work(functions: SvcFunction[], transport: "rest" | "stream" = "rest"): Promise<void> {
    const worker = createWorker({ client, functions, transport, handleSignals: false, log: silent });
    workers.push(worker);
    await worker.start();
  }
  const start = async (event: string, data: unknown = {}) => (await client.emit(event, data)).runIds[0]!;
  const ended = (runId: string) => client.waitForRun(runId, patience);
  const waiting = (runId: string) =>
    until(async () => (await client.getRun(runId)).pauseReason === "wait_event", {
      about: "the wait",
    });

  async function undoneAs(run: Run): Promise<string[]> {
    const steps = await client.getRunSteps(run.id);
    return steps.flatMap(({ type, name, status }) => (type === "compensate" ? `${name} ${status}` : []));
  }

  test("whatever ends them, and what was done is undone once", async () => {
    const deeds: string[] = [];
    await work(sagasOf((deed, runId, what) => void deeds.push(`${deed} ${runId} ${what}`)));
    const runs = await Promise.all(sagaEnds.map((end) => start(`saga.${end}`)));
    const cancelled = runs[sagaEnds.indexOf("cancel")]!;
    await waiting(cancelled);
    expect(await client.cancelRun(cancelled, { reason: "changed my mind" })).not.toMatchObject({
      status: "cancelled",
    });
    const codes = ["", "", "WAIT_TIMEOUT", "RUN_TIMEOUT", ""];
    for (const [at, runId] of runs.entries()) {
      const run = await ended(runId);
      expect(run.status).toBe(runId === cancelled ? "cancelled" : "failed");
      expect([sagaEnds[at], run.error?.code ?? ""]).toEqual([sagaEnds[at], codes[at]!]);
      expect([run.phase, run.compensationFailed]).toEqual([undefined, undefined]);
      const own = deeds.filter((deed) => deed.includes(runId));
      // The time of a run may be over before it comes to the room.
      const reserved =
        sagaEnds[at] === "timeout" ? own.filter((deed) => deed.startsWith("reserve")).length : 2;
      const things = ["seat", "room"].slice(0, reserved);
      expect(own).toEqual([
        ...things.map((thing) => `reserve ${runId} ${thing}`),
        ...things.reverse().map((thing) => `release ${runId} ${thing}`),
      ]);
    }
    expect(await ended(cancelled)).toMatchObject({ cancellationCause: "user" });
    expect(await client.cancelRun(cancelled)).toMatchObject({ status: "cancelled" });
  }, 120_000);

  test("a worker that is at a step when its run is cancelled hands it in, and it is undone with the rest", async () => {
    const deeds: string[] = [];
    let goOn = () => {};
    const held = new Promise<void>((done) => {
      goOn = done;
    });
    const make = (id: string, compensateOnCancel: boolean) =>
      createFunction({ id, event: id, compensateOnCancel }, async ({ step }) => {
        await step.run(
          "seat",
          async ({ signal }) => {
            deeds.push("reserve");
            await held;
            deeds.push(`told ${signal.aborted}`);
          },
          { compensate: () => deeds.push("release") },
        );
        await step.run("never", () => deeds.push("never"));
      });
    await work([make("at.step", true), make("as.it.is", false)], "stream");
    const kept = await start("as.it.is");
    await until(() => deeds.length === 1, { about: "the step" });
    expect(await client.cancelRun(kept)).toMatchObject({ status: "cancelled" });
    const runId = await start("at.step");
    await until(() => deeds.length === 2, { about: "the other step" });
    expect(await client.cancelRun(runId)).toMatchObject({ phase: "compensating" });
    // What undoes it goes on: another cancel changes nothing.
    expect(await client.cancelRun(runId)).toMatchObject({ phase: "compensating" });
    goOn();
    const run = await ended(runId);
    expect(run).toMatchObject({ status: "cancelled", cancellationCause: "user" });
    expect(await undoneAs(run)).toEqual(["compensate:seat completed"]);
    expect(deeds.filter((deed) => deed === "release")).toHaveLength(1);
    expect(deeds).not.toContain("never");
  }, 120_000);

  test("what could not be undone is counted and listed, and a resume keeps it", async () => {
    const deeds: string[] = [];
    let isRepaired = false;
    const stuck = createFunction(
      {
        id: "stuck",
        event: "stuck",
        retry: { maxAttempts: 1, initialDelayMs: 5 },
        onFailure: async ({ error, step }) => {
          await step.run("tell", () => deeds.push(`told of ${error.message}`));
        },
      },
      async ({ step }) => {
        await step.run("seat", () => deeds.push("reserve"), {
          compensate: () => {
            deeds.push("release");
            throw new NonRetryableError("the office is closed");
          },
        });
        if (!isRepaired) throw new Error("sold out");
      },
    );
    await work([stuck]);
    const runId = await start("stuck");
    expect(await ended(runId)).toMatchObject({ status: "failed", compensationFailed: 1 });
    expect(deeds).toEqual(["reserve", "release", "told of sold out"]);
    const { runs } = await client.listRuns({ compensationFailed: true });
    expect(runs.map((run) => run.id)).toEqual([runId]);
    isRepaired = true;
    expect(await client.previewResume(runId)).toMatchObject([
      { name: "seat", runsAgain: false, notUndone: true },
    ]);
    await client.resumeRun(runId);
    const run = await ended(runId);
    expect(run).toMatchObject({ status: "completed" });
    expect(run.compensationFailed).toBeUndefined();
    expect(deeds.filter((deed) => deed === "reserve")).toHaveLength(1);
    const again = client.resumeRun(runId);
    expect(again).rejects.toThrow("the run was resumed within the last two minutes");
  }, 120_000);
});

describe.each(engines)("sagas whose workers and servers are killed, on %s", (engine) => {
  let server: SpawnedServer;
  let client: Client;
  let program: RunningProgram | undefined;

  beforeAll(async () => {
    server = await spawnServer({ engine, settings: { leaseMs: 1_000 } });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  }, 90_000);
  afterAll(async () => {
    program?.signal("SIGKILL");
    await server.stop();
  });

  test("what they reserved is released, or listed as not undone", async () => {
    const journal = join(server.home.folder, "journal");
    const linesOf = async () => (await readFile(journal, "utf8")).trim().split("\n");
    const runProgram = (deeds: number, releaseMs = 0) => {
      const script = resolve(import.meta.dir, "../support/saga-worker.ts");
      const asked = [server.url, server.adminKey, journal, String(deeds), String(releaseMs)];
      program = startProgram([process.execPath, script, ...asked], server.home.folder);
      return program;
    };
    const first = runProgram(3);
    await until(async () => (await client.listFunctions()).length === sagaEnds.length, {
      about: "the functions",
    });
    const runs = await Promise.all(
      sagaEnds.map(async (end) => (await client.emit(`saga.${end}`, {})).runIds[0]!),
    );
    const cancelled = runs[sagaEnds.indexOf("cancel")]!;
    await first.exited;
    await runProgram(8).exited;
    const last = runProgram(0, 500);
    await until(async () => (await client.getRun(cancelled)).pauseReason === "wait_event", {
      about: "the wait",
    });
    await client.cancelRun(cancelled);
    const isReleased = async () => (await linesOf()).includes(`release ${cancelled} room`);
    await until(isReleased, { about: "a compensation to be under way" });
    await server.kill9();
    await server.restart();
    for (const runId of runs) await client.waitForRun(runId, { timeoutMs: 30_000 });
    last.signal("SIGKILL");

    const lines = await linesOf();
    for (const runId of runs) {
      const left = new Map<string, boolean>();
      for (const line of lines) {
        const [deed, of, what] = line.split(" ");
        if (of === runId) left.set(what!, deed === "reserve");
      }
      // A run whose time is over before its first deed has left nothing.
      const steps = await client.getRunSteps(runId);
      const listed = steps.filter(({ type, status }) => type === "compensate" && status === "failed");
      for (const [what, isLeft] of left)
        if (isLeft) expect(listed.map((step) => step.compensationFor)).toContain(what);
      expect((await client.getRun(runId)).compensationFailed ?? 0).toBe(listed.length);
    }
  }, 90_000);
});
