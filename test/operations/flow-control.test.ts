import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("flow control on %s", (engine) => {
  let server: TestServer;

  const rpc = (method: string, body: unknown) => server.rpc("SvcService", method, body);
  const define = (id: string, options: object) =>
    rpc("RegisterFunction", { id, triggers: [{ event: id }], ...options });
  const emit = async (event: string, data: unknown, more: object = {}) =>
    (await rpc("Emit", { event, data, ...more })).body as {
      runIds?: string[];
      notices?: Record<string, unknown>[];
    };
  const emitAll = async (event: string, list: readonly unknown[]) => {
    for (const data of list) await emit(event, data);
  };
  const workerFor = async (...functionIds: string[]) => {
    const worker = pullWorker(server, `w-${functionIds[0]}`);
    await worker.register(...functionIds);
    return worker;
  };
  /** Takes one job after the other until it has so many. */
  const take = async (worker: ReturnType<typeof pullWorker>, count: number): Promise<Assignment[]> => {
    const jobs: Assignment[] = [];
    await until(
      async () => {
        jobs.push(...(await worker.poll(1)));
        return jobs.length === count;
      },
      { about: `${count} jobs`, deadlineMs: 20_000 },
    );
    return jobs;
  };
  const numbersOf = (jobs: readonly Assignment[]) => jobs.map(({ event }) => (event.data as { n: number }).n);
  const write = (text: ReturnType<typeof sql>) =>
    server.running.domain.store.write((session) => session.run(text));

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  });
  afterAll(() => server.stop());

  describe("priority", () => {
    test("higher goes first, equal ones by age, and a low one moves up while it waits", async () => {
      await define("ranked", { priority: "data.rank" });
      const ranks = [0, -600, 600, 10, 10];
      await emitAll(
        "ranked",
        ranks.map((rank, n) => ({ rank, n })),
      );
      const worker = await workerFor("ranked");
      const [first] = numbersOf(await take(worker, 1));
      expect(first).toBe(2);
      // As if the lowest one had waited for twice the range.
      await write(sql`UPDATE executions SET wake_at = wake_at - 1200000 WHERE function_id = 'ranked'
        AND head_start_ms = -600000`);
      expect(numbersOf(await take(worker, 4))).toEqual([1, 3, 4, 0]);
    });

    test("a run that sleeps comes back with its priority", async () => {
      await define("returning", { priority: "data.rank" });
      const worker = await workerFor("returning");
      await emit("returning", { rank: 500, n: 0 });
      const [job] = await take(worker, 1);
      const until = new Date(Date.now() + 60_000).toISOString();
      await worker.leave(job!, "nap", { type: "sleep", until });
      await emit("returning", { rank: 100, n: 1 });
      await write(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${job!.run_id}`);
      await server.running.tick("runs.wake");
      expect(numbersOf(await take(worker, 2))).toEqual([0, 1]);
    });

    test("an expression that does not apply is told, and the run stands where it would without", async () => {
      await define("odd", { priority: "data.customer.rank" });
      const { runIds, notices } = await emit("odd", { customer: 5 });
      expect(runIds).toHaveLength(1);
      expect(notices).toEqual([
        { functionId: "odd", option: "priority", outcome: "failed", message: expect.any(String) },
      ]);
      expect((await emit("odd", { customer: { rank: "high" } })).notices).toMatchObject([
        { message: "does not give a number" },
      ]);
      expect((await emit("odd", { customer: { rank: 1e300 } })).notices).toBeUndefined();
    });
  });

  describe("throttle", () => {
    test("so many begin at once, the next after the gap; what has begun goes on", async () => {
      await define("paced", { throttle: { limit: 2, periodMs: 120_000, burst: 2, key: "data.who" } });
      const worker = await workerFor("paced");
      await emitAll(
        "paced",
        [0, 1, 2, 3].map((n) => ({ who: "a", n })),
      );
      const begun = await take(worker, 2);
      expect(numbersOf(begun)).toEqual([0, 1]);
      await emit("paced", { who: "b", n: 9 });
      expect(numbersOf(await take(worker, 1))).toEqual([9]);
      // A failed attempt comes back without another place.
      await worker.report(begun[0]!, { status: "failed", error: { message: "again", retryable: true } });
      await write(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${begun[0]!.run_id}`);
      await server.running.tick("runs.wake");
      expect(numbersOf(await take(worker, 1))).toEqual([0]);
      expect(await worker.poll(5)).toEqual([]);
      await write(
        sql`UPDATE lanes SET paced_until_us = paced_until_us - 60000000 WHERE function_id = 'paced'`,
      );
      expect(numbersOf(await take(worker, 1))).toEqual([2]);
      expect(await worker.poll(5)).toEqual([]);
    });

    test("an idle lane keeps the pause it owes", async () => {
      await define("daily", { throttle: { limit: 1, periodMs: 86_400_000 } });
      const worker = await workerFor("daily");
      await emitAll("daily", [{ n: 0 }, { n: 1 }]);
      const [job] = await take(worker, 1);
      await worker.complete(job!);
      await write(sql`UPDATE lanes SET last_used_at = 1 WHERE function_id = 'daily'`);
      await server.running.tick("runs.lanes");
      expect(await worker.poll(1)).toEqual([]);
    });
  });

  describe("rate limit and idempotency", () => {
    test("starts beyond the limit are skipped and told, by key, until the oldest is a period ago", async () => {
      await define("rated", { rateLimit: { limit: 2, periodMs: 60_000, key: "data.who" } });
      const outcomes = [];
      for (const who of ["a", "a", "b", "a"]) outcomes.push(await emit("rated", { who }));
      expect(outcomes.map(({ runIds = [] }) => runIds.length)).toEqual([1, 1, 1, 0]);
      expect(outcomes.map(({ notices }) => notices)).toEqual([
        ...[undefined, undefined, undefined],
        [{ functionId: "rated", option: "rateLimit", outcome: "skipped", message: expect.any(String) }],
      ]);
      // As if one of the two were a period ago.
      await write(sql`UPDATE start_gates SET starts_at = '{1,9000000000000}' WHERE function_id = 'rated'
        AND starts = '{1,1}'`);
      await emitAll("rated", [{ who: "a" }, { who: "a" }]);
      expect((await rpc("ListRuns", { functionId: "rated" })).body.totalCount).toBe(4);
    });

    test("a batch, and many callers at once, share what is left", async () => {
      await define("shared", { rateLimit: { limit: 5, periodMs: 60_000 } });
      const { body } = await rpc("TriggerBatch", {
        events: Array.from({ length: 3 }, (_, n) => ({ event: "shared", data: { n } })),
      });
      expect(body.results.map(({ runIds = [] }) => runIds.length)).toEqual([1, 1, 1]);
      const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => emit("shared", { n })));
      expect(answers.filter(({ runIds }) => runIds)).toHaveLength(2);
      expect(answers.filter(({ notices }) => notices)).toHaveLength(18);
    });

    test("a repeat of an event's key answers what the first use came to, skipped or not", async () => {
      await define("once", { idempotency: { key: "data.order" } });
      const first = await emit("once", { order: 7 }, { idempotencyKey: "one" });
      expect(first.runIds).toHaveLength(1);
      const second = await emit("once", { order: 7 }, { idempotencyKey: "two" });
      expect(second).toMatchObject({ notices: [{ option: "idempotency", outcome: "skipped" }] });
      expect(second.runIds).toBeUndefined();
      expect((await emit("once", { order: 7 }, { idempotencyKey: "one" })).runIds).toEqual(first.runIds);
      expect((await emit("once", { order: 7 }, { idempotencyKey: "two" })).runIds).toBeUndefined();
    });

    test("a key that is no scalar is told, and no key", async () => {
      await define("listed", { idempotency: { key: "[data.order]" } });
      expect(await emit("listed", { order: 1 })).toMatchObject({
        notices: [{ option: "idempotency", message: "does not give a text, a number or a boolean" }],
      });
    });

    test("a key that does not apply is told and starts a run; a direct start passes no gate", async () => {
      const odd = await emit("once", { other: 1 });
      expect(odd).toMatchObject({ runIds: [expect.any(String)], notices: [{ outcome: "failed" }] });
      await define("asked", { triggers: [], idempotency: { key: "data.order" } });
      for (const _ of [1, 2])
        expect((await rpc("InvokeFunction", { functionId: "asked", data: { order: 1 } })).status).toBe(200);
    });

    test("what counts nothing any more is forgotten", async () => {
      const gates = () =>
        server.running.domain.store.one<{ count: number }>(sql`SELECT count(*) AS count FROM start_gates`);
      expect((await gates())!.count).toBeGreaterThan(2);
      await write(sql`UPDATE start_gates SET expires_at = 1`);
      await server.running.tick("runs.lanes");
      expect((await gates())!.count).toBe(0);
      expect((await emit("shared", {})).runIds).toHaveLength(1);
    });
  });

  describe("singleton and start within", () => {
    const causeOf = async (id: string) => (await rpc("GetRun", { id })).body.cancellationCause;

    test("skip: while a run of the key is not over, events start none", async () => {
      await define("alone", { singleton: { mode: "skip", key: "data.who" } });
      const worker = await workerFor("alone");
      const answers = await Promise.all(["a", "a", "a", "b"].map((who, n) => emit("alone", { who, n })));
      expect(answers.filter(({ runIds }) => runIds)).toHaveLength(2);
      expect(answers.flatMap(({ notices = [] }) => notices)).toMatchObject([
        { option: "singleton", outcome: "skipped" },
        { option: "singleton", outcome: "skipped" },
      ]);
      const jobs = await take(worker, 2);
      expect((await emit("alone", { who: "a" })).runIds).toBeUndefined();
      for (const job of jobs) await worker.complete(job);
      expect((await emit("alone", { who: "a" })).runIds).toHaveLength(1);
    });

    test("cancel: the newest run replaces the one that is not over", async () => {
      await define("newest", { singleton: { mode: "cancel" } });
      const worker = await workerFor("newest");
      const first = await emit("newest", { n: 0 });
      const [job] = await take(worker, 1);
      const { body } = await rpc("TriggerBatch", {
        events: [1, 2].map((n) => ({ event: "newest", data: { n } })),
      });
      expect(body.results).toMatchObject([
        { notices: [{ option: "singleton", outcome: "skipped" }] },
        { runIds: [expect.any(String)] },
      ]);
      await server.running.tick("runs.deadlines");
      expect(await causeOf(first.runIds![0]!)).toBe("singleton");
      expect((await worker.complete(job!)).status).toBe(409);
      expect(numbersOf(await take(worker, 1))).toEqual([2]);
    });

    test("a run that has not begun in time is cancelled, one that has begun goes on", async () => {
      await define("soon", { startWithinMs: 60_000 });
      const worker = await workerFor("soon");
      const [begun, late] = [await emit("soon", { n: 0 }), await emit("soon", { n: 1 })];
      const [job] = await take(worker, 1);
      expect(job!.run_id).toBe(begun.runIds![0]!);
      const count = () => server.running.domain.store.one(sql`SELECT count(*) AS count FROM run_deadlines`);
      await server.running.tick("runs.deadlines");
      expect(await count()).toEqual({ count: 2 });
      await write(sql`UPDATE run_deadlines SET due_at = 1`);
      await server.running.tick("runs.deadlines");
      expect(await causeOf(late.runIds![0]!)).toBe("start-within");
      expect(await count()).toEqual({ count: 0 });
      expect((await worker.complete(job!)).status).toBe(200);
    });
  });

  test.each([
    ["priority", { priority: 601 }],
    ["priority", { priority: true }],
    ["priority", { priority: "data.rank +" }],
    ["throttle.limit", { throttle: { periodMs: 1_000 } }],
    ["throttle.periodMs", { throttle: { limit: 1 } }],
    ["throttle.periodMs", { throttle: { limit: 1, periodMs: 2_000_000_000 } }],
    ["throttle.burst", { throttle: { limit: 2, periodMs: 1_000, burst: 3 } }],
    [
      "throttle.key",
      { throttle: { limit: 2, periodMs: 1_000, key: "a" }, concurrency: { limit: 1, key: "b" } },
    ],
    ["rateLimit.limit", { rateLimit: { limit: -1, periodMs: 1_000 } }],
    ["rateLimit.periodMs", { rateLimit: { limit: 1, periodMs: 10 } }],
    ["idempotency.key", { idempotency: { key: "data." } }],
    ["idempotency", { idempotency: { key: "data.a" }, rateLimit: { limit: 1, periodMs: 1_000 } }],
    ["rateLimit", { rateLimit: { limit: 1, periodMs: 1_000 }, debounce: { periodMs: 1_000 } }],
    ["singleton.mode", { singleton: { mode: "both" } }],
    ["startWithinMs", { startWithinMs: 5 }],
  ])("a registration with a wrong %s is refused by its name", async (field, options) => {
    const { status, body } = await define("wrong", options);
    expect({ status, message: body.message }).toEqual({
      status: 400,
      message: expect.stringContaining(`${field}:`),
    });
  });

  test("a function shows its options as they were registered", async () => {
    const options = {
      priority: "data.rank",
      throttle: { limit: 5, periodMs: 1_000, burst: 2, key: "data.k" },
    };
    await define("shown", options);
    expect((await rpc("GetFunction", { id: "shown" })).body).toMatchObject(options);
    const others = { singleton: { mode: "skip", key: "data.k" }, startWithinMs: 5_000 };
    await define("shown-too", others);
    expect((await rpc("GetFunction", { id: "shown-too" })).body).toMatchObject(others);
    await define("shown", { priority: -5 });
    const { body } = await rpc("GetFunction", { id: "shown" });
    expect(body).toMatchObject({ priority: -5, version: 2 });
    expect(body.throttle).toBeUndefined();
  });
});
