import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { planBatches } from "../../src/domain/engine/batches/rules.ts";
import { type BatchStartsDeps, openBatchStarts } from "../../src/domain/engine/batches/service.ts";
import { testClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";
import { testFunction } from "../../src/sdk/testing/testing.ts";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

type BatchJob = Assignment & { events?: { id: string; data: { n: number } }[] };

describe.each(engines)("batches on %s", (engine) => {
  let server: TestServer;

  const define = (id: string, batch: object, more: object = {}) =>
    server.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: id }], batch, ...more });
  const emit = async (event: string, data: unknown) =>
    (await server.rpc("SvcService", "Emit", { event, data })).body as {
      eventId: string;
      runIds?: string[];
      notices?: object[];
    };
  const workerFor = async (functionId: string) => {
    const worker = pullWorker(server, `w-${functionId}`);
    await worker.register(functionId);
    return worker;
  };
  /** The runs that begin, as lists of numbers. */
  const taken = async (worker: Awaited<ReturnType<typeof workerFor>>, count: number) => {
    const jobs: BatchJob[] = [];
    await until(
      async () => {
        await server.running.tick("batches.close");
        jobs.push(...((await worker.poll(10)) as BatchJob[]));
        return jobs.length >= count;
      },
      { about: `${count} jobs`, deadlineMs: 20_000 },
    );
    return jobs;
  };
  const numbersOf = ({ events, event }: BatchJob) =>
    (events ?? [event]).map(({ data }) => (data as { n: number }).n);
  const write = (text: ReturnType<typeof sql>) =>
    server.running.domain.store.write((session) => session.run(text));
  /** As if all that waits had come long ago. */
  const age = async () => {
    await write(sql`UPDATE batch_events SET at = 1 WHERE run_id IS NULL`);
    await write(sql`UPDATE batches SET closes_at = 1`);
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  });
  afterAll(() => server.stop());

  test("a full batch begins at once, the rest when its time is over; each event is in one, in order", async () => {
    await define("full", { size: 7, timeoutMs: 600_000, key: "data.who" });
    const worker = await workerFor("full");
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, n) => emit("full", { n, who: n % 2 === 0 ? "a" : "b" })),
    );
    expect(answers.every(({ runIds = [] }) => runIds.length === 0)).toBe(true);
    const jobs = await taken(worker, 6);
    expect(jobs.map(({ events }) => events!.length)).toEqual(jobs.map(() => 7));
    expect(await worker.poll(10)).toEqual([]);
    await age();
    jobs.push(...(await taken(worker, 2)));
    const numbers = jobs.flatMap(numbersOf);
    expect(numbers.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, n) => n));
    for (const job of jobs) expect(new Set(numbersOf(job).map((n) => n % 2)).size).toBe(1);
    const positions = await server.running.domain.store.all<{ run_id: string; position: number }>(
      sql`SELECT run_id, position FROM batch_events ORDER BY run_id, position`,
    );
    const idsOf = (job: BatchJob) => job.events!.map(({ id }) => id);
    expect(positions).toHaveLength(50);
    expect(new Set(jobs.flatMap(idsOf)).size).toBe(50);
    expect(jobs.every((job) => job.event.id === idsOf(job)[0])).toBe(true);
    // Another execution gets the same events.
    await worker.report(jobs[0]!, { status: "failed", error: { message: "again", retryable: true } });
    await write(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${jobs[0]!.run_id}`);
    await server.running.tick("runs.wake");
    const [again] = await taken(worker, 1);
    expect(idsOf(again!)).toEqual(idsOf(jobs[0]!));
    const { things } = (await server.api(`/api/v1/causality?kind=run&id=${jobs[0]!.run_id}&direction=causes`))
      .body;
    expect(things.filter(({ kind }: { kind: string }) => kind === "event")).toHaveLength(7);
    const of = idsOf(jobs[0]!).at(-1)!;
    const effects = (await server.api(`/api/v1/causality?kind=event&id=${of}&direction=effects`)).body.things;
    expect(effects.map(({ id }: { id: string }) => id)).toContain(jobs[0]!.run_id);
  });

  test("a batch of one begins with its event; one that is started directly has one event", async () => {
    await define("one", { size: 1, timeoutMs: 600_000 });
    expect((await emit("one", { n: 1 })).runIds).toHaveLength(1);
    await define("direct", { size: 5, timeoutMs: 600_000 });
    const { status } = await server.rpc("SvcService", "InvokeFunction", {
      functionId: "direct",
      data: { n: 2 },
    });
    expect(status).toBe(200);
    const [job] = await taken(await workerFor("direct"), 1);
    expect(job!.events).toBeUndefined();
    expect(
      (await server.rpc("SvcService", "TriggerSync", { event: "direct", data: {} })).body.message,
    ).toContain("batches");
  });

  test("what gathers and what is ready is listed, by function and in pages", async () => {
    await define("gathers", { size: 3, timeoutMs: 600_000, key: "data.who" });
    await define("readies", { size: 2, timeoutMs: 600_000 });
    const first = await emit("gathers", { who: "a" });
    await emit("gathers", { who: "a" });
    await emit("gathers", { who: "b" });
    await emit("readies", {});
    const list = async (query: string) => (await server.api(`/api/v1/batches?${query}`)).body;
    const { batches, next_cursor } = await list("function_id=gathers");
    expect(next_cursor).toBeUndefined();
    expect(batches.map((one: { events: number }) => one.events).sort()).toEqual([1, 2]);
    expect(batches.find((one: { events: number }) => one.events === 2)).toEqual({
      ...{ id: expect.any(String), function_id: "gathers", function_version: 1, state: "gathering" },
      ...{ events: 2, events_max: 3, bytes: expect.any(Number), first_event_id: first.eventId },
      ...{ first_at: expect.any(String), closes_at: expect.any(String) },
    });
    const seen: string[] = [];
    let cursor = "";
    do {
      const page = await list(`function_id=gathers&limit=1&cursor=${cursor}`);
      seen.push(...page.batches.map((one: { id: string }) => one.id));
      cursor = page.next_cursor ?? "";
    } while (cursor !== "");
    expect(seen).toEqual(batches.map((one: { id: string }) => one.id));
    expect((await list("limit=200")).batches.map((one: { function_id: string }) => one.function_id)).toEqual(
      expect.arrayContaining(["gathers", "readies"]),
    );
    expect((await list("function_id=none")).batches).toEqual([]);

    // By the clock of another time: the loop closes at once what is over by its own.
    const deps = { store: server.running.domain.store, clock: testClock(Date.now() + 3_600_000) };
    const later = openBatchStarts(deps as unknown as BatchStartsDeps);
    const { batches: ready } = await later.list(server.env, { functionId: "gathers" });
    expect(ready.map((one) => one.isReady)).toEqual([true, true]);
    for (const id of ["gathers", "readies"]) await server.rpc("SvcService", "DeleteFunction", { id });
  });

  test("a key that does not apply is told, and the events wait together", async () => {
    await define("odd-path", { size: 2, timeoutMs: 600_000, key: "data.customer.id" });
    await define("odd-cel", { size: 2, timeoutMs: 600_000, key: "data.customer.id + '!'" });
    for (const id of ["odd-path", "odd-cel"]) {
      const told = [];
      for (const data of [{ n: 0, customer: 5 }, { n: 1, customer: { id: "c" } }, { n: 2 }])
        told.push((await emit(id, data)).notices);
      const failed = [{ functionId: id, option: "batch", outcome: "failed", message: expect.any(String) }];
      expect(told).toEqual([failed, undefined, failed]);
      const [job] = await taken(await workerFor(id), 1);
      expect(numbersOf(job!)).toEqual([0, 2]);
    }
  });

  test("a batch is also full by its bytes", async () => {
    await define("heavy", { size: 100, timeoutMs: 600_000 });
    for (const n of [0, 1, 2]) await emit("heavy", { n, text: "x".repeat(400_000) });
    await emit("heavy", { n: 3, text: "x".repeat(1_100_000) });
    const jobs = await taken(await workerFor("heavy"), 3);
    // Which of several that are full at once begins first is left open.
    expect(jobs.map(numbersOf).toSorted(([one = 0], [other = 0]) => one - other)).toEqual([[0, 1], [2], [3]]);
  });

  test("what waits goes with its function", async () => {
    await define("gone", { size: 3, timeoutMs: 600_000 });
    await emit("gone", { n: 0 });
    await server.rpc("SvcService", "DeleteFunction", { id: "gone" });
    const left = await server.running.domain.store.all(
      sql`SELECT b.position FROM batch_events b JOIN events v ON v.id = b.event_id WHERE v.name = 'gone'`,
    );
    expect(left).toEqual([]);
  });

  test("options that make no sense are refused by their field", async () => {
    const batch = { size: 5, timeoutMs: 5_000 };
    const wrong: [string, object][] = [
      ["batch.size", { batch: { ...batch, size: 0 } }],
      ["batch.size", { batch: { ...batch, size: -1 } }],
      ["batch.size", { batch: { ...batch, size: 1_001 } }],
      ["batch.timeoutMs", { batch: { size: 5 } }],
      ["batch.timeoutMs", { batch: { ...batch, timeoutMs: 999 } }],
      ["batch.timeoutMs", { batch: { ...batch, timeoutMs: 2_000_000_000 } }],
      ["batch.key", { batch: { ...batch, key: "data.(" } }],
      ["batch", { batch, debounce: { periodMs: 1_000 } }],
      ["rateLimit", { batch, rateLimit: { limit: 1, periodMs: 1_000 } }],
      ["idempotency", { batch, idempotency: { key: "data.n" } }],
      ["singleton", { batch, singleton: { mode: "skip" } }],
      ["cancelOn", { batch, cancelOn: [{ event: "stop", match: "" }] }],
      ["priority", { batch, priority: "data.n" }],
      ["concurrency.key", { batch, concurrency: { limit: 1, key: "data.n" } }],
      ["throttle.key", { batch, throttle: { limit: 1, periodMs: 1_000, key: "data.n" } }],
      ["actorKey", { batch, actorKey: "data.n" }],
    ];
    for (const [field, options] of wrong) {
      const { status, body } = await server.rpc("SvcService", "RegisterFunction", {
        id: "wrong",
        ...options,
      });
      expect({ status, options, message: String(body.message).startsWith(`${field}:`) }).toEqual({
        ...{ status: 400, options, message: true },
      });
    }
    const key = "data.who";
    const { body } = await define(
      "right",
      { ...batch, key },
      { concurrency: { limit: 2, key }, priority: 5 },
    );
    expect(body.function.batch).toEqual({ ...batch, key });
  });

  test("a handler gets all events, by a worker of the SDK", async () => {
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    const seen: number[][] = [];
    const summed = createFunction<{ "sum.me": { n: number } }>(
      { id: "summed", event: "sum.me", batch: { size: 3, timeoutMs: 600_000 } },
      ({ events, event }) => {
        expect(event).toEqual(events[0]!);
        seen.push(events.map(({ data }) => data.n));
      },
    );
    const worker = createWorker({ client, functions: [summed] });
    await worker.start();
    try {
      for (const n of [1, 2, 3]) await client.emit("sum.me", { n });
      await until(() => seen.length === 1, { about: "the batch to be handled", deadlineMs: 20_000 });
      expect(seen).toEqual([[1, 2, 3]]);
    } finally {
      await worker.stop();
    }
  });
});

test("batches are full by size or bytes, and what is left goes when its time is over", () => {
  const waiting = (...sizes: number[]) =>
    sizes.map((bytes, at) => ({ position: at + 1, eventId: `e${at}`, bytes, at: at * 10 }));
  const plan = (list: ReturnType<typeof waiting>, now: number, isAll = true) => {
    const { runs, next } = planBatches(list, { size: 3, timeoutMs: 1_000, isAll }, now);
    return [runs.map((own) => own.map(({ position }) => position)), next?.position];
  };
  const mib = 1024 * 1024;
  expect(plan(waiting(1, 1, 1, 1), 500)).toEqual([[[1, 2, 3]], 4]);
  expect(plan(waiting(1, 1, 1, 1), 1_030)).toEqual([[[1, 2, 3], [4]], undefined]);
  expect(plan(waiting(1, 1, 1, 1), 1_030, false)).toEqual([[[1, 2, 3]], 4]);
  expect(plan(waiting(mib, 1), 500)).toEqual([[[1]], 2]);
  expect(plan(waiting(2 * mib), 500)).toEqual([[[1]], undefined]);
  expect(plan(waiting(mib - 1, 1), 500)).toEqual([[[1, 2]], undefined]);
  expect(plan([], 500)).toEqual([[], undefined]);
});

test("the harness hands a batch to its function", async () => {
  const sum = createFunction<{ add: { n: number } }>(
    { id: "sum", event: "add", batch: { size: 3, timeoutMs: 1_000 } },
    async ({ events, step }) => {
      await step.sleep("nap", 1_000);
      return events.reduce((all, { data }) => all + data.n, 0);
    },
  );
  expect((await testFunction(sum).runBatch([{ n: 1 }, { n: 2 }])).output).toBe(3);
  expect((await testFunction(sum).run({ n: 5 })).output).toBe(5);
  const two = [{ n: 1 }, { n: 2 }];
  expect(testFunction(sum).runBatch([...two, ...two])).rejects.toThrow("from 1 to 3 events");
});
