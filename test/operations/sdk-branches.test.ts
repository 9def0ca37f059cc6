import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type HandlerContext,
  type Worker,
} from "../../src/sdk/index.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
type Work = (context: HandlerContext) => Promise<unknown>;
const transports = ["rest", "stream"] as const;

describe.each(engines)("branches that wait, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { leaseMs: 60_000 } });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  }, 60_000);
  afterAll(() => server.stop());

  const workerOf = async (
    works: Record<string, Work>,
    { transport = "rest" as (typeof transports)[number], workerId = "" } = {},
  ): Promise<Worker> => {
    const worker = createWorker({
      ...{ client, handleSignals: false, log: silent, transport, ...(workerId && { workerId }) },
      functions: Object.entries(works).map(([id, work]) =>
        createFunction({ id, event: `${id}.asked`, retry: { maxAttempts: 2, initialDelayMs: 10 } }, work),
      ),
    });
    await worker.start();
    return worker;
  };
  const begin = async (id: string) => (await client.emit(`${id}.asked`, {})).runIds[0]!;
  const stepsOf = async (runId: string) =>
    (await server.rpc("SvcService", "GetRunSteps", { runId })).body.steps ?? [];
  const waiting = (runId: string, count: number) =>
    until(
      async () => {
        const steps = await stepsOf(runId);
        return steps.length === count && steps;
      },
      { about: `${count} waits to be stored` },
    );

  describe.each(transports)("over %s", (transport) => {
    const name = (text: string) => `${text}-${transport}`;

    test("sleeps, children and retries run at the same time, and each result comes to its branch", async () => {
      const [id, child] = [name("wide"), name("child")];
      let tries = 0;
      const worker = await workerOf(
        {
          [child]: async ({ step, event }) => {
            await step.waitForEvent(`${child}.go`);
            return (event.data as { n: number }).n;
          },
          [id]: ({ step }) =>
            Promise.all([
              step.map("each", [1, 2, 3, 4, 5], (n) => step.invoke<unknown>(child, { input: { n } })),
              step.sleep("nap", "1ms"),
              step.run("tried", () => (tries++ < 1 ? Promise.reject(new Error("once")) : "ok"), {
                retry: { maxAttempts: 2, delay: "6s" },
              }),
              step.waitForEvent(`${id}.answer`),
            ]),
        },
        { transport },
      );
      try {
        const runId = await begin(id);
        // All of them stand before any is met.
        await until(
          async () => {
            const asked = { functionId: child, statuses: ["RUN_STATUS_PAUSED"] };
            const { runs = [] } = (await server.rpc("SvcService", "ListRuns", asked)).body;
            return runs.length === 5;
          },
          { about: "five children to wait" },
        );
        await client.emit(`${child}.go`, {});
        await client.emit(`${id}.answer`, { answer: 42 });
        const { output } = await client.waitForRun(runId, { timeoutMs: 60_000 });
        expect(output).toMatchObject([[1, 2, 3, 4, 5], null, "ok", { data: { answer: 42 } }]);
      } finally {
        await worker.drain({ timeoutMs: 2_000 });
      }
    }, 120_000);

    test("a race has one winner, whoever executes it, and its loser is dropped", async () => {
      const id = name("race");
      const winners: unknown[] = [];
      const works: Record<string, Work> = {
        async [id]({ step, run }) {
          const first = await Promise.race([
            step.waitForEvent(`${id}.left`).then(() => "left"),
            step.waitForEvent(`${id}.right`).then(() => "right"),
          ]);
          winners.push(first);
          await step.sleep("behind", "1ms");
          if (run.attempt === 1) throw new Error("once more");
          return first;
        },
      };
      const one = await workerOf(works, { transport, workerId: `${id}-1` });
      const runId = await begin(id);
      await waiting(runId, 2);
      await one.drain({ timeoutMs: 2_000 });
      await client.emit(`${id}.right`, {});
      await client.emit(`${id}.left`, {});
      const other = await workerOf(works, { transport, workerId: `${id}-2` });
      try {
        const { output } = await client.waitForRun(runId, { timeoutMs: 60_000 });
        expect(output).toBe("right");
        expect(new Set(winners)).toEqual(new Set(["right"]));
      } finally {
        await other.drain({ timeoutMs: 2_000 });
      }
    }, 120_000);
  });

  test("each chain of a Promise.all looks behind what it was handed itself", async () => {
    const id = "chains";
    let isOtherOver = false;
    const works: Record<string, Work> = {
      async [id]({ step }) {
        const chain = async () => {
          await step.waitForEvent(`${id}.x`);
          await step.run("slow", () => until(() => isOtherOver, { about: "the other chain" }));
          return step.waitForEvent(`${id}.y`, { timeout: "1h" });
        };
        const other = async () => {
          const met = await step.waitForEvent(`${id}.z`);
          isOtherOver = true;
          return met;
        };
        return Promise.all([chain(), other()]);
      },
    };
    const first = await workerOf(works, { workerId: `${id}-1` });
    const runId = await begin(id);
    await waiting(runId, 2);
    await first.drain({ timeoutMs: 2_000 });
    for (const name of ["x", "y", "z"]) await client.emit(`${id}.${name}`, {});
    // Both come with one job: the slow step ends only once it has handed over the second.
    const met = (step: { status: string }) => step.status === "STEP_STATUS_COMPLETED";
    await until(async () => (await stepsOf(runId)).filter(met).length === 2, { about: "x and z to be met" });
    const second = await workerOf(works, { workerId: `${id}-2` });
    try {
      const { output } = await client.waitForRun(runId, { timeoutMs: 60_000 });
      expect((output as { name: string }[]).map(({ name }) => name)).toEqual([`${id}.y`, `${id}.z`]);
    } finally {
      await second.drain({ timeoutMs: 2_000 });
    }
  }, 120_000);

  test("an older worker that takes the run over waits for one of them, and gives it back", async () => {
    const id = "handed";
    const works: Record<string, Work> = {
      [id]: ({ step }) =>
        Promise.all([
          step.sleep("nap", "1h"),
          ...["a", "b", "c"].map((one) => step.waitForEvent(`${id}.${one}`)),
        ]),
    };
    const first = await workerOf(works, { workerId: "handed-1" });
    const runId = await begin(id);
    await waiting(runId, 4);
    await first.drain({ timeoutMs: 2_000 });
    const old = pullWorker(server, "handed-old");
    await old.register(id);
    await client.emit(`${id}.b`, {});
    const [job] = await until(
      async () => {
        const jobs = await old.poll();
        return jobs.length > 0 && jobs;
      },
      { about: "the older worker to be handed the run" },
    );
    const rows = job!.completed_steps.map((step) => [step.name, step.status]);
    expect(rows).toEqual([[`${id}.b`, "completed"]]);
    const step_id = stepIdOf(job!, "nap");
    const later = new Date(Date.now() + 7_200_000).toISOString();
    const given = await old.report(job!, {
      status: "yielded",
      yield: { step_id, type: "sleep", until: later },
    });
    expect(given.status).toBe(200);
    await server.rpc("SvcService", "ResumeRun", { runId, skipSleep: true });
    const last = await workerOf(works, { workerId: "handed-2" });
    try {
      await client.emit(`${id}.a`, {});
      await client.emit(`${id}.c`, {});
      const { status, output } = await client.waitForRun(runId, { timeoutMs: 60_000 });
      expect([status, (output as unknown[]).length]).toEqual(["completed", 4]);
    } finally {
      await last.drain({ timeoutMs: 2_000 });
    }
  }, 120_000);
});
