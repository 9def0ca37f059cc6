import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Client, createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const warnings: string[] = [];
const log = { debug() {}, info() {}, warn: (text: string) => void warnings.push(text), error() {} };
const leaseMs = 4_000;

describe.each(engines)("workers come and go, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const workers: Worker[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 20_000 } });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  });
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  const listed = async (): Promise<string[]> =>
    (await server.api("/api/v1/workers")).body.workers.map(({ id }: { id: string }) => id);
  /** A stream is over a moment after its worker. */
  const gone = () => until(async () => (await listed()).length === 0, { about: "the worker to be gone" });
  const path = (id: string, rest = "") => `/api/v1/workers/${id}${rest}`;

  async function begin(id: string, handler: () => unknown, transport: "rest" | "stream"): Promise<Worker> {
    const made = createFunction({ id: "greet", event: "greet" }, async () => handler());
    const worker = createWorker({
      client,
      functions: [made],
      workerId: id,
      transport,
      handleSignals: false,
      log,
    });
    workers.push(worker);
    await worker.start();
    return worker;
  }

  test.each(["rest", "stream"] as const)(
    "one that is drained over %s is nowhere",
    async (transport) => {
      const old = await begin("old", () => "old", transport);
      expect(await listed()).toEqual(["old"]);
      // A deploy: the new one says something else, and nobody calls that a conflict once the old one has left.
      await old.drain();
      await gone();
      await until(
        async () => {
          const sent = await server.rpc("SvcService", "Emit", { event: "greet", tellUnserved: true });
          return sent.body.unserved?.includes("greet");
        },
        { about: "a run that nobody serves" },
      );
      warnings.length = 0;
      const next = await begin("next", () => "next, another", transport);
      expect(warnings).toEqual([]);
      await next.drain();
      await gone();
    },
    120_000,
  );

  const asking = (instance: string) => ({ lease_ms: leaseMs, instance });
  const register = (functionId: string, id: string, instance: string, features = ["poll-end"]) =>
    server.api(path(id, "/register"), {
      body: { function_ids: [functionId], features, ...asking(instance) },
    });
  /** One exchange as a worker sends it, which the server holds while there is no job. */
  function poll(id: string, instance: string) {
    const over = new AbortController();
    const answer = fetch(`${server.url}${path(id, "/exchange")}`, {
      method: "POST",
      headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
      body: JSON.stringify({ available: 1, hold_ms: 20_000, reports: [], ...asking(instance) }),
      signal: over.signal,
    })
      .then((response) => response.json())
      .then(({ jobs }) => jobs as { run_id: string; job_id: string }[])
      .catch(() => undefined);
    return { answer, cut: () => over.abort() };
  }
  async function takeJob(functionId: string, id: string, instance: string) {
    await server.rpc("SvcService", "RegisterFunction", { id: functionId, triggers: [{ event: functionId }] });
    await register(functionId, id, instance);
    const polled = poll(id, instance);
    await client.emit(functionId, {});
    return (await polled.answer)![0]!;
  }
  const isQueued = async (runId: string) => (await client.getRun(runId)).status !== "running";
  const since = () => {
    const at = performance.now();
    return () => performance.now() - at;
  };

  const heldFor = (ms: number) => {
    const passed = since();
    return () => passed() > ms;
  };

  test("the goodbye of another process of the name changes nothing, nor that of nobody", async () => {
    await takeJob("parted", "named", "one");
    const leave = (id: string, instance: string) =>
      server.api(`${path(id)}?${new URLSearchParams({ ...asking(instance), lease_ms: `${leaseMs}` })}`, {
        method: "DELETE",
      });
    expect((await leave("named", "two")).status).toBe(200);
    expect((await leave("strange", "one")).status).toBe(200);
    expect(await listed()).toEqual(["named"]);
    expect((await leave("named", "one")).status).toBe(200);
    expect((await leave("named", "one")).status).toBe(200);
    expect(await listed()).toEqual([]);
  }, 120_000);

  test("the end of a held poll gives back what its worker had, long before its lease ends", async () => {
    const { run_id: runId } = await takeJob("left", "dies", "d");
    await register("left", "heir", "h");
    const ms = since();
    const heir = poll("heir", "h");
    // One that is cut before it is held says nothing; what is given back in between goes to the heir, who waits longer.
    for (let at = 0; at < 3; at++) {
      const held = poll("dies", "d");
      await until(heldFor(150), { about: "the poll to be held" });
      held.cut();
    }
    const given = (await heir.answer)!.map(({ run_id }) => run_id);
    expect(given).toEqual([runId]);
    expect(ms()).toBeLessThan(leaseMs * 0.9);
  }, 120_000);

  test("a cancel reaches the handler of a worker that polls with the answer to its next heartbeat", async () => {
    let isRaised = false;
    const made = createFunction({ id: "endless", event: "endless" }, async ({ step }) => {
      await step.run("wait", async ({ signal }) => {
        await new Promise((over) => signal.addEventListener("abort", over));
        isRaised = true;
      });
    });
    const worker = createWorker({ client, functions: [made], heartbeatMs: 1_000, handleSignals: false, log });
    workers.push(worker);
    await worker.start();
    const { runIds } = await client.emit("endless", {});
    await until(() => worker.activeJobs === 1, { about: "the job" });
    await client.cancelRun(runIds[0]!);
    await until(() => isRaised && worker.activeJobs === 0, { about: "the signal" });
    expect((await client.getRun(runIds[0]!)).status).toBe("cancelled");
    await worker.drain();
  }, 120_000);

  test("a sign of life keeps it", async () => {
    const { run_id: runId, job_id } = await takeJob("kept", "lives", "l");
    const ms = since();
    while (ms() < leaseMs / 2) {
      const held = poll("lives", "l");
      await until(heldFor(20), { about: "the poll to be held" });
      held.cut();
      const beat = await server.api(path("lives", "/heartbeat"), {
        body: { jobs: [{ job_id }], ...asking("l") },
      });
      expect(beat.status).toBe(200);
      expect(await isQueued(runId)).toBe(false);
    }
  }, 120_000);
});
