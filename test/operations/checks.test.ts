import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type SvcFunction,
  serve,
  type Worker,
} from "../../src/sdk/index.ts";
import { type LoggedLine, loggedLines } from "../support/logged.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

const waiting = { deadlineMs: 20_000 };

describe.each(engines)("checks on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  const { log: serverLog, lines: serverLines } = loggedLines();
  const workers: Worker[] = [];

  const rpc = (method: string, body: unknown) => server.rpc("SvcService", method, body);
  const start = async (one: SvcFunction, transport: "rest" | "stream" = "rest") => {
    const { log, lines } = loggedLines();
    const worker = createWorker({
      ...{ client, functions: [one], transport, heartbeatMs: 250, handleSignals: false, log },
    });
    workers.push(worker);
    await worker.start();
    return { worker, lines };
  };

  beforeAll(async () => {
    server = await startTestServer({
      engine,
      log: serverLog,
      settings: { pollHoldMs: 200, pushAllowPrivate: ["127.0.0.0/8"] },
    });
    client = createClient({ url: server.url, apiKey: server.adminKey });
  });
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    await server.stop();
  });

  describe("definitions", () => {
    const wrong: [string, object][] = [
      ["triggers[1].cron", { triggers: [{ event: "e" }, { cron: "61 * * * *" }] }],
      ["triggers[0].cron", { triggers: [{ cron: "0 0 30 2 *" }] }],
      ["triggers[0].cron", { triggers: [{ cron: "TZ=Mars/Base * * * * *" }] }],
      ["cron", { triggers: [{ cron: 5 }] }],
      ["triggers[0].expression", { triggers: [{ event: "e", expression: "data. ==" }] }],
      ["priority", { priority: "data +" }],
      ["idempotency.key", { idempotency: { key: "1 +" } }],
      ["cancelOn[0].match", { cancelOn: [{ event: "e", match: "data ==" }] }],
      ["concurrency.key", { concurrency: { limit: 1, key: "data.a == 1" } }],
      ["debounce.key", { debounce: { periodMs: 1_000, key: "a..b" } }],
      ["throttle.key", { throttle: { limit: 1, periodMs: 1_000, key: "items[0]" } }],
      ["rateLimit.key", { rateLimit: { limit: 1, periodMs: 1_000, key: "." } }],
      ["singleton.key", { singleton: { mode: "skip", key: "a b" } }],
      ["actorKey", { actorKey: "x".repeat(513) }],
      ["timeoutMs", { timeoutMs: "5m" }],
      ["timeoutMs", { timeoutMs: -1 }],
      ["debounce.periodMs", { debounce: { periodMs: 10 } }],
      ["retry.maxDelayMs", { retry: { maxAttempts: 1, maxDelayMs: 604_800_001 } }],
      ["startWithinMs", { startWithinMs: 1 }],
      ["nondeterminism", { nondeterminism: "panic" }],
    ];
    test("of our SDK are refused by the field", async () => {
      for (const [field, options] of wrong) {
        const refused = await client
          .registerFunction({ id: "wrong", ...options } as never)
          .catch((error: unknown) => error);
        const { status, field: named } = refused as { status?: number; field?: string };
        expect({ options, status, named }).toEqual({ options, status: 400, named: field });
      }
      const full = { triggers: [{ cron: "TZ=Europe/Berlin 0 9 * * 1" }], actorKey: "data.a-b.0.$c" };
      expect((await client.registerFunction({ id: "right", ...full })).created).toBeTrue();
    });

    test("of older clients keep the invalid frame", async () => {
      const triggers = [{ cron: "61 * * * *" }];
      expect((await rpc("RegisterFunction", { id: "older", triggers, actorKey: "a..b" })).status).toBe(200);
      for (const loop of ["cluster.lead", "schedules.tick"]) await server.running.tick(loop);
      const told = ({ event, fields }: LoggedLine) =>
        event === "cron.invalid" && fields.functionId === "older";
      await until(() => serverLines.some(told), { ...waiting, about: "the frame" });
    });
  });

  test("a run that no connected worker serves says so, everywhere, until one comes", async () => {
    const socket = await openSocket(server.url, { key: server.adminKey });
    const { subscriptionId } = await socket.subscribe("system.function.alone.unserved");
    await client.registerFunction({ id: "alone", triggers: [{ event: "alone" }] });
    const first = await client.emit("alone", {});
    expect(first.unserved).toEqual(["alone"]);
    expect((await client.emitMany([{ event: "alone", data: {} }]))[0]?.unserved).toEqual(["alone"]);
    const [frame] = await socket.wait("event", 1);
    expect(frame).toMatchObject({
      subscriptionId,
      topic: "system.function.alone.unserved",
      data: { id: "alone" },
    });
    socket.close();
    const [runId = ""] = first.runIds;
    expect((await client.getRun(runId)).blockingReason).toBe("no_worker");
    expect((await client.listRuns({ functionId: "alone" })).runs[0]?.blockingReason).toBe("no_worker");
    expect((await client.getFunction("alone")).unserved).toBeTrue();

    const worker = pullWorker(server, "late");
    await worker.register("alone");
    expect((await client.getRun(runId)).blockingReason).toBeUndefined();
    expect((await client.getFunction("alone")).unserved).toBeUndefined();
    expect((await client.emit("alone", {})).unserved).toBeUndefined();
    const looked = (text: ReturnType<typeof sql>) =>
      server.running.domain.store
        .write((session) => session.run(text))
        .then(() => server.running.tick("workers.serving"));
    await looked(sql`UPDATE workers SET last_heartbeat_at = last_heartbeat_at - 100000 WHERE id = 'late'`);
    expect((await client.emit("alone", {})).unserved).toEqual(["alone"]);
    // A foreign id is no worker's: what one environment serves says nothing of another.
    const { id } = await server.running.domain.tenancy.createEnvironment({ orgId: "org_b", name: "b" });
    const scope = { orgId: "org_b", environmentId: id, name: "k", roleIds: ["role_admin"] };
    const { key } = await server.running.domain.keys.create(scope);
    const other = createClient({ url: server.url, apiKey: key });
    await other.registerFunction({ id: "alone", triggers: [{ event: "alone" }] });
    expect((await other.emit("alone", {})).unserved).toEqual(["alone"]);
    // Where workers have more different lists than are read, nothing is said.
    const columns = sql.raw(`environment_id, id, hostname, function_ids, labels, sdk, runtime, transport,
      max_concurrent, active_jobs, registered_at, last_heartbeat_at`);
    const rows = Array.from({ length: 101 }, (_, n) => {
      const now = sql.bigint(Date.now());
      return sql`(${id}, ${`w${n}`}, '', ${`["f${n}"]`}, '{}', '', '', 'rest', 1, 0, ${now}, ${now})`;
    });
    await looked(sql`INSERT INTO workers (${columns}) VALUES ${sql.join(rows, ", ")}`);
    expect((await other.emit("alone", {})).unserved).toBeUndefined();
  });

  test("workers that serve different definitions are both told, and shown", async () => {
    const older = createFunction({ id: "twice", event: "twice" }, () => 1);
    const newer = createFunction({ id: "twice", event: "twice" }, () => 2);
    const first = await start(older);
    const equal = await start(older, "stream");
    const second = await start(newer, "stream");
    const told = ({ lines }: { lines: typeof serverLines }) =>
      lines.filter(({ severity, fields }) => severity === "warn" && fields.functionId === "twice").length;
    // What the first ones are told stands in memory since then.
    await server.running.tick("workers.serving");
    for (const one of [first, equal, second])
      await until(() => told(one) === 1, { ...waiting, about: "the worker's line" });
    expect(serverLines).toContainEqual(
      expect.objectContaining({
        event: "worker.definition_conflict",
        fields: expect.objectContaining({ workerId: second.worker.id, functionIds: ["twice"] }),
      }),
    );
    const { body } = await server.api("/api/v1/workers");
    const shown = (body.workers as { id: string; definition_conflicts?: string[] }[]).filter(
      ({ definition_conflicts }) => definition_conflicts,
    );
    expect(shown.map(({ id }) => id).toSorted()).toEqual(
      [first, equal, second].map(({ worker }) => worker.id).toSorted(),
    );
    expect((await client.getFunction("twice")).definitionsDiffer).toBeTrue();
    second.worker.stop();
    await until(async () => !(await client.getFunction("twice")).definitionsDiffer, {
      ...waiting,
      about: "one definition",
    });
    expect(told(first)).toBe(1);
  });

  test("what a worker says of its definitions is checked", async () => {
    const register = (definition_hashes: unknown) =>
      server.api("/api/v1/workers/bad/register", { body: { function_ids: ["f"], definition_hashes } });
    for (const hashes of [{ g: "1" }, { f: "" }, { f: "a b" }, { f: "x".repeat(65) }, { f: 5 }, [], "x"])
      expect([hashes, (await register(hashes)).status]).toEqual([hashes, 400]);
    expect((await register({ f: "abc" })).status).toBe(200);
  });

  describe("steps that a handler does not come to again", () => {
    const napping = (name: string, options: object = {}) =>
      createFunction({ id: "changed", event: "changed", ...options }, async ({ step }) => {
        await step.run(name, () => name);
        await step.waitForEvent("changed.on", { timeout: "1h" });
        return step.run(`${name}-end`, () => 1);
      });
    const begin = async (one: SvcFunction) => {
      const { worker } = await start(one);
      const [runId = ""] = (await client.emit("changed", {})).runIds;
      await until(async () => (await client.getRun(runId)).status === "paused", {
        ...waiting,
        about: "the wait",
      });
      worker.stop();
      return runId;
    };

    test("are shown on the run, and told once", async () => {
      const runIds = [await begin(napping("charge")), await begin(napping("charge"))];
      const { worker, lines } = await start(napping("charge-card"), "stream");
      await client.emit("changed.on", {});
      for (const runId of runIds) {
        const run = await client.waitForRun(runId);
        expect(run).toMatchObject({ status: "completed" });
        expect(run.nondeterminism).toEqual([
          { stepId: `${runId}:charge:0`, name: "charge", kind: "unreached" },
        ]);
      }
      const { runs } = await client.listRuns({ functionId: "changed" });
      expect(runs.every(({ nondeterminism }) => nondeterminism?.length === 1)).toBeTrue();
      expect(lines.filter(({ event }) => event.includes("did not come its way"))).toHaveLength(1);
      expect(serverLines.filter(({ event }) => event === "run.nondeterminism")).toHaveLength(1);
      worker.stop();
    });

    test("fail the run where that is asked for", async () => {
      const runId = await begin(napping("charge", { nondeterminism: "fail" }));
      await start(napping("charge-card", { nondeterminism: "fail" }));
      await client.emit("changed.on", {});
      const run = await client.waitForRun(runId);
      expect(run).toMatchObject({ status: "failed", error: { code: "NONDETERMINISM" } });
      expect(run.nondeterminism).toHaveLength(1);
      expect((await client.getFunction("changed")).nondeterminism).toBe("fail");
    });

    test("are told by endpoints too, which are no worker and lack none", async () => {
      let name = "charge";
      const called = createFunction({ id: "called", event: "called" }, async ({ step }) => {
        await step.run(name, () => 1);
        await step.waitForEvent("called.on", { timeout: "1h" });
      });
      const handler = serve({ client, functions: [called], signingKey: null, log: loggedLines().log });
      const endpoint = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: handler });
      try {
        await handler.register(endpoint.url.href);
        const { runIds, unserved } = await client.emit("called", {});
        const [runId = ""] = runIds;
        expect(unserved).toBeUndefined();
        const isWaiting = async () => (await client.getRun(runId)).status === "paused";
        await until(isWaiting, { ...waiting, about: "the wait" });
        name = "charge-card";
        await client.emit("called.on", {});
        expect((await client.waitForRun(runId)).nondeterminism).toMatchObject([{ name: "charge" }]);
      } finally {
        await endpoint.stop(true);
      }
    });

    test("no alarm where a person steered the run", async () => {
      const steered = createFunction(
        { id: "steered", event: "steered", nondeterminism: "fail", retry: { maxAttempts: 1 } },
        async ({ step }) => {
          const a = await step.run("a", () => 1);
          await Promise.all([step.run("b", () => 1), step.run("c", () => 1)]);
          await step.waitForEvent("steered.on", { timeout: "1h" });
          const d = await step.run("d", () => 1);
          if (a === 1) throw new Error("not patched");
          return d;
        },
      );
      await start(steered);
      const [runId = ""] = (await client.emit("steered", {})).runIds;
      await until(async () => (await client.getRun(runId)).status === "paused", {
        ...waiting,
        about: "the wait",
      });
      await client.pauseRun(runId);
      await client.injectStepOutput(runId, `${runId}:b:0`, 7);
      await client.resumeRun(runId);
      await client.emit("steered.on", {});
      expect((await client.waitForRun(runId)).status).toBe("failed");
      const steps = await client.getRunSteps(runId);
      await client.patchStep(steps.find(({ name }) => name === "a")!.id, 2);
      // A second resume is refused for a while.
      await server.running.domain.store.write((session) =>
        session.run(sql`DELETE FROM resumes WHERE run_id = ${runId}`),
      );
      await client.resumeRun(runId, { fromStep: "d" });
      const run = await client.waitForRun(runId);
      expect(run).toMatchObject({ status: "completed" });
      expect(run.nondeterminism).toBeUndefined();
    });

    test("what a report says of them is checked, and counts with its fence only", async () => {
      await rpc("RegisterFunction", { id: "told", triggers: [{ event: "told" }] });
      const worker = pullWorker(server, "teller");
      await worker.register("told");
      const one = { step_id: "s", name: "s", kind: "order" };
      const job = async () => {
        await client.emit("told", {});
        const jobs: Awaited<ReturnType<typeof worker.poll>> = [];
        await until(async () => jobs.push(...(await worker.poll(1))) > 0, { ...waiting, about: "a job" });
        return jobs[0]!;
      };
      for (const nondeterminism of [[{ ...one, kind: "x" }], [{}], "x", new Array(21).fill(one)])
        expect((await worker.report(await job(), { status: "completed", nondeterminism })).status).toBe(400);
      const mine = await job();
      const late = { ...mine, lease_token: "other" };
      const sent = { status: "completed", nondeterminism: [{ ...one, step_id: stepIdOf(mine, "s") }] };
      expect((await worker.report(late, sent)).status).toBe(409);
      expect((await client.getRun(mine.run_id)).nondeterminism).toBeUndefined();
      expect((await worker.report(mine, sent)).status).toBe(200);
      expect((await client.getRun(mine.run_id)).nondeterminism).toHaveLength(1);
    });
  });
});
