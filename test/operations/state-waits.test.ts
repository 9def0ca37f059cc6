import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isFull } from "../../src/domain/engine/runs/awaited/state-rows.ts";
import { openStates } from "../../src/domain/engine/runs/awaited/states.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  defineEvents,
  NonRetryableError,
  testFunction,
  type Worker,
} from "../../src/sdk/index.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const events = defineEvents<{ "order.paid": { by: string }; mixed: { of: string } }>();
const silent = { debug() {}, info() {}, warn() {}, error() {} };
const patience = { timeoutMs: 20_000 };

const child = createFunction({ id: "child" }, async ({ event, step }) => {
  const { fails, waits } = event.data as { fails?: boolean; waits?: boolean };
  if (waits) await step.waitForStream("children", { version: 1 });
  if (fails) throw new NonRetryableError("broken", { code: "BROKEN" });
  return step.run("answer", () => 42);
});
const singles = createFunction({ id: "singles" }, async ({ event, step }) => {
  const { of } = event.data as { of: string };
  const stream = await step.waitForStream(of, { version: 2, onTimeout: "throw" });
  const key = await step.waitForKey("locks", of, { equals: { free: true }, onTimeout: "throw" });
  const { runId } = await step.invokeAsync("child", {});
  const run = await step.waitForRun(runId, { name: "child" });
  return [stream.version >= 2, key.exists, run?.status, run?.output];
});
const mixed = events.createFunction({ id: "mixed", event: "mixed" }, async ({ event, step }) => {
  const { of } = event.data;
  const { runId } = await step.invokeAsync("child", { input: { fails: true, waits: true } });
  const first = await step.waitForAny("first", {
    paid: { event: "order.paid", match: "by", matchValue: of },
    stock: { stream: of, after: 0 },
    lock: { bucket: "locks", key: of, exists: true },
    done: { run: runId },
  });
  const all = await step.waitForAll("all", {
    lock: { bucket: "locks", key: of, after: 0 },
    paid: { event: "order.paid", match: "by", matchValue: of },
    stock: { stream: of, version: 2 },
    done: { run: runId },
  });
  const none = await step.waitForNone("none", { stock: { stream: of, after: 2 } }, { timeout: 20 });
  const late = await step
    .waitForKey("locks", `${of}-never`, { after: 0, timeout: 20, onTimeout: "throw" })
    .catch((error: Error) => error.message);
  const { status, error } = all!.done;
  return [
    first!.name,
    all!.paid.data.by,
    all!.stock.version,
    all!.lock.exists,
    status,
    error?.code,
    none,
    late,
  ];
});
const asked = createFunction({ id: "asked" }, async ({ event, step }) => {
  const { of, state } = event.data as { of: string; state: { exists: true } };
  return (await step.waitForKey("locks", of, state))?.exists ?? "late";
});

