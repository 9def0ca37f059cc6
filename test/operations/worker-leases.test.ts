import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Assignment } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openStreamWorker, transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

describe.each(engines)("leases that workers ask for on %s", (engine) => {
  let server: TestServer;

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  });
  afterAll(() => server.stop());

  const put = (path: string, body: object, method = "POST") =>
    server.api(`/api/v1/workers/${path}`, { method, body });
  const asking = (instance: string, lease_ms = 1_000) => ({ lease_ms, instance });
  const register = (name: string, more: object) =>
    put(`${name}/register`, { function_ids: [name], max_concurrent_jobs: 5, ...more });
  const define = (name: string) =>
    server.rpc("SvcService", "RegisterFunction", { id: name, triggers: [{ event: name }] });
  const emit = async (name: string): Promise<string> =>
    (await server.rpc("SvcService", "Emit", { event: name })).body.runIds[0];
  const exchange = async (name: string, more: object, available = 5): Promise<Assignment[]> =>
    (await put(`${name}/exchange`, { available, ...more })).body.jobs;
  /** A new run may wait for a moment for the process that was answered last. */
  const oneOf = (name: string, more: object) =>
    until(async () => (await exchange(name, more, 1))[0], { about: "a job" });
  const execution = (runId: string) =>
    server.running.domain.store.one<{ state: string; left: number; worker_id: string | null }>(
      sql`SELECT state, wake_at - claimed_at AS left, worker_id FROM executions WHERE run_id = ${runId}`,
    );
  /** By default as if it had been leased longer ago than anything can be on its way. */
  const age = (runId: string, ms = 2_000) =>
    server.running.domain.store.write((session) =>
      session.run(
        sql`UPDATE executions SET claimed_at = claimed_at - ${ms}, wake_at = wake_at - ${ms} WHERE run_id = ${runId}`,
      ),
    );

  test("last as long as asked, never longer than is configured; who asks for nothing gets that", async () => {
    await define("terms");
    expect((await register("terms", asking("a", 10_000))).body.lease_ms).toBe(10_000);
    expect((await register("terms", asking("a", 100_000))).body.lease_ms).toBe(60_000);
    expect((await register("terms", {})).body).toEqual({ status: "registered", open_waits: true });
    const lasting = async (more: object) => {
      const runId = await emit("terms");
      const job = await oneOf("terms", more);
      expect(job.run_id).toBe(runId);
      return { left: (await execution(runId))!.left, job };
    };
    const { job } = await lasting(asking("a", 10_000));
    expect((await lasting({})).left).toBeGreaterThan(50_000);
    const { execution_seq, lease_token } = job;
    await put(`terms/jobs/${job.job_id}/ack`, { execution_seq, lease_token, ...asking("a", 20_000) }, "PUT");
    expect((await execution(job.run_id))!.left).toBeLessThan(30_000);
    await put("terms/heartbeat", { jobs: [{ job_id: job.job_id }], ...asking("a", 10_000) });
    expect((await execution(job.run_id))!.left).toBeLessThan(20_000);
  });

  test("are asked for in words that are checked", async () => {
    await define("words");
    expect(await register("words", { lease_ms: 999 })).toMatchObject({ status: 400 });
    expect((await register("words", { lease_ms: 999 })).body.message).toContain("lease_ms");
    expect((await register("words", { instance: "" })).body.message).toContain("instance");
    await register("words", {});
    const { body } = await put("words/exchange", { held: Array(2_001).fill("job_a_1") });
    expect(body.message).toContain("held");
  });

  test("of jobs that their process does not hold go back at once; of no other process, and not before a second", async () => {
    await define("held");
    await register("held", asking("a", 10_000));
    const [kept, lost, young] = [await emit("held"), await emit("held"), await emit("held")];
    const jobs = await exchange("held", asking("a", 10_000));
    expect(jobs).toHaveLength(3);
    const beside = await emit("held");
    expect((await oneOf("held", asking("b", 10_000))).run_id).toBe(beside);
    await age(young, -60_000);
    for (const runId of [kept, lost, beside]) await age(runId);
    const held = jobs.filter(({ run_id }) => run_id === kept).map(({ job_id }) => job_id);
    await exchange("held", { ...asking("a", 10_000), held: [...held, "job_unknown_1", "x"] }, 0);
    await until(async () => (await execution(lost))!.state === "queued", {
      about: "the lost run to be queued",
    });
    for (const runId of [kept, young, beside]) expect((await execution(runId))!.state).toBe("leased");
    expect(await oneOf("held", asking("b", 10_000))).toMatchObject({
      run_id: lost,
      execution_seq: 2,
      attempt: 1,
    });
  });

  test("end when a process of the name begins and nobody renews them", async () => {
    await define("anew");
    await register("anew", asking("a"));
    const [dead, alive] = [await emit("anew"), await emit("anew")];
    const jobs = await exchange("anew", asking("a", 5_000));
    expect(jobs).toHaveLength(2);
    await register("anew", asking("b", 5_000));
    const job = jobs.find(({ run_id }) => run_id === alive)!;
    await put("anew/heartbeat", { jobs: [{ job_id: job.job_id }], ...asking("a", 5_000) });
    await until(async () => (await execution(dead))!.state === "queued", { about: "the run to be queued" });
    expect((await execution(alive))!.state).toBe("leased");
    const history = await server.running.domain.store.all(
      sql`SELECT type FROM run_history WHERE run_id = ${dead} ORDER BY sequence`,
    );
    expect(history.at(-1)).toEqual({ type: "run.lease_expired" });
  });

  test("end soon after their stream, unless it asked for nothing", async () => {
    await define("cut");
    const open = async (id: string, more: object) => {
      const transport = transportOf("connect json", server.running);
      const worker = openStreamWorker(transport, { key: server.adminKey, id });
      worker.say({
        case: "register",
        value: { workerId: id, functionIds: ["cut"], maxConcurrentJobs: 1, ...more },
      });
      expect((await worker.hear("registered")).leaseMs).toBe("leaseMs" in more ? 1_000 : 0);
      const runId = await emit("cut");
      const job = await worker.hear("job");
      expect(job.runId).toBe(runId);
      worker.ack(job);
      worker.beat(job);
      await worker.hear("leaseRefresh");
      return { worker, runId };
    };
    const before = await open("before", {});
    const asks = await open("asks", { leaseMs: 1_000, instance: "one" });
    for (const { worker } of [before, asks]) worker.cut();
    await until(async () => (await execution(asks.runId))!.state === "queued", {
      about: "the run to be queued",
    });
    expect(await execution(before.runId)).toMatchObject({ state: "leased", worker_id: "before" });
  });
});
