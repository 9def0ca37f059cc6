import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Job {
  job_id: string;
  run_id: string;
  execution_seq: number;
  lease_token: string;
  attempt: number;
  event: { data: Record<string, unknown> };
}

describe.each(engines)("lanes on %s", (engine) => {
  let server: TestServer;

  const rpc = async (method: string, body: unknown) => (await server.rpc("SvcService", method, body)).body;
  const define = (id: string, more: object) =>
    rpc("RegisterFunction", { id, triggers: [{ event: id }], ...more });
  const worker = (id: string, functionIds: string[]) =>
    server.api(`/api/v1/workers/${id}/register`, { body: { function_ids: functionIds } });
  const emit = async (event: string, list: readonly unknown[]): Promise<string[]> => {
    const runIds: string[] = [];
    for (const data of list) runIds.push(...(await rpc("Emit", { event, data })).runIds);
    return runIds;
  };
  const poll = async (id: string, available = 10): Promise<Job[]> => {
    const { status, body } = await server.api(`/api/v1/workers/${id}/jobs?available=${available}`);
    return status === 204 ? [] : body.jobs;
  };
  /** A job may lie at the worker's desk when it has asked again too soon: asks until it has so many. */
  const pollFor = async (id: string, count: number, available = 10): Promise<Job[]> => {
    const jobs: Job[] = [];
    await until(
      async () => {
        jobs.push(...(await poll(id, available)));
        return jobs.length >= count;
      },
      { about: `${count} jobs for ${id}` },
    );
    return jobs;
  };
  const report = (id: string, job: Job, body: object = { status: "completed", output: 1 }) =>
    server.api(`/api/v1/workers/${id}/jobs/${job.job_id}`, {
      method: "PUT",
      body: { execution_seq: job.execution_seq, lease_token: job.lease_token, ...body },
    });
  const idsOf = (jobs: readonly Job[]) => jobs.map((job) => job.run_id);
  /** A function of its own with a worker for it. */
  const begin = async (name: string, more: object) => {
    await define(name, more);
    await worker(`w-${name}`, [name]);
    return {
      emit: (...list: unknown[]) => emit(name, list),
      poll: (available?: number) => poll(`w-${name}`, available),
      pollFor: (count: number, available?: number) => pollFor(`w-${name}`, count, available),
      report: (job: Job, body?: object) => report(`w-${name}`, job, body),
    };
  };
  const letTimePass = async (runId: string) => {
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${runId}`),
    );
    await server.running.tick("runs.wake");
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  });
  afterAll(() => server.stop());

  test("no more runs of a function are leased than its limit; the next go as the first end, oldest first", async () => {
    const { emit, poll, pollFor, report } = await begin("two", { concurrency: { limit: 2 } });
    const runs = await emit({ n: 1 }, { n: 2 }, { n: 3 }, { n: 4 });
    const first = await pollFor(2);
    expect(idsOf(first)).toEqual(runs.slice(0, 2));
    expect(await poll()).toEqual([]);
    await report(first[0]!);
    const next = await pollFor(1);
    expect(idsOf(next)).toEqual([runs[2]!]);
    await report(first[1]!);
    expect(idsOf(await pollFor(1))).toEqual([runs[3]!]);
  });

  test("each value of the key is a lane of its own, however the path is written", async () => {
    for (const [name, key] of [
      ["bare", "customer.id"],
      ["data", "data.customer.id"],
      ["event", "event.data.customer.id"],
      ["dollar", "$.data.customer.id"],
    ] as const) {
      const { emit, pollFor } = await begin(`key-${name}`, { concurrency: { limit: 1, key } });
      const of = (id: unknown, n: number) => ({ customer: { id }, n });
      const runs = await emit(of("a", 1), of("a", 2), of("b", 3), of(1, 4), of("1", 5));
      expect(idsOf(await pollFor(4)).sort()).toEqual([runs[0]!, runs[2]!, runs[3]!, runs[4]!].sort());
    }
  });

  test("runs whose key leads to nothing share one lane", async () => {
    const { emit, pollFor } = await begin("nothing", { concurrency: { limit: 1, key: "customer" } });
    const runs = await emit({}, { customer: null }, { customer: "a" });
    expect(idsOf(await pollFor(2)).sort()).toEqual([runs[0]!, runs[2]!].sort());
  });

  test("a sleeping run and one between two attempts hold no place; they wait for one when they wake", async () => {
    const { emit, poll, pollFor, report } = await begin("sleeper", {
      concurrency: { limit: 1 },
      retry: { maxAttempts: 3, initialDelayMs: 60_000 },
    });
    const [a, b, c] = await emit({}, {}, {});
    // With no place to spare: a run that waits for the worker's return too long goes behind the others.
    const next = async () => (await pollFor(1, 1))[0]!;
    const first = await next();
    const until = new Date(Date.now() + 60_000).toISOString();
    const yielded = { step_id: `${a}:nap:0`, type: "sleep", until };
    expect((await report(first, { status: "yielded", yield: yielded })).status).toBe(200);
    const second = await next();
    expect(second.run_id).toBe(b!);
    await report(second, { status: "failed", error: { message: "again", retryable: true } });
    const third = await next();
    expect(third.run_id).toBe(c!);
    await letTimePass(a!);
    await letTimePass(b!);
    expect(await poll()).toEqual([]);
    await report(third);
    const woken = await next();
    expect(woken.run_id).toBe(a!);
    expect(await poll()).toEqual([]);
    await report(woken);
    expect(await next()).toMatchObject({ run_id: b, attempt: 2 });
  });

  test("a lease that ends and a run that times out give their place back", async () => {
    const { emit, poll, pollFor } = await begin("lost", { concurrency: { limit: 1 }, timeoutMs: 3_600_000 });
    const [a, b] = await emit({}, {});
    await pollFor(1);
    await letTimePass(a!);
    const [next] = await pollFor(1);
    expect([a, b]).toContain(next!.run_id);
    expect(await poll()).toEqual([]);
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE executions SET timeout_at = 1 WHERE run_id = ${next!.run_id}`),
    );
    await server.running.tick("runs.wake");
    expect(await pollFor(1)).toHaveLength(1);
  });

  test("another limit counts from the next claim on; so does having none any more", async () => {
    const { emit, poll, pollFor, report } = await begin("moving", { concurrency: { limit: 1 } });
    await emit(...Array.from({ length: 12 }, (_, n) => ({ n })));
    const held = await pollFor(1);
    expect(held).toHaveLength(1);
    await define("moving", { concurrency: { limit: 3 } });
    held.push(...(await pollFor(2)));
    expect(held).toHaveLength(3);
    await define("moving", { concurrency: { limit: 2 } });
    await report(held.pop()!);
    expect(await poll()).toEqual([]);
    await report(held.pop()!);
    held.push(...(await pollFor(1)));
    expect(held).toHaveLength(2);
    // Four of the twelve have been handed out.
    await define("moving", {});
    expect(await pollFor(8)).toHaveLength(8);
  });

  test("runs from before there was a limit count against it", async () => {
    const { emit, pollFor, report } = await begin("late", {});
    await emit(...Array.from({ length: 6 }, (_, n) => ({ n })));
    const held = await pollFor(2, 2);
    await define("late", { concurrency: { limit: 3 } });
    held.push(...(await pollFor(1)));
    expect(held).toHaveLength(3);
    await report(held[0]!);
    expect(await pollFor(1)).toHaveLength(1);
  });

  test("a full lane with a long queue keeps no other lane waiting, nor does a paused function", async () => {
    await define("heavy", { concurrency: { limit: 1, key: "k" } });
    await define("halted", { concurrency: { limit: 1 } });
    await define("light", {});
    await worker("w-mixed", ["heavy", "halted", "light"]);
    await emit(
      "heavy",
      Array.from({ length: 30 }, () => ({ k: "big" })),
    );
    await emit("halted", [{}, {}]);
    await rpc("UpdateFunctionStatus", { id: "halted", status: "FUNCTION_STATUS_PAUSED" });
    const [held] = await pollFor("w-mixed", 1);
    expect(held!.event.data).toEqual({ k: "big" });
    const [small] = await emit("heavy", [{ k: "small" }]);
    const [light] = await emit("light", [{}]);
    expect(idsOf(await pollFor("w-mixed", 2)).sort()).toEqual([small!, light!].sort());
  });

  test("light functions and keys wait for no long queue of another", async () => {
    await define("crowded", {});
    await define("keyed", { concurrency: { limit: 50, key: "k" } });
    await define("small", {});
    await worker("w-shared", ["crowded", "keyed", "small"]);
    const batch = (event: string, data: object) =>
      rpc("TriggerBatch", { events: Array.from({ length: 100 }, () => ({ event, data })) });
    for (let round = 0; round < 3; round++) {
      await batch("crowded", {});
      await batch("keyed", { k: "big" });
    }
    /** What a worker with four places is handed in so many answers, each job done at once. */
    const serve = async (answers: number): Promise<string[]> => {
      const runIds: string[] = [];
      for (let round = 0; round < answers; round++)
        for (const job of await pollFor("w-shared", 1, 4)) {
          runIds.push(job.run_id);
          await report("w-shared", job);
        }
      return runIds;
    };
    await serve(5);
    for (let round = 0; round < 3; round++) {
      const wanted = [...(await emit("small", [{}])), ...(await emit("keyed", [{ k: `little-${round}` }]))];
      expect(await serve(4)).toEqual(expect.arrayContaining(wanted));
    }
  });

  test("a run of a limited function that nobody waits for is handed out by the held poll", async () => {
    const { emit, poll, pollFor } = await begin("held", { concurrency: { limit: 1 } });
    expect(await poll()).toEqual([]);
    const [run] = await emit({});
    expect(idsOf(await pollFor(1))).toEqual([run!]);
  });

  test("idle lanes are forgotten, those with leases are not", async () => {
    const { emit, pollFor, report } = await begin("forgotten", { concurrency: { limit: 1, key: "k" } });
    await emit({ k: 1 }, { k: 2 });
    const jobs = await pollFor(2);
    await report(jobs[0]!);
    const { store } = server.running.domain;
    const count = async () =>
      (await store.all(sql`SELECT id FROM lanes WHERE function_id = 'forgotten'`)).length;
    expect(await count()).toBe(2);
    await store.write((session) => session.run(sql`UPDATE lanes SET last_used_at = 1`));
    // A node does this only while it leads.
    await until(
      async () => {
        await server.running.tick("runs.lanes");
        return (await count()) < 2;
      },
      { about: "an idle lane to be forgotten" },
    );
    expect(await count()).toBe(1);
    await emit(jobs[0]!.event.data);
    expect(await pollFor(1)).toHaveLength(1);
  });
});
