import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { version } from "../../src/kit/version.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";

interface Assignment {
  job_id: string;
  run_id: string;
  execution_seq: number;
  lease_token: string;
  step_sequence_base: number;
  attempt: number;
  completed_steps: { step_id: string; name: string; output: unknown }[];
  event: Record<string, unknown>;
}

describe.each(engines)("workers on %s", (engine) => {
  let server: TestServer;
  let foreign: string;

  const rpc = async (method: string, body: unknown, options: CallOptions = {}) =>
    (await server.rpc("SvcService", method, body, options)).body;
  const api = (path: string, body?: unknown, method = "PUT", options: CallOptions = {}) =>
    server.api(`/api/v1/workers${path}`, { method, ...(body !== undefined && { body }), ...options });
  const register = (id: string, functionIds: string[]) =>
    api(`/${id}/register`, { function_ids: functionIds }, "POST");
  const poll = async (id: string, available = 1): Promise<Assignment[]> => {
    const { status, body } = await server.api(`/api/v1/workers/${id}/jobs?available=${available}`);
    return status === 204 ? [] : body.jobs;
  };
  const fenceOf = (job: Assignment) => ({ execution_seq: job.execution_seq, lease_token: job.lease_token });
  const report = (worker: string, job: Assignment, body: object) =>
    api(`/${worker}/jobs/${job.job_id}`, { ...fenceOf(job), ...body });
  const step = (name: string, more: object = {}) => ({
    id: `s:${name}:0`,
    name,
    type: "invoke",
    status: "completed",
    output: { name },
    ...more,
  });
  /** A function, a worker and a job of its own. */
  const begin = async (name: string, definition: object = {}) => {
    await rpc("RegisterFunction", { id: name, triggers: [{ event: name }], ...definition });
    await register(`w-${name}`, [name]);
    const { runIds } = await rpc("Emit", { event: name, data: { n: 1 }, metadata: { trace: "t" } });
    const [job] = await poll(`w-${name}`);
    expect(job?.run_id).toBe(runIds[0]);
    return { worker: `w-${name}`, job: job!, runId: runIds[0] as string };
  };
  const run = (id: string) => rpc("GetRun", { id });
  const steps = async (runId: string) => (await rpc("GetRunSteps", { runId })).steps ?? [];
  /** Lets everything that is planned become due. */
  const letTimePass = async (runId: string) => {
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${runId}`),
    );
    await server.running.tick("runs.wake");
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
    const { keys, tenancy } = server.running.domain;
    const theirs = await tenancy.createEnvironment({ orgId: "org_other", name: "theirs" });
    const scope = { orgId: "org_other", environmentId: theirs.id, name: "test", roleIds: ["role_developer"] };
    foreign = (await keys.create(scope)).key;
  });
  afterAll(() => server.stop());

  test("registers by POST and PUT, and again; says which field is wrong", async () => {
    expect(await api("/w1/register", { function_ids: ["f"] }, "POST")).toMatchObject({ status: 200 });
    const full = {
      worker_id: "ignored",
      hostname: "h",
      function_ids: ["f", "g"],
      max_concurrent_jobs: 5,
      labels: { zone: "a" },
      version: { sdk: "0.30", runtime: "node-v22" },
      later_field: true,
    };
    expect(await api("/w1/register", full)).toMatchObject({ status: 200 });
    await server.rpc("SvcService", "RegisterFunction", { id: "there", triggers: [] });
    const some = { function_ids: ["there", "nowhere"], version: { sdk: version } };
    const told = {
      status: "registered",
      open_waits: true,
      unknown_functions: ["nowhere"],
      server_version: version,
    };
    expect((await api("/w-told/register", some)).body).toEqual(told);
    const { body } = await server.api("/api/v1/workers");
    expect(body.workers.find((worker: { id: string }) => worker.id === "w1")).toMatchObject({
      hostname: "h",
      function_ids: ["f", "g"],
      labels: { zone: "a" },
      version: { sdk: "0.30", runtime: "node-v22" },
      transport: "rest",
      max_concurrent: 5,
    });
    expect(body.count).toBe(body.workers.length);
    for (const [field, bad] of [
      ["function_ids", {}],
      ["function_ids", { function_ids: [] }],
      ["function_ids[1]", { function_ids: ["a", "b c"] }],
      ["max_concurrent_jobs", { function_ids: ["a"], max_concurrent_jobs: 0 }],
      ["labels", { function_ids: ["a"], labels: { a: 1 } }],
    ] as const) {
      const answer = await api("/w2/register", bad);
      expect(answer.status).toBe(400);
      expect(answer.body.error).toContain(field);
    }
    expect((await api("/w%20x/register", { function_ids: ["a"] })).status).toBe(400);
  });

  test("an unknown worker is told so", async () => {
    for (const [path, method] of [
      ["/nobody/heartbeat", "POST"],
      ["/nobody/jobs?available=1", "GET"],
    ] as const)
      expect((await api(path, method === "GET" ? undefined : {}, method)).status).toBe(404);
    await register("theirs-too", ["f"]);
    expect((await api("/theirs-too/heartbeat", {}, "POST", { key: foreign })).status).toBe(404);
  });

  test("an assignment has every field of the wire", async () => {
    const { job, runId } = await begin("assigned", { retry: { maxAttempts: 4 } });
    expect(job).toEqual({
      job_id: expect.stringMatching(/^job_/),
      run_id: runId,
      function_id: "assigned",
      attempt: 1,
      max_attempts: 4,
      step_sequence_base: 0,
      execution_seq: 1,
      lease_token: expect.stringMatching(/^[0-9a-f]{32}$/),
      sequence: expect.stringMatching(/^\d+\.\d+$/),
      lease_expires_at: expect.stringMatching(/Z$/),
      lease_ms: expect.any(Number),
      completed_steps: [],
      event: {
        id: expect.stringMatching(/^evt_/),
        name: "assigned",
        timestamp: expect.stringMatching(/Z$/),
        version: 1,
        source: "api",
        data: { n: 1 },
        metadata: { trace: "t" },
      },
    } as never);
    expect(await run(runId)).toMatchObject({
      status: "RUN_STATUS_RUNNING",
      workerId: "w-assigned",
      attempt: 1,
    });
  });

  test("never hands out more than is free", async () => {
    await rpc("RegisterFunction", { id: "many", triggers: [{ event: "many" }] });
    await register("w-many", ["many"]);
    await rpc("TriggerBatch", { events: Array.from({ length: 7 }, () => ({ event: "many" })) });
    const got = [await poll("w-many", 0), await poll("w-many", 2), await poll("w-many", 10)].map(
      (j) => j.length,
    );
    expect(got).toEqual([0, 2, 5]);
  });

  test("an ack holds with the fence and not without", async () => {
    const { worker, job } = await begin("acked");
    const ack = (body: object, id = job.job_id) => api(`/${worker}/jobs/${id}/ack`, body);
    expect(await ack({ ...fenceOf(job), run_id: job.run_id })).toMatchObject({
      status: 200,
      body: { status: "ok" },
    });
    expect(await ack({ execution_seq: 1 })).toMatchObject({
      status: 400,
      body: { error: "INCOMPATIBLE_PROTOCOL" },
    });
    expect(await ack({ execution_seq: 2, lease_token: job.lease_token })).toMatchObject({ status: 409 });
    expect(await ack({ ...fenceOf(job), lease_token: "f".repeat(32) })).toMatchObject({
      status: 409,
      body: { error: "STALE_EXECUTION" },
    });
    expect((await ack(fenceOf(job), "job_nothing_1")).status).toBe(404);
  });

  test("progress keeps steps, and every refusal has its code", async () => {
    const { worker, job, runId } = await begin("progressing");
    const progress = (body: object) => report(worker, job, { status: "progress", ...body });
    expect(
      await progress({
        steps: [step("one"), step("two", { status: "failed", error: { message: "no" } })],
        step_offset: 0,
      }),
    ).toMatchObject({ status: 200 });
    expect(await progress({ steps: [step("two", { output: 2 })], step_offset: 1 })).toMatchObject({
      status: 200,
    });
    expect(await progress({ steps: [step("one", { output: "changed" })], step_offset: 0 })).toMatchObject({
      status: 200,
    });
    expect(await progress({})).toMatchObject({ status: 200, body: { status: "ok" } });
    expect(await steps(runId)).toMatchObject([
      { stepId: "s:one:0", name: "one", status: "STEP_STATUS_COMPLETED", output: { name: "one" } },
      { stepId: "s:two:0", sequence: 1, status: "STEP_STATUS_COMPLETED", outputValue: 2 },
    ]);
    for (const [status, error, body] of [
      [400, "INCOMPATIBLE_PROTOCOL", { lease_token: "" }],
      [400, "step_offset", { step_offset: -1 }],
      [400, "steps", { steps: Array.from({ length: 501 }, (_, n) => step(`${n}`)) }],
      [400, "steps[0].id", { steps: [step("a\u0000b")] }],
      [400, "status", { status: "perhaps" }],
      [409, "STALE_EXECUTION", { execution_seq: 9 }],
      [409, "STALE_EXECUTION", { lease_token: "0".repeat(32) }],
    ] as const) {
      const answer = await progress(body);
      expect({ status: answer.status, error: answer.body.error }).toEqual({
        status,
        error: expect.stringContaining(error),
      });
    }
    expect((await api(`/${worker}/jobs/job_unknown_1`, { ...fenceOf(job), status: "progress" })).status).toBe(
      404,
    );
    expect(await report(worker, job, { status: "completed", output: [1] })).toMatchObject({ status: 200 });
    expect(await progress({})).toMatchObject({ status: 409, body: { error: "RUN_NOT_RUNNING" } });
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_COMPLETED", outputValue: [1], attempt: 1 });
  });

  test("another environment's job answers exactly like a missing one", async () => {
    const { job } = await begin("guarded");
    await api("/intruder/register", { function_ids: ["guarded"] }, "POST", { key: foreign });
    const ask = (id: string) =>
      api(`/intruder/jobs/${id}`, { ...fenceOf(job), status: "completed" }, "PUT", { key: foreign });
    const real = await ask(job.job_id);
    const made = await ask("job_00000000000000000000000000_1");
    expect(real.status).toBe(404);
    expect(JSON.stringify(real.body).replaceAll(job.run_id, "X")).toBe(
      JSON.stringify(made.body).replaceAll("run_00000000000000000000000000", "X"),
    );
    expect(await run(job.run_id)).toMatchObject({ status: "RUN_STATUS_RUNNING" });
    const foreignRun = await server.rpc("SvcService", "GetRun", { id: job.run_id }, { key: foreign });
    expect(foreignRun.status).toBe(404);
  });

  test("a sleep is a step that ends by itself; the run goes on behind it", async () => {
    const { worker, job, runId } = await begin("sleepy");
    const until = new Date(Date.now() + 3_600_000).toISOString();
    const yielded = { step_id: `${runId}:nap:0`, type: "sleep", until };
    expect(
      await report(worker, job, { status: "yielded", steps: [step("one")], step_offset: 0, yield: yielded }),
    ).toMatchObject({ status: 200 });
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_PAUSED", pauseReason: "sleep" });
    expect((await steps(runId))[1]).toMatchObject({
      name: "nap",
      status: "STEP_STATUS_SLEEPING",
      sleepUntil: until,
    });
    expect(await report(worker, job, { status: "completed" })).toMatchObject({
      body: { error: "RUN_NOT_RUNNING" },
    });
    expect(await api(`/${worker}/jobs/${job.job_id}/ack`, fenceOf(job))).toMatchObject({
      status: 409,
      body: { error: "RUN_NOT_RUNNING" },
    });
    await letTimePass(runId);
    const [next] = await poll(worker);
    expect(next).toMatchObject({ run_id: runId, attempt: 1, execution_seq: 2, step_sequence_base: 2 });
    expect(next!.completed_steps).toEqual([
      { step_id: "s:one:0", name: "one", output: { name: "one" }, status: "completed" } as never,
      { step_id: `${runId}:nap:0`, name: "nap", output: null, status: "completed" } as never,
    ]);
    for (const bad of [{ ...yielded, type: "wait_for_event" }, { ...yielded, until: "soon" }, undefined])
      expect((await report(worker, next!, { status: "yielded", yield: bad })).status).toBe(400);
    expect((await report(worker, next!, { status: "completed", output: "done" })).status).toBe(200);
  });

  test("a failed attempt is retried with its delay until they are used up; retryable false ends at once", async () => {
    const { worker, job, runId } = await begin("failing", {
      retry: { maxAttempts: 2, initialDelayMs: 60_000 },
    });
    const error = { message: "boom", code: "STEP_FAILED", retryable: true };
    expect(
      (await report(worker, job, { status: "failed", error, steps: [step("one")], step_offset: 0 })).status,
    ).toBe(200);
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_WAITING", attempt: 1 });
    await letTimePass(runId);
    const [second] = await poll(worker);
    expect(second).toMatchObject({ attempt: 2, completed_steps: [{ step_id: "s:one:0" }] });
    await report(worker, second!, { status: "failed", error });
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_FAILED", attempt: 2, error });
    const final = await begin("final");
    await report(final.worker, final.job, {
      status: "failed",
      error: { message: "never", retryable: false },
    });
    expect(await run(final.runId)).toMatchObject({
      status: "RUN_STATUS_FAILED",
      attempt: 1,
      error: { message: "never" },
    });
  });

  test("a lease that ends gives the run back with its steps, and the old holder writes nothing", async () => {
    const { worker, job, runId } = await begin("lost");
    await report(worker, job, { status: "progress", steps: [step("one")], step_offset: 0 });
    await letTimePass(runId);
    expect(await report(worker, job, { status: "completed" })).toMatchObject({
      body: { error: "STALE_EXECUTION" },
    });
    await register("w-other", ["lost"]);
    const [next] = await poll("w-other");
    expect(next).toMatchObject({
      run_id: runId,
      attempt: 1,
      execution_seq: 2,
      completed_steps: [{ step_id: "s:one:0" }],
    });
    for (let lost = 0; lost < 20 && (await run(runId)).status !== "RUN_STATUS_FAILED"; lost++) {
      await letTimePass(runId);
      await poll("w-other");
    }
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_FAILED", error: { code: "WORKER_LOST" } });
  });

  test("a heartbeat renews the leases it lists and no others", async () => {
    const listed = await begin("listed");
    const left = await begin("left-out");
    const { store } = server.running.domain;
    // Both end soon, and not before they are looked at.
    const soon = Date.now() + 30_000;
    await store.write((session) =>
      session.run(
        sql`UPDATE executions SET wake_at = ${soon} WHERE run_id IN ${sql.list([listed.runId, left.runId])}`,
      ),
    );
    const jobs = [{ job_id: listed.job.job_id, started_at: new Date().toISOString() }];
    expect(await api(`/${listed.worker}/heartbeat`, { active_jobs: 1, jobs }, "POST")).toMatchObject({
      status: 200,
    });
    const wakes = await store.all<{
      run_id: string;
      wake_at: number;
    }>(sql`SELECT run_id, wake_at FROM executions
      WHERE run_id IN ${sql.list([listed.runId, left.runId])} ORDER BY wake_at`);
    expect(wakes.map((row) => [row.run_id, row.wake_at > soon])).toEqual([
      [left.runId, false],
      [listed.runId, true],
    ]);
  });

  test("timeoutMs ends a run wherever it stands", async () => {
    const { worker, job, runId } = await begin("slow", { timeoutMs: 60_000 });
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE executions SET timeout_at = 1 WHERE run_id = ${runId}`),
    );
    await server.running.tick("runs.wake");
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_FAILED", error: { code: "RUN_TIMEOUT" } });
    expect(await report(worker, job, { status: "completed" })).toMatchObject({
      body: { error: "RUN_NOT_RUNNING" },
    });
  });

  test("an exchange carries reports, acks and the next jobs in one go", async () => {
    const first = await begin("exchanged");
    await rpc("TriggerBatch", { events: Array.from({ length: 3 }, () => ({ event: "exchanged" })) });
    const { body, status } = await api(
      `/${first.worker}/exchange`,
      {
        reports: [
          {
            job_id: first.job.job_id,
            ...fenceOf(first.job),
            status: "completed",
            output: { ok: true },
            steps: [step("one")],
            step_offset: 0,
          },
          { job_id: "job_unknown_1", ...fenceOf(first.job), status: "completed" },
        ],
        acks: [{ job_id: first.job.job_id, ...fenceOf(first.job), execution_seq: 7 }],
        available: 2,
      },
      "POST",
    );
    expect(status).toBe(200);
    expect(body.results).toMatchObject([
      { job_id: first.job.job_id, status: "ok" },
      { job_id: "job_unknown_1", status: 404 },
    ]);
    expect(body.acked).toMatchObject([{ status: 409, error: "STALE_EXECUTION" }]);
    expect(body.jobs).toHaveLength(2);
    expect(await run(first.runId)).toMatchObject({ status: "RUN_STATUS_COMPLETED", output: { ok: true } });
    const reports = Array.from({ length: 201 }, () => ({ job_id: "j", status: "completed" }));
    expect((await api(`/${first.worker}/exchange`, { reports }, "POST")).body.error).toContain("reports");
  });
});