describe.each(engines)("waits for versions, keys and children, on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  let worker: Worker;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    client = createClient({ url: server.url, apiKey: server.adminKey });
    await client.kv.createBucket("locks");
    const functions = [child, singles, mixed, asked];
    worker = createWorker({ client, functions, handleSignals: false, log: silent });
    await worker.start();
  });
  afterAll(async () => {
    await worker.drain({ timeoutMs: 2_000 });
    await server.stop();
  });

  const start = async (id: string, input: object) => (await client.invokeFunction(id, input)).runId;
  const ended = (runId: string) => client.waitForRun(runId, patience);
  const append = (entityId: string, expectedVersion: number) =>
    client.streams.append({ entityId, entityType: "stock", event: "stock.moved", data: {}, expectedVersion });
  const waitsOf = async (runId: string) =>
    (
      await server.running.domain.store.all<{ condition: string }>(
        sql`SELECT condition FROM waits WHERE run_id = ${runId} AND met IS NULL ORDER BY step_id`,
      )
    ).map(({ condition }) => condition);
  const waitingAt = (runId: string, name: string) =>
    until(
      async () => {
        const last = (await client.getRunSteps(runId)).at(-1);
        return last?.name === name && last.status === "waiting";
      },
      { about: `${runId} to wait at ${name}` },
    );

  test("a step that began by a clock ahead of the one that ends it took no time", async () => {
    const runId = await start("asked", { of: "ahead", state: { exists: true } });
    await waitingAt(runId, "locks/ahead");
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE steps SET started_at = started_at + 60000 WHERE run_id = ${runId}`),
    );
    await client.kv.put("locks", "ahead", "taken");
    expect(await ended(runId)).toMatchObject({ status: "completed", output: true });
    expect(await client.getRunSteps(runId)).toMatchObject([{ durationMs: 0 }]);
  });

  test("what comes ends them, what is there already at once", async () => {
    const runId = await start("singles", { of: "s1" });
    await waitingAt(runId, "s1");
    await append("s1", 0);
    await append("s1", 1);
    await waitingAt(runId, "locks/s1");
    await client.kv.put("locks", "s1", "taken");
    await client.kv.put("locks", "s1", { free: true });
    const output = [true, true, "completed", 42];
    expect(await ended(runId)).toMatchObject({ status: "completed", output });
    expect(await ended(await start("singles", { of: "s1" }))).toMatchObject({ output });
    const harness = testFunction(singles).mockInvoke("child", 42).stream("s1", 2, { after: "1h" });
    const result = await harness.key("locks", "s1", { free: true }).run({ of: "s1" });
    expect([result.output, result.elapsedMs]).toEqual([output, 3_600_000]);
  }, 120_000);

  test("mixed with events: the first of any, all of them through a pause, and none in time", async () => {
    const runId = await start("mixed", { of: "m1" });
    await waitingAt(runId, "first");
    expect(await waitsOf(runId)).toEqual(["paid", "stock", "lock", "done"]);
    const isFullAt = (most: number) => isFull(server.running.domain.store, server.env, most);
    // Its child waits, too.
    expect([await isFullAt(3), await isFullAt(5)]).toEqual([true, false]);
    await append("m1", 0);
    await waitingAt(runId, "all");
    await client.emit("order.paid", { by: "m1" });
    await until(async () => (await waitsOf(runId)).length === 3, { about: "the event" });
    expect(await client.pauseRun(runId)).toBe("paused");
    await append("m1", 1);
    await client.kv.put("locks", "m1", "x");
    await server.running.tick("runs.states");
    expect(await waitsOf(runId)).toEqual(["lock", "stock", "done"]);
    await client.resumeRun(runId);
    await append("children", -1);
    const run = await ended(runId);
    const message = "step locks/m1-never: timed out waiting for key locks/m1-never";
    const output = ["stock", "m1", 2, true, "failed", "BROKEN", null, message];
    expect(run).toMatchObject({ status: "completed", output });
    expect(await waitsOf(runId)).toEqual([]);
    const broken = () => {
      throw new NonRetryableError("broken", { code: "BROKEN" });
    };
    const harness = testFunction(mixed).mockInvoke("child", broken).stream("m1", 1);
    const result = await harness
      .stream("m1", 2, { after: 30 })
      .key("locks", "m1", "x", { after: 10 })
      .deliver("order.paid", { by: "m1" }, { after: 20 })
      .run({ of: "m1" });
    expect(result.output?.slice(1)).toEqual(output.slice(1));
  }, 120_000);

  test("a change in the same moment as the wait is not lost, and a cancel leaves no wait", async () => {
    const names = Array.from({ length: 12 }, (_, at) => `race${at}`);
    const runs = await Promise.all(
      names.map(async (of, at) => {
        const runId = await start("asked", { of, state: { exists: true } });
        if (at % 2 === 0) await waitingAt(runId, `locks/${of}`);
        await client.kv.put("locks", of, "1");
        return runId;
      }),
    );
    for (const runId of runs) expect(await ended(runId)).toMatchObject({ output: true });
    const cancelled = await start("asked", { of: "c1", state: { exists: true } });
    await waitingAt(cancelled, "locks/c1");
    await client.cancelRun(cancelled);
    expect(await waitsOf(cancelled)).toEqual([]);
  }, 120_000);

  test("a node that begins looks at all that waits", async () => {
    const runId = await start("singles", { of: "w1" });
    await waitingAt(runId, "w1");
    const { store } = server.running.domain;
    const isLookedAt = async () =>
      !(await store.one(sql`SELECT run_id FROM waits WHERE run_id = ${runId} AND due_at IS NOT NULL`));
    await until(isLookedAt, { about: "the first look" });
    // Without an event, which a node that follows the log would read.
    await store.write((session) =>
      session.run(sql`INSERT INTO streams (environment_id, entity_id, entity_type, version, created_at, updated_at)
        VALUES (${server.env}, 'w1', 't', 2, 1, 1)`),
    );
    const nothing = () => {};
    const clock = systemClock();
    await openStates({ store, clock, onQueued: nothing, wakeLoop: nothing }).lookOnce();
    await waitingAt(runId, "locks/w1");
    await client.cancelRun(runId);
  }, 120_000);

  test("a key that is deleted, expires, or whose bucket goes is not there", async () => {
    await client.kv.createBucket("brief");
    const gone = createFunction({ id: "gone" }, async ({ event, step }) => {
      const [bucket, key] = (event.data as { of: string }).of.split("/") as [string, string];
      return (await step.waitForKey(bucket, key, { deleted: true }))?.exists;
    });
    const own = createWorker({ client, functions: [gone], handleSignals: false, log: silent });
    await own.start();
    for (const of of ["locks/d1", "locks/d2", "brief/d3"]) {
      const [bucket, key] = of.split("/") as [string, string];
      await client.kv.put(bucket, key, "1", of === "locks/d2" ? { ttlSeconds: 1 } : {});
    }
    const runs = await Promise.all(["locks/d1", "locks/d2", "brief/d3"].map((of) => start("gone", { of })));
    for (const [at, runId] of runs.entries())
      if (at !== 1) await waitingAt(runId, ["locks/d1", "", "brief/d3"][at]!);
    await client.kv.delete("locks", "d1");
    await client.kv.deleteBucket("brief");
    for (const runId of runs) expect(await ended(runId)).toMatchObject({ output: false });
    own.stop();
  }, 120_000);

  describe("asked by hand", () => {
    const wait = (...conditions: object[]) => ({ type: "wait_for_events", conditions });
    let made = 0;
    async function begin(key?: string) {
      const id = `hand${++made}`;
      await server.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: id }] });
      const api: TestServer["api"] = (path, options) => server.api(path, { ...options, ...(key && { key }) });
      const hand = pullWorker({ api }, `w-${id}`);
      await hand.register(id);
      await server.rpc("SvcService", "Emit", { event: id });
      const [job] = await until(
        async () => {
          const jobs = await hand.poll();
          return jobs.length > 0 && jobs;
        },
        { about: "the job" },
      );
      return { hand, job: job!, runId: job!.run_id };
    }

    test("what cannot be waited for is refused with its field", async () => {
      const { hand, job } = await begin();
      const name = "c";
      const refused: [object[], string][] = [
        [[], "yield.conditions"],
        [Array.from({ length: 21 }, (_, at) => ({ name: `${at}`, event: "e" })), "yield.conditions"],
        [
          [
            { name, event: "e" },
            { name, event: "f" },
          ],
          "yield.conditions: must have different names",
        ],
        [[{ name }], "yield.conditions[0]: needs one of event, stream, key, run"],
        [[{ name, event: "e", run: { run_id: "run_1" } }], "yield.conditions[0]: needs one of"],
        [[{ name, stream: {} }], "entity_id"],
        [[{ name, stream: { entity_id: "a b", version: 1 } }], "yield.conditions[0].stream.entity_id"],
        [[{ name, stream: { entity_id: "a" } }], "yield.conditions[0].stream: needs one of version, after"],
        [[{ name, stream: { entity_id: "a", version: 0 } }], "yield.conditions[0].stream.version"],
        [[{ name, stream: { entity_id: "a", version: -1 } }], "version"],
        [[{ name, stream: { entity_id: "a", after: 1.5 } }], "after"],
        [[{ name, key: { key: "k", exists: true } }], "bucket"],
        [[{ name, key: { bucket: "b c", key: "k", exists: true } }], "yield.conditions[0].key.bucket"],
        [[{ name, key: { bucket: "SYS_x", key: "k", exists: true } }], "yield.conditions[0].key.bucket"],
        [[{ name, key: { bucket: "b", key: "", exists: true } }], "yield.conditions[0].key.key"],
        [[{ name, key: { bucket: "b", key: "k" } }], "yield.conditions[0].key: needs one of"],
        [[{ name, key: { bucket: "b", key: "k", after: 1, deleted: true } }], "needs one of"],
        [[{ name, key: { bucket: "b", key: "k", exists: false } }], "exists"],
        [[{ name, key: { bucket: "b", key: "k", equals: "?" } }], "yield.conditions[0].key.equals"],
        [[{ name, key: { bucket: "b", key: "k", equals: "A".repeat(4_000) } }], "at most 1024 bytes"],
        [[{ name, run: { run_id: "x" } }], "yield.conditions[0].run.run_id"],
      ];
      for (const [conditions, said] of refused) {
        const { status, body } = await hand.leave(job, "w", wait(...conditions));
        expect({ conditions, status, body: JSON.stringify(body) }).toMatchObject({
          status: 400,
          body: expect.stringContaining(said),
        });
      }
      expect(await hand.complete(job)).toMatchObject({ status: 200 });
    }, 120_000);

    test("another environment's entity and key are not there, and a run that it did not start is none", async () => {
      const { id } = (await server.api("/api/v1/environments", { body: { name: "other" } })).body;
      const made = await server.api("/api/v1/apikeys", { body: { name: "far", env_id: id } });
      const other = createClient({ url: server.url, apiKey: made.body.key });
      await other.streams.append({
        entityId: "far",
        entityType: "t",
        event: "e.e",
        data: {},
        expectedVersion: 0,
      });
      await other.kv.createBucket("locks");
      await other.kv.put("locks", "far", "1");
      const { hand, job, runId } = await begin();
      const stream = { name: "stream", stream: { entity_id: "far", version: 1 } };
      const key = { name: "key", key: { bucket: "locks", key: "far", exists: true } };
      expect(await hand.leave(job, "w", wait(stream, key))).toMatchObject({ status: 200 });
      await server.running.tick("runs.states");
      await server.running.tick("runs.states");
      expect(await waitsOf(runId)).toEqual(["stream", "key"]);
      await client.cancelRun(runId);
      const said = [];
      for (const run_id of ["run_none", runId]) {
        const next = await begin();
        await next.hand.leave(next.job, "w", wait({ name: "run", run: { run_id } }));
        const { status, error } = await ended(next.runId);
        said.push([status, error?.code, error?.message.replace(run_id, "it")]);
      }
      expect(said[0]).toEqual(["failed", "WAIT_RUN_UNKNOWN", expect.any(String)]);
      expect(said[1]).toEqual(said[0]!);
    }, 120_000);

    test("what a policy keeps from reading is not waited for", async () => {
      const role = (await server.api("/api/v1/roles", { body: { name: "waiter", base: "developer" } })).body
        .id;
      for (const [type, id, actions] of [
        ["stream", "hidden", "entities:read"],
        ["kv", "hidden/*", "secrets:read"],
      ]) {
        const resources = `irn:svc:*:*:${type}:*:${id}`;
        const policy = { name: `no-${type}`, effect: "deny", actions, resources };
        const { id: policy_id } = (await server.api("/api/v1/policies", { body: policy })).body;
        await server.api(`/api/v1/roles/${role}/policies`, { body: { policy_id } });
      }
      const { key } = (await server.api("/api/v1/apikeys", { body: { name: "w", role_ids: [role] } })).body;
      for (const condition of [
        { stream: { entity_id: "hidden", version: 1 } },
        { key: { bucket: "hidden", key: "k", equals: "eA==" } },
      ]) {
        const { hand, job, runId } = await begin(key);
        await hand.leave(job, "w", wait({ name: "free", event: "e" }, { name: "c", ...condition }));
        expect(await ended(runId)).toMatchObject({ status: "failed", error: { code: "WAIT_REFUSED" } });
      }
    }, 120_000);
  });
});

test("what cannot be waited for is a TypeError that names it", async () => {
  const wrong: [(step: never) => unknown, string][] = [];
  const say = (work: (step: import("../../src/sdk/index.ts").Steps) => unknown, said: string) =>
    wrong.push([work as never, said]);
  say((step) => step.waitForStream("a", { version: -1 }), "step a.version must be a whole number from 1");
  say((step) => step.waitForStream("a", {} as never), "step a needs one of version, after");
  say((step) => step.waitForStream("", { after: 1 }), "must be a text that is not empty");
  say(
    (step) => step.waitForKey("b", "k", {} as never),
    "step b/k needs one of after, equals, exists, deleted",
  );
  say((step) => step.waitForKey("b", "k", { exists: 1 } as never), "step b/k.exists must be true");
  say((step) => step.waitForKey("b", "k", { equals: "x".repeat(2_000) }), "step b/k.equals has at most 1024");
  say((step) => step.waitForAny("x", {}), "step x: needs something to wait for");
  say(
    (step) => step.waitForAny("x", { one: {} as never }),
    "step x: one needs one of event, stream, key, run",
  );
  say((step) => step.waitForAll("x", { one: { run: 7 } as never }), "step x: one.run must be a text");
  const many = Object.fromEntries(Array.from({ length: 21 }, (_, at) => [`${at}`, { run: "r" }]));
  say((step) => step.waitForAny("x", many), "step x: waits for at most 20 things");
  const nap = createFunction({ id: "nap" }, ({ step }) => step.waitForKey("b", "k", { deleted: true }));
  expect(testFunction(nap).key("b", "l", 1).run({})).rejects.toThrow('key("b/l") matches nothing');
  for (const [work, said] of wrong) {
    const wait = createFunction({ id: "wait", retry: { maxAttempts: 1 } }, ({ step }) => work(step as never));
    expect((await testFunction(wait).run({})).error?.message).toContain(said);
  }
});
