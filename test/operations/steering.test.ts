import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("steering on %s", (engine) => {
  let server: TestServer;

  const call = (method: string, body: unknown, options: object = {}) =>
    server.rpc("SvcService", method, body, options);
  const rpc = async (method: string, body: unknown) => (await call(method, body)).body;
  const run = (id: string) => rpc("GetRun", { id });
  const steps = async (runId: string) => (await rpc("GetRunSteps", { runId })).steps ?? [];
  const write = (query: ReturnType<typeof sql>) =>
    server.running.domain.store.write((session) => session.run(query));
  const history = (runId: string) =>
    server.running.domain.store.all<{ type: string; sequence: number; detail: string }>(
      sql`SELECT type, sequence, detail FROM run_history WHERE run_id = ${runId} ORDER BY sequence`,
    );
  const begin = async (name: string, data: unknown = {}, definition: object = {}) => {
    await rpc("RegisterFunction", { id: name, triggers: [{ event: `${name}.asked` }], ...definition });
    const worker = pullWorker(server, `w-${name}`);
    await worker.register(name);
    await rpc("Emit", { event: `${name}.asked`, data });
    const [job] = await worker.poll();
    return { worker, job: job!, runId: job!.run_id };
  };
  const sleepFor = (ms: number) => ({ type: "sleep", until: new Date(Date.now() + ms).toISOString() });
  const waitFor = (event: string) => ({ type: "wait_for_event", event_filter: { event, timeout: "1h" } });
  const stepOf = (job: { run_id: string }, name: string, output: unknown, more: object = {}) => ({
    id: stepIdOf(job as never, name),
    name,
    type: "invoke",
    status: "completed",
    output,
    ...more,
  });
  /** The two minutes of an earlier resume are over. */
  const closeWindow = (runId: string) =>
    write(sql`UPDATE resumes SET resumed_at = resumed_at - 130000 WHERE run_id = ${runId}`);

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  });
  afterAll(() => server.stop());

  describe("CancelRun", () => {
    test("from every state that is not over; repeated it is a success", async () => {
      const states: [string, (begun: Awaited<ReturnType<typeof begin>>) => Promise<unknown>][] = [
        ["RUN_STATUS_RUNNING", async () => {}],
        ["RUN_STATUS_PAUSED", ({ worker, job }) => worker.leave(job, "nap", sleepFor(60_000))],
        ["RUN_STATUS_PAUSED", ({ worker, job }) => worker.leave(job, "wait", waitFor("never"))],
        [
          "RUN_STATUS_WAITING",
          ({ worker, job }) => worker.report(job, { status: "failed", error: { message: "x" } }),
        ],
      ];
      const retry = { maxAttempts: 3, initialDelayMs: 60_000, maxDelayMs: 60_000 };
      for (const [place, [status, bring]] of states.entries()) {
        const begun = await begin(`cancel-${place}`, {}, { retry });
        await bring(begun);
        expect((await run(begun.runId)).status).toBe(status);
        const first = await call("CancelRun", { id: begun.runId, reason: "enough" });
        expect(first.status).toBe(200);
        expect(first.body).toMatchObject({ status: "RUN_STATUS_CANCELLED", cancellationCause: "user" });
        expect((await call("CancelRun", { id: begun.runId })).body.status).toBe("RUN_STATUS_CANCELLED");
        expect((await begun.worker.complete(begun.job)).status).toBe(409);
        const rows = await history(begun.runId);
        expect(rows.at(-1)!.type).toBe("run.cancelled");
        expect(JSON.parse(rows.at(-1)!.detail)).toMatchObject({ cause: "user", reason: "enough" });
      }
    });

    test("queued, then unknown, then over", async () => {
      await rpc("RegisterFunction", { id: "cancel-queued", triggers: [{ event: "cancel-queued.asked" }] });
      const { runIds } = await rpc("Emit", { event: "cancel-queued.asked" });
      expect((await run(runIds[0])).status).toBe("RUN_STATUS_WAITING_FOR_CAPACITY");
      expect((await rpc("CancelRun", { id: runIds[0] })).status).toBe("RUN_STATUS_CANCELLED");
      expect(await call("CancelRun", { id: "run_none" })).toMatchObject({
        status: 404,
        body: { code: "not_found" },
      });
      const { worker, job, runId } = await begin("cancel-late");
      await worker.complete(job);
      expect((await call("CancelRun", { id: runId })).body.code).toBe("failed_precondition");
      const failed = await begin("cancel-failed");
      await failed.worker.report(failed.job, { status: "failed", error: { message: "x", retryable: false } });
      expect((await call("CancelRun", { id: failed.runId })).body.code).toBe("failed_precondition");
    });
  });

  describe("PauseRun", () => {
    test("a running run is held at its next report with steps; its fence opens nothing more", async () => {
      const { worker, job, runId } = await begin("pause-running");
      expect(await rpc("PauseRun", { run_id: runId })).toEqual({ status: "pause_requested" });
      expect((await run(runId)).status).toBe("RUN_STATUS_RUNNING");
      expect((await worker.report(job, { status: "progress", steps: [] })).status).toBe(200);
      expect((await run(runId)).status).toBe("RUN_STATUS_RUNNING");
      const progress = { status: "progress", steps: [stepOf(job, "one", { n: 1 })], step_offset: 0 };
      expect((await worker.report(job, progress)).status).toBe(200);
      expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_PAUSED", pauseReason: "injection" });
      expect((await steps(runId)).map((step: { name: string }) => step.name)).toEqual(["one"]);
      expect((await worker.complete(job)).body.error).toBe("RUN_NOT_RUNNING");
      expect(await rpc("PauseRun", { run_id: runId })).toEqual({ status: "paused" });
      expect(await worker.poll()).toEqual([]);
      expect((await rpc("ResumeRun", { runId })).status).toBe("RUN_STATUS_WAITING_FOR_CAPACITY");
      const [next] = await worker.poll();
      expect(next).toMatchObject({ run_id: runId, execution_seq: 2, attempt: 1 });
      expect(next!.completed_steps).toHaveLength(1);
      expect((await worker.complete(next!)).status).toBe(200);
    });

    test("a terminal report that arrives first wins", async () => {
      const { worker, job, runId } = await begin("pause-late");
      await rpc("PauseRun", { run_id: runId });
      expect((await worker.complete(job)).status).toBe(200);
      expect((await run(runId)).status).toBe("RUN_STATUS_COMPLETED");
      expect((await call("PauseRun", { run_id: runId })).body.code).toBe("failed_precondition");
      expect((await call("PauseRun", { run_id: "run_none" })).status).toBe(404);
    });

    test("a yield and a lease's end hold it as well", async () => {
      const yielded = await begin("pause-yield");
      await rpc("PauseRun", { run_id: yielded.runId });
      await yielded.worker.leave(yielded.job, "nap", sleepFor(50));
      expect((await run(yielded.runId)).pauseReason).toBe("injection");
      const lost = await begin("pause-lost");
      await rpc("PauseRun", { run_id: lost.runId });
      await write(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${lost.runId}`);
      await server.running.tick("runs.wake");
      expect((await run(lost.runId)).pauseReason).toBe("injection");
      // What a person holds is due at no time.
      await server.running.tick("runs.wake");
      expect((await run(yielded.runId)).pauseReason).toBe("injection");
    });

    test("a sleeping or waiting run is held at once, and its deadline passes unheard", async () => {
      const asleep = await begin("pause-asleep");
      await asleep.worker.leave(asleep.job, "nap", sleepFor(60_000));
      expect(await rpc("PauseRun", { run_id: asleep.runId })).toEqual({ status: "paused" });
      expect(await run(asleep.runId)).toMatchObject({
        status: "RUN_STATUS_PAUSED",
        pauseReason: "injection",
      });
      const { worker, job, runId } = await begin("pause-waiting");
      await worker.leave(job, "wait", waitFor("pause-waiting.go"));
      await rpc("PauseRun", { run_id: runId });
      await rpc("Emit", { event: "pause-waiting.go", data: { yes: true } });
      await server.running.tick("runs.matcher");
      expect((await run(runId)).pauseReason).toBe("injection");
      // It waits on, and finds what came meanwhile.
      await rpc("ResumeRun", { runId });
      await server.running.tick("runs.matcher");
      const [next] = await worker.poll();
      expect(next!.completed_steps[0]).toMatchObject({ output: { data: { yes: true } } });
      await worker.complete(next!);
    });
  });

  describe("paused state, injection and patches", () => {
    test("a held run shows its steps, and their outputs can be replaced", async () => {
      const { worker, job, runId } = await begin("inject");
      expect((await call("GetPausedState", { run_id: runId })).body.code).toBe("failed_precondition");
      await rpc("PauseRun", { run_id: runId });
      const list = [stepOf(job, "one", { n: 1 }), stepOf(job, "two", [2])];
      await worker.report(job, { status: "progress", steps: list, step_offset: 0 });
      const state = await rpc("GetPausedState", { run_id: runId });
      expect(state).toMatchObject({ pauseReason: "injection" });
      expect(state.steps.map((step: { name: string; output: string }) => [step.name, step.output])).toEqual([
        ["one", '{"n":1}'],
        ["two", "[2]"],
      ]);
      const [one] = state.steps;
      const inject = (stepId: string, newOutput: string) =>
        call("InjectStepOutput", { run_id: runId, step_id: stepId, new_output: newOutput, reason: "test" });
      expect((await inject(one.id, '{"n":5}')).body).toEqual({
        stepId: one.id,
        step_id: one.id,
        previousOutput: '{"n":1}',
        previous_output: '{"n":1}',
      });
      // By the SDK's id, and as base64, as other clients send it.
      const second = await inject(stepIdOf(job, "one"), Buffer.from('{"n":6}').toString("base64"));
      expect(second.body.previousOutput).toBe('{"n":5}');
      expect((await inject(one.id, "not json")).status).toBe(400);
      expect((await inject("step_none", "1")).status).toBe(404);
      const [shown] = await steps(runId);
      expect(shown).toMatchObject({
        output: { n: 6 },
        originalOutput: { n: 1 },
        patchedBy: "ak_admin_bootstrap",
      });
      expect((await rpc("GetPausedState", { run_id: runId })).steps[0].injected).toBe(true);
      await rpc("ResumeRun", { runId });
      const [next] = await worker.poll();
      expect(next!.completed_steps[0]).toMatchObject({ output: { n: 6 } });
      await worker.complete(next!);
      const patches = (await history(runId)).filter((row) => row.type === "step.patched");
      expect(JSON.parse(patches[0]!.detail)).toEqual({
        step_id: stepIdOf(job, "one"),
        previous_output: { n: 1 },
        had_output: true,
        output: { n: 5 },
        reason: "test",
        actor_id: "ak_admin_bootstrap",
        injected: true,
      });
      expect((await inject(one.id, "1")).body.code).toBe("failed_precondition");
    });

    test("completed and failed steps of any run can be patched; others cannot", async () => {
      const { worker, job, runId } = await begin("patch");
      const failed = stepOf(job, "bad", undefined, { status: "failed", error: { message: "no" } });
      await worker.report(job, {
        status: "failed",
        error: { message: "no", retryable: false },
        steps: [stepOf(job, "good", 1), failed],
        step_offset: 0,
      });
      const [good, bad] = await steps(runId);
      const patched = await call("PatchStep", { stepId: bad.id, output: { fixed: true }, reason: "by hand" });
      expect(patched.body).toMatchObject({ status: "STEP_STATUS_COMPLETED", output: { fixed: true } });
      expect(patched.body.error).toBeUndefined();
      expect((await call("PatchStep", { step_id: good.stepId, output: "text" })).body.outputValue).toBe(
        "text",
      );
      expect((await call("PatchStep", { stepId: good.id })).body.message).toStartWith("output: ");
      expect((await call("PatchStep", { stepId: "step_nothing", output: 1 })).status).toBe(404);
      const asleep = await begin("patch-asleep");
      await asleep.worker.leave(asleep.job, "nap", sleepFor(60_000));
      const [nap] = await steps(asleep.runId);
      expect((await call("PatchStep", { stepId: nap.id, output: 1 })).body.code).toBe("failed_precondition");
    });

    test("who loses against another writer is told so, and nothing is written", async () => {
      const { worker, job, runId } = await begin("contended");
      await worker.report(job, { status: "completed", steps: [stepOf(job, "one", 0)], step_offset: 0 });
      const [one] = await steps(runId);
      const answers = await Promise.all(
        Array.from({ length: 8 }, (_, n) => call("PatchStep", { stepId: one.id, output: { n } })),
      );
      const lost = answers.filter((answer) => answer.status !== 200);
      expect(answers.filter((answer) => answer.status === 200).length).toBeGreaterThan(0);
      for (const answer of lost) {
        expect(answer.body.code).toBe("aborted");
        expect(answer.headers.get("svc-error-reason")).toBe("contended");
        expect(answer.headers.get("retry-after")).toBe("1");
      }
      const patches = (await history(runId)).filter((row) => row.type === "step.patched");
      expect(patches.length).toBe(answers.length - lost.length);
    });
  });

  describe("ResumeRun", () => {
    test("a failed run goes on with one attempt more, above every fence it had", async () => {
      const { worker, job, runId } = await begin("resume-failed", {}, { retry: { maxAttempts: 1 } });
      await worker.report(job, {
        status: "failed",
        error: { message: "x" },
        steps: [stepOf(job, "one", 1), stepOf(job, "two", 2)],
        step_offset: 0,
      });
      expect((await run(runId)).status).toBe("RUN_STATUS_FAILED");
      const resumed = await rpc("ResumeRun", { runId });
      expect(resumed.status).toBe("RUN_STATUS_WAITING_FOR_CAPACITY");
      expect(Date.parse(resumed.updatedAt)).toBeLessThan(Date.now() + 1_000);
      const [next] = await worker.poll();
      expect(next).toMatchObject({ run_id: runId, attempt: 2, execution_seq: 2, step_sequence_base: 2 });
      expect(next!.completed_steps).toHaveLength(2);
      expect((await worker.complete(job)).status).toBe(409);
      expect((await worker.complete(next!)).status).toBe(200);
      expect((await run(runId)).status).toBe("RUN_STATUS_COMPLETED");
      const sequences = (await history(runId)).map((row) => row.sequence);
      expect(sequences).toEqual(sequences.map((_, at) => at + 1));
    });

    test("from a step: it and later ones are done again", async () => {
      const { worker, job, runId } = await begin("resume-from", {}, { retry: { maxAttempts: 1 } });
      await worker.report(job, {
        status: "failed",
        error: { message: "x" },
        steps: [stepOf(job, "one", 1), stepOf(job, "two", 2), stepOf(job, "three", 3)],
        step_offset: 0,
      });
      const other = await begin("resume-other");
      await other.worker.report(other.job, {
        status: "completed",
        steps: [stepOf(other.job, "strange", 1)],
        step_offset: 0,
      });
      const [strange] = await steps(other.runId);
      for (const fromStep of ["nowhere", strange.id, strange.stepId])
        expect((await call("ResumeRun", { runId, fromStep })).status).toBe(404);
      expect((await call("ResumeRun", { runId, fromStep: "two" })).status).toBe(200);
      const [next] = await worker.poll();
      expect(next!.completed_steps.map((step: { name: string }) => step.name)).toEqual(["one"]);
      expect((await steps(runId)).map((step: { name: string }) => step.name)).toEqual(["one"]);
      const resumed = (await history(runId)).find((row) => row.type === "run.resumed");
      expect(JSON.parse(resumed!.detail).discarded).toMatchObject([
        { name: "two", status: "completed", output: "2" },
        { name: "three", status: "completed", output: "3" },
      ]);
    });

    test("skipSleep says whether a sleep ends: held, or not", async () => {
      const { worker, job, runId } = await begin("skip-sleep");
      await worker.leave(job, "nap", sleepFor(60_000));
      const kept = await call("ResumeRun", { runId, skipSleep: false });
      expect([kept.status, kept.body.message]).toEqual([
        400,
        "the run sleeps and is not held: skipSleep ends its sleep",
      ]);
      await rpc("PauseRun", { runId });
      expect(await rpc("ResumeRun", { runId, skipSleep: true })).toMatchObject({
        status: "RUN_STATUS_WAITING_FOR_CAPACITY",
      });
      expect(await steps(runId)).toMatchObject([{ name: "nap", status: "STEP_STATUS_COMPLETED" }]);
    });

    test("a sleep is over early", async () => {
      const { worker, job, runId } = await begin("resume-sleep");
      await worker.leave(job, "nap", sleepFor(60_000));
      await rpc("ResumeRun", { runId });
      const [next] = await worker.poll();
      expect(next!.completed_steps).toEqual([
        { step_id: stepIdOf(job, "nap"), name: "nap", output: null, status: "completed" },
      ]);
    });

    test("a second one within two minutes is refused, whatever the run does; later it is not", async () => {
      const { worker, job, runId } = await begin("resume-twice");
      await worker.leave(job, "nap", sleepFor(60_000));
      expect((await call("ResumeRun", { runId })).status).toBe(200);
      const second = await call("ResumeRun", { runId });
      expect(second).toMatchObject({ status: 409, body: { code: "already_exists" } });
      await closeWindow(runId);
      expect((await call("ResumeRun", { runId })).body.code).toBe("failed_precondition");
      const left = async () => {
        // Only the node that leads the duty forgets.
        for (const loop of ["cluster.lead", "runs.resumes"]) await server.running.tick(loop);
        return server.running.domain.store.all(sql`SELECT run_id FROM resumes WHERE run_id = ${runId}`);
      };
      await until(async () => (await left()).length === 0, { about: "the resume to be forgotten" });
    });

    test("running, queued, completed and unknown runs cannot be resumed", async () => {
      const { worker, job, runId } = await begin("resume-not");
      expect((await call("ResumeRun", { runId })).body.code).toBe("failed_precondition");
      await worker.complete(job);
      expect((await call("ResumeRun", { runId })).body.code).toBe("failed_precondition");
      expect((await call("ResumeRun", { runId: "run_none" })).status).toBe(404);
      expect((await call("ResumeRun", {})).status).toBe(400);
    });

    test("a node that dies between the two halves leaves the rest to the wake loop", async () => {
      const { worker, job, runId } = await begin("resume-crash");
      await worker.leave(job, "nap", sleepFor(60_000));
      // As the first half leaves it: to be healed a while later.
      const healAt = Date.now() + 60_000;
      await write(sql`UPDATE executions SET state = 'resuming', wake_at = ${healAt} WHERE run_id = ${runId}`);
      const plan = {
        from: "sleeping",
        sleptStepId: stepIdOf(job, "nap"),
        nextAttempt: false,
      };
      await write(sql`INSERT INTO resumes (run_id, environment_id, resumed_at, resumed_by, plan)
        VALUES (${runId}, 'env_default', ${Date.now()}, 'ak_test', ${JSON.stringify(plan)})`);
      expect((await run(runId)).status).toBe("RUN_STATUS_RUNNING");
      await write(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${runId}`);
      await server.running.tick("runs.wake");
      const [next] = await worker.poll();
      expect(next!.completed_steps).toHaveLength(1);
    });
  });

  test("viewers steer nothing; another environment's run looks like none", async () => {
    const { runId } = await begin("rights");
    const { keys, tenancy } = server.running.domain;
    const keyOf = async (roleIds: string[], environmentId = "env_default") =>
      (await keys.create({ orgId: "org_default", environmentId, name: "t", roleIds })).key;
    const viewer = await keyOf(["role_viewer"]);
    const elsewhere = await tenancy.createEnvironment({ orgId: "org_default", name: `other-${engine}` });
    const stranger = await keyOf(["role_admin"], elsewhere.id);
    for (const [method, body] of [
      ["CancelRun", { id: runId }],
      ["PauseRun", { run_id: runId }],
      ["ResumeRun", { runId }],
      ["InjectStepOutput", { run_id: runId, step_id: "s", new_output: "1" }],
      ["PatchStep", { stepId: `${runId}:one:0`, output: 1 }],
    ] as const) {
      expect((await call(method, body, { key: viewer })).status).toBe(403);
      expect((await call(method, body, { key: stranger })).status).toBe(404);
    }
    expect((await call("GetPausedState", { run_id: runId }, { key: stranger })).status).toBe(404);
    expect((await run(runId)).status).toBe("RUN_STATUS_RUNNING");
  });
});
