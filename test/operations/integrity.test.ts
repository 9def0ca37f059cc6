import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { runChecks } from "../../src/domain/runs/balance.ts";
import { openSweep } from "../../src/domain/runs/sweep.ts";
import { wakeDue } from "../../src/domain/runs/wake.ts";
import { testClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("integrity on %s", (engine) => {
  let server: TestServer;
  const write = (query: ReturnType<typeof sql>) =>
    server.running.domain.store.write((session) => session.run(query));
  const check = async (name: string) => {
    const { body } = await server.api("/api/v1/integrity");
    return body.checks.find((one: { name: string }) => one.name === name);
  };
  const shown = (name: string, count: number) =>
    until(async () => (await check(name)).count === count, {
      about: `${name} to be ${count}`,
      deadlineMs: 20_000,
      everyMs: 200,
    });
  const emit = async () =>
    (await server.rpc("SvcService", "Emit", { event: "swept" })).body.runIds[0] as string;
  const poll = async () => (await server.api("/api/v1/workers/w/jobs?available=1")).body.jobs[0];
  /** The duty's own loop may be quicker than a look: what matters is that it is counted and gone. */
  const healed = async (name: string, times: number) => {
    await until(
      async () => {
        await server.running.tick("runs.sweep");
        return (await check(name)).healed === times;
      },
      { about: `${name} to be healed`, deadlineMs: 20_000, everyMs: 200 },
    );
    await shown(name, 0);
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    await server.rpc("SvcService", "RegisterFunction", { id: "swept", triggers: [{ event: "swept" }] });
    await server.api("/api/v1/workers/w/register", { body: { function_ids: ["swept"] } });
  });
  afterAll(() => server.stop());

  test("all balances at first, and health says nothing", async () => {
    const { status, body } = await server.api("/api/v1/integrity");
    expect(status).toBe(200);
    expect(body.balanced).toBe(true);
    expect((await server.api("/health")).body.warnings).toBeUndefined();
    expect((await server.api("/api/v1/integrity", { key: null })).status).toBe(401);
  });

  test("a run that lost its execution gets it back behind every fence, and finishes", async () => {
    const runId = await emit();
    const old = await poll();
    await write(sql`DELETE FROM executions WHERE run_id = ${runId}`);
    await healed("runs.without_execution", 1);
    const job = await poll();
    expect(job.run_id).toBe(runId);
    expect(job.execution_seq).toBeGreaterThan(old.execution_seq);
    const report = ({ execution_seq, lease_token, job_id }: typeof job) =>
      server.api(`/api/v1/workers/w/jobs/${job_id}`, {
        method: "PUT",
        body: { status: "completed", execution_seq, lease_token },
      });
    expect((await report(old)).status).toBe(409);
    expect((await report(job)).status).toBe(200);
  });

  test("an execution without a run goes", async () => {
    const runId = await emit();
    await write(sql`DELETE FROM runs WHERE id = ${runId}`);
    await healed("executions.without_run", 1);
  });

  test("a lease that no wake loop ended is overdue, and is ended", async () => {
    const runId = await emit();
    expect((await poll()).run_id).toBe(runId);
    const { store } = server.running.domain;
    // Ten minutes on, with nobody else who sees that time.
    const clock = testClock(Date.now() + 600_000);
    const overdue = runChecks(store, clock).find((one) => one.name === "timers.overdue")!;
    expect(await overdue.run("env_default")).toMatchObject({ count: 1, oldest: { id: runId } });
    expect(await overdue.run("env_none")).toEqual({ count: 0, oldest: null });
    const seen: string[] = [];
    const sweep = openSweep({
      store,
      clock,
      wakeOnce: () => store.write((session) => wakeDue(session, clock.now())),
      healed: async (_write, list) => void seen.push(...list.map((one) => one.id)),
      onQueued: () => {},
      laneOf: async (environmentId) => ({ environmentId, functionId: "swept" }),
    });
    await sweep(store.write);
    expect(seen).toEqual([runId]);
    expect(await overdue.run("env_default")).toEqual({ count: 0, oldest: null });
    await write(sql`DELETE FROM executions WHERE run_id = ${runId}`);
    await write(sql`DELETE FROM runs WHERE id = ${runId}`);
  });

  test("a run that a person holds is shown, warned of, and left alone", async () => {
    const runId = await emit();
    await write(sql`UPDATE run_history SET type = 'run.paused' WHERE run_id = ${runId} AND sequence = 1`);
    await write(sql`DELETE FROM executions WHERE run_id = ${runId}`);
    await shown("runs.without_execution", 1);
    expect((await check("runs.without_execution")).oldest.id).toBe(runId);
    await server.running.tick("runs.sweep");
    await server.running.tick("integrity.look");
    expect((await server.api("/health")).body.warnings[0]).toContain("runs.without_execution: 1");
    expect((await server.api("/ready")).status).toBe(200);
    await write(sql`UPDATE runs SET status = 'cancelled', ended_at = created_at WHERE id = ${runId}`);
    await shown("runs.without_execution", 0);
    await server.running.tick("integrity.look");
    expect((await server.api("/health")).body.warnings).toBeUndefined();
  });
});
