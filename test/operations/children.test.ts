import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ownKeyMark } from "../../src/kit/key-claims.ts";
import { sql } from "../../src/kit/sql.ts";
import { stepRowId } from "../../src/kit/step-id.ts";
import { type Assignment, type PullWorker, pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("children on %s", (engine) => {
  let server: TestServer;

  const rpc = async (method: string, body: unknown) => (await server.rpc("SvcService", method, body)).body;
  const run = (id: string) => rpc("GetRun", { id });
  const steps = async (runId: string) => (await rpc("GetRunSteps", { runId })).steps ?? [];
  const move = () => server.running.tick("runs.children");
  const all = <R extends object>(query: ReturnType<typeof sql>) => server.running.domain.store.all<R>(query);
  /** The child is there a moment before what it was started by is gone. */
  const startNoted = (runId: string) =>
    until(
      async () => (await all(sql`SELECT 1 FROM invocations WHERE parent_run_id = ${runId}`)).length === 0,
      {
        about: "the start to be written down",
        everyMs: 5,
      },
    );
  const makeDue = async (runId: string) => {
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${runId}`),
    );
    await server.running.tick("runs.wake");
  };
  /** The job of a run that is on its way to the queue. */
  const next = (worker: PullWorker) => until(async () => (await worker.poll())[0], { about: "a job" });
  /** A parent with a job, and a function that it may invoke. */
  const begin = async (name: string, sdk?: string) => {
    await rpc("RegisterFunction", { id: name, triggers: [{ event: `${name}.asked` }] });
    await rpc("RegisterFunction", { id: `${name}-child` });
    const worker = pullWorker(server, `w-${name}`, sdk);
    const child = pullWorker(server, `w-${name}-child`, sdk);
    await worker.register(name);
    await child.register(`${name}-child`);
    await rpc("Emit", { event: `${name}.asked`, data: {} });
    const job = await next(worker);
    return { worker, child, job, runId: job.run_id };
  };
  const invoke = (name: string, more: object = {}) => ({
    type: "invoke_function",
    function_id: `${name}-child`,
    input: { n: 1 },
    ...more,
  });

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  }, 120_000);
  afterAll(() => server.stop());

  test("a step that invokes a function completes with its output", async () => {
    const { worker, child, job, runId } = await begin("happy");
    expect(await worker.leave(job, "call", invoke("happy"))).toMatchObject({ status: 200 });
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_PAUSED", pauseReason: "invoke" });
    expect(await steps(runId)).toMatchObject([
      { stepType: "STEP_TYPE_INVOKE_FUNCTION", status: "STEP_STATUS_WAITING", input: { n: 1 } },
    ]);
    const childJob = await next(child);
    expect(childJob.event).toMatchObject({ name: "happy-child", source: "invoke", data: { n: 1 } });
    expect(await run(childJob.run_id)).toMatchObject({
      parentRunId: runId,
      parentStepId: stepIdOf(job, "call"),
    });
    await child.complete(childJob, { sum: 2 });
    const again = await next(worker);
    expect(again.completed_steps).toEqual([
      { step_id: stepIdOf(job, "call"), name: "call", status: "completed", output: { sum: 2 } },
    ]);
    await worker.complete(again);
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_COMPLETED", attempt: 1 });
    expect(await all(sql`SELECT * FROM invocations WHERE parent_run_id = ${runId}`)).toEqual([]);
    expect(await all(sql`SELECT * FROM child_ends WHERE child_run_id = ${childJob.run_id}`)).toEqual([]);
  });

  test("a child that fails fails the step, not the run, where the worker can be told", async () => {
    const { worker, child, job, runId } = await begin("sad");
    await worker.leave(job, "call", invoke("sad", { input: undefined }));
    const childJob = await next(child);
    expect(childJob.event.data).toEqual({});
    await child.report(childJob, { status: "failed", error: { message: "boom", retryable: false } });
    const again = await next(worker);
    const error = {
      function_id: "sad-child",
      child_run_id: childJob.run_id,
      message: "boom",
      code: "INVOKE_FAILED",
      retryable: false,
    };
    expect(again.completed_steps).toEqual([
      { step_id: stepIdOf(job, "call"), name: "call", status: "failed", output: null, error },
    ]);
    expect(await steps(runId)).toMatchObject([
      { status: "STEP_STATUS_FAILED", error: { message: "boom", code: "INVOKE_FAILED" } },
    ]);
    await worker.complete(again, "caught");
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_COMPLETED", outputValue: "caught" });
  });

  test("an older worker's run fails with its child, and its own parent hears of it", async () => {
    const { worker, child, job, runId } = await begin("older", "0.29.1");
    await worker.leave(job, "call", invoke("older"));
    const childJob = await next(child);
    await child.report(childJob, { status: "failed", error: { message: "boom", retryable: false } });
    await until(async () => (await run(runId)).status === "RUN_STATUS_FAILED", { about: "the end" });
    expect(await run(runId)).toMatchObject({ error: { message: "boom", code: "INVOKE_FAILED" } });
    expect((await steps(runId))[0]).toMatchObject({ status: "STEP_STATUS_FAILED" });
  });

  test("an invoke that takes too long fails its step and leaves the child alone", async () => {
    const { worker, child, job, runId } = await begin("late");
    await worker.leave(job, "call", invoke("late", { invoke_timeout_ms: 60_000 }));
    const childJob = await next(child);
    await makeDue(runId);
    const again = await next(worker);
    expect(again.completed_steps).toMatchObject([
      {
        status: "failed",
        error: { code: "INVOKE_TIMEOUT", function_id: "late-child", child_run_id: childJob.run_id },
      },
    ]);
    expect(await run(childJob.run_id)).toMatchObject({ status: "RUN_STATUS_RUNNING" });
    // What comes too late changes nothing.
    await child.complete(childJob, "late");
    await move();
    expect(await steps(runId)).toMatchObject([{ status: "STEP_STATUS_FAILED" }]);
    await worker.complete(again);
  });

  test("a child that ends before its start was noted does not end the step that only started it", async () => {
    const { worker, child, job, runId } = await begin("hasty");
    await worker.leave(job, "call", invoke("hasty"));
    const childJob = await next(child);
    await startNoted(runId);
    // As if the step had asked for the start alone, and who started the child had died before it said so.
    await server.running.domain.store.write((session) =>
      session.run(sql`INSERT INTO invocations (parent_run_id, step_id, environment_id, function_id, kind, due_at, created_at)
        VALUES (${runId}, ${stepIdOf(job, "call")}, 'env_default', 'hasty-child', 'invoke_async', ${4e15}, 1)`),
    );
    await child.report(childJob, { status: "failed", error: { message: "boom", retryable: false } });
    await move();
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_PAUSED", pauseReason: "invoke" });
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE invocations SET due_at = 1 WHERE parent_run_id = ${runId}`),
    );
    await move();
    const again = await next(worker);
    expect(again.completed_steps).toMatchObject([
      { status: "completed", output: { run_id: childJob.run_id } },
    ]);
    await worker.complete(again);
  });

  test("a caller cannot name the key of a step", async () => {
    const { worker, child, job, runId } = await begin("named");
    const stepId = stepIdOf(job, "call");
    for (const method of ["Emit", "InvokeFunction"]) {
      const key = `invoke:${stepRowId(runId, stepId)}`;
      await rpc(method, {
        ...(method === "Emit" ? { event: "squats" } : { functionId: "named-child" }),
        idempotencyKey: key,
      });
    }
    await worker.leave(job, "call", invoke("named"));
    const childJob = await next(child);
    expect(await run(childJob.run_id)).toMatchObject({ parentRunId: runId });
    expect(childJob.event.idempotency_key).toBe(`invoke:${stepRowId(runId, stepId)}`);
    await child.complete(childJob, "own");
    const again = await next(worker);
    expect(again.completed_steps).toMatchObject([{ status: "completed", output: "own" }]);
    await worker.complete(again);
  });

  test("a child that a node of before 0.37 started and did not tell of is not started again", async () => {
    const { worker, child, job, runId } = await begin("older");
    const stepId = stepIdOf(job, "call");
    await worker.leave(job, "call", invoke("older"));
    const childJob = await next(child);
    const stored = `invoke:${stepRowId(runId, stepId)}`;
    const told = sql`SELECT step_id FROM invocations WHERE parent_run_id = ${runId}`;
    await until(async () => (await all(told)).length === 0, { about: "the start to be told of" });
    await server.running.domain.store.write(async (session) => {
      const moved = await session.run(sql`UPDATE idempotency_keys SET key = ${stored}
        WHERE environment_id = 'env_default' AND key = ${ownKeyMark + stored}`);
      expect(moved).toBe(1);
      await session.run(sql`UPDATE steps SET child_run_id = NULL, started_at = started_at - 60000
        WHERE run_id = ${runId} AND step_id = ${stepId}`);
      await session.run(sql`INSERT INTO invocations (parent_run_id, step_id, environment_id, function_id, kind, due_at,
          created_at) VALUES (${runId}, ${stepId}, 'env_default', 'older-child', 'invoke', 1, 1)`);
    });
    await move();
    expect(await all(sql`SELECT child_run_id FROM steps WHERE run_id = ${runId}`)).toEqual([
      { child_run_id: childJob.run_id },
    ]);
    expect(await all(sql`SELECT id FROM runs WHERE parent_run_id = ${runId}`)).toEqual([
      { id: childJob.run_id },
    ]);
    await child.complete(childJob, "once");
    await worker.complete(await next(worker));
  });

  test("an asynchronous invoke goes on as soon as its child is started", async () => {
    const { worker, child, job, runId } = await begin("fork");
    await worker.leave(job, "call", invoke("fork", { type: "invoke_function_async" }));
    const again = await next(worker);
    const childJob = await next(child);
    expect(again.completed_steps).toMatchObject([
      { status: "completed", output: { run_id: childJob.run_id } },
    ]);
    await worker.complete(again);
    expect(await run(childJob.run_id)).toMatchObject({ parentRunId: runId, status: "RUN_STATUS_RUNNING" });
    await child.complete(childJob);
    const ends = sql`SELECT * FROM child_ends WHERE child_run_id = ${childJob.run_id}`;
    await until(async () => (await all(ends)).length === 0, { about: "an end that nobody waits for" });
  });

  test("targets that no run may start are refused", async () => {
    const { worker, job, runId } = await begin("refused");
    await rpc("RegisterFunction", { id: "refused-gone" });
    const archived = await rpc("UpdateFunctionStatus", { id: "refused-gone", status: "archived" });
    expect(archived.code).toBeUndefined();
    let current: Assignment = job;
    for (const [place, functionId] of ["nothing", "refused", "refused-gone"].entries()) {
      await worker.leave(current, `call-${place}`, invoke("", { function_id: functionId }));
      current = await next(worker);
      expect(current.completed_steps[place]).toMatchObject({
        status: "failed",
        error: {
          code: "INVOKE_REFUSED",
          function_id: functionId,
          message: expect.stringContaining(functionId),
        },
      });
    }
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE runs SET depth = 32 WHERE id = ${runId}`),
    );
    await worker.leave(current, "deep", invoke("refused"));
    current = await next(worker);
    expect(current.completed_steps[3]).toMatchObject({
      error: { code: "INVOKE_REFUSED", message: expect.stringContaining("32") },
    });
    await worker.complete(current);
    expect(await all(sql`SELECT id FROM runs WHERE parent_run_id = ${runId}`)).toEqual([]);
  });

  test("one step starts one child, whatever crashes between its yield and its start", async () => {
    const { worker, child, job, runId } = await begin("once");
    await worker.leave(job, "call", invoke("once"));
    const childJob = await next(child);
    const { store } = server.running.domain;
    // As if the node had died before it wrote down what it had started, and then again.
    for (const forget of [true, false]) {
      await startNoted(runId);
      await store.write(async (session) => {
        if (forget) await session.run(sql`UPDATE steps SET child_run_id = NULL WHERE run_id = ${runId}`);
        await session.run(sql`INSERT INTO invocations (parent_run_id, step_id, environment_id, function_id, kind, due_at,
            created_at) VALUES (${runId}, ${stepIdOf(job, "call")}, 'env_default', 'once-child', 'invoke', 1, 1)`);
      });
      await move();
    }
    const started = await all<{ id: string }>(sql`SELECT id FROM runs WHERE parent_run_id = ${runId}`);
    expect(started).toEqual([{ id: childJob.run_id }]);
    expect(await all(sql`SELECT child_run_id FROM steps WHERE run_id = ${runId}`)).toEqual([
      { child_run_id: childJob.run_id },
    ]);
    await child.complete(childJob, "once");
    // As if the node had died when the child's end was told, and the run was resumed by hand meanwhile.
    const again = await next(worker);
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE steps SET status = 'waiting', output = NULL WHERE run_id = ${runId}`),
    );
    await worker.leave(again, "call", invoke("once"));
    const last = await next(worker);
    expect(last.completed_steps).toMatchObject([{ status: "completed", output: "once" }]);
    expect(await all(sql`SELECT id FROM runs WHERE parent_run_id = ${runId}`)).toHaveLength(1);
  });

  test("a child that is cancelled by an event tells why", async () => {
    const { worker, child, job } = await begin("stopped");
    await rpc("RegisterFunction", { id: "stopped-child", cancelOn: [{ event: "stopped.stop", match: "n" }] });
    await worker.leave(job, "call", invoke("stopped"));
    const childJob = await next(child);
    await rpc("Emit", { event: "stopped.stop", data: { n: 1 } });
    await server.running.tick("runs.matcher");
    const again = await next(worker);
    expect(again.completed_steps).toMatchObject([
      { status: "failed", error: { child_run_id: childJob.run_id, cause: "cancel-on-event" } },
    ]);
    await worker.complete(again);
  });

  test("many children at once each come back to their own parent", async () => {
    const { worker, child, job } = await begin("crowd");
    await worker.complete(job);
    const many = 40;
    await rpc("TriggerBatch", {
      events: Array.from({ length: many }, (_, n) => ({ event: "crowd.asked", data: { n } })),
    });
    const jobs: Assignment[] = [];
    await until(
      async () => {
        jobs.push(...(await worker.poll(many)));
        return jobs.length === many;
      },
      { about: "all jobs" },
    );
    await Promise.all(
      jobs.map((one) => worker.leave(one, "call", invoke("crowd", { input: one.event.data }))),
    );
    const children: Assignment[] = [];
    await until(
      async () => {
        children.push(...(await child.poll(many)));
        return children.length === many;
      },
      { about: "all jobs" },
    );
    await Promise.all(children.map((one) => child.complete(one, one.event.data)));
    const again: Assignment[] = [];
    await until(
      async () => {
        again.push(...(await worker.poll(many)));
        return again.length === many;
      },
      { about: "all jobs" },
    );
    for (const one of again) expect(one.completed_steps[0]?.output).toEqual(one.event.data);
    await Promise.all(again.map((one) => worker.complete(one)));
  });
});
