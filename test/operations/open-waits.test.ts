import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type Named, openWaitsOn } from "../support/open-waits.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("several waits of a run on %s", (engine) => {
  let server: TestServer;
  const { rpc, emit, steps, statuses, rows, tick, begin, named, leave, sleep, event, next, done } =
    openWaitsOn(() => server);

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  }, 30_000);
  afterAll(() => server.stop());

  test("the first that is met brings the run on; the others keep their deadlines", async () => {
    const { worker, job, runId } = await begin("first");
    const kept = sleep("long", 3_600_000);
    expect(await leave(worker, job, kept, sleep("short", 800))).toMatchObject({ status: 200 });
    expect(await rpc("GetRun", { id: runId })).toMatchObject({
      status: "RUN_STATUS_PAUSED",
      pauseReason: "sleep",
    });
    expect(await statuses(runId)).toEqual({ long: "sleeping", short: "sleeping" });
    const untilOf = async () =>
      (await steps(runId)).find(({ name }: { name: string }) => name === "long").sleepUntil;
    const before = await untilOf();
    const second = await next(worker);
    expect(done(second)).toEqual([["short", "completed"]]);
    expect(await leave(worker, second, sleep("long", 7_200_000), { name: "short" })).toMatchObject({
      status: 200,
    });
    // It names one that is over: the run goes on at once.
    const third = await next(worker);
    expect(await untilOf()).toBe(before);
    expect((await worker.complete(third)).status).toBe(200);
    expect(await rows("waits", runId)).toBe(0);
  });

  test("an event and a time race; what loses is dropped", async () => {
    const { worker, job, runId } = await begin("race");
    await leave(worker, job, event("answer", { event: "race.answer" }), sleep("limit", 3_600_000));
    await emit("race.answer", { n: 1 });
    await tick("runs.matcher");
    const second = await next(worker);
    expect(done(second)).toEqual([["answer", "completed"]]);
    expect(await statuses(runId)).toEqual({ answer: "completed", limit: "sleeping" });
    await leave(worker, second, event("other", { event: "race.other" }));
    expect(await statuses(runId)).toEqual({ answer: "completed", other: "waiting" });
    await emit("race.other");
    await tick("runs.matcher");
    await worker.complete(await next(worker));
    expect([await rows("waits", runId), await rows("executions", runId)]).toEqual([0, 0]);
  });

  test("what is met under a lease touches no run, and counts at the next yield", async () => {
    const { worker, job, runId } = await begin("leased");
    const waits = [event("a", { event: "leased.a" }), event("b", { event: "leased.b" })];
    await leave(worker, job, ...waits);
    await emit("leased.a");
    await tick("runs.matcher");
    const second = await next(worker);
    await emit("leased.b");
    await tick("runs.matcher");
    expect(await statuses(runId)).toEqual({ a: "completed", b: "completed" });
    expect(await rpc("GetRun", { id: runId })).toMatchObject({ status: "RUN_STATUS_RUNNING" });
    expect(done(second)).toEqual([["a", "completed"]]);
    expect(await leave(worker, second, { name: "b" })).toMatchObject({ status: 200 });
    const third = await next(worker);
    expect(done(third)).toEqual([
      ["a", "completed"],
      ["b", "completed"],
    ]);
    expect(third).toMatchObject({ attempt: 1, execution_seq: 3 });
    await worker.complete(third);
  });

  test("a run that fails before it was handed what is met has places for both when it is resumed", async () => {
    const { worker, job, runId } = await begin("unplaced");
    await leave(worker, job, event("a", { event: "unplaced.a" }), event("b", { event: "unplaced.b" }));
    await emit("unplaced.a");
    await tick("runs.matcher");
    const second = await next(worker);
    await emit("unplaced.b");
    await tick("runs.matcher");
    await worker.report(second, { status: "failed", error: { message: "no", retryable: false } });
    expect((await rpc("ResumeRun", { runId })).code).toBeUndefined();
    const third = await next(worker);
    expect(done(third)).toEqual([
      ["a", "completed"],
      ["b", "completed"],
    ]);
    expect(third.step_sequence_base).toBe(4);
    await worker.complete(third);
  });

  test("branches look at what came after their own last result", async () => {
    const { worker, job, runId } = await begin("after");
    await leave(worker, job, event("a", { event: "after.a" }), event("b", { event: "after.b" }));
    for (const name of ["a", "x", "b", "x"]) await emit(`after.${name}`, { name });
    await tick("runs.matcher");
    const second = await next(worker);
    expect(done(second)).toHaveLength(2);
    const x = { event: "after.x" };
    await leave(worker, second, event("xa", x, { after: "a" }), event("xb", x, { after: "b" }));
    await tick("runs.matcher");
    const found = new Map<string, string>();
    for (const step of await steps(runId)) found.set(step.name, step.output?.id);
    expect([found.get("xa") === undefined, found.get("xb") === undefined]).toEqual([false, false]);
    expect(found.get("xa")).not.toBe(found.get("xb"));
    await worker.complete(await next(worker));
  });

  test("a sleep that its worker ends takes its place behind what was there", async () => {
    const { worker, job } = await begin("placed");
    await leave(worker, job, event("x", { event: "placed.x" }), sleep("limit", 3_600_000));
    await emit("placed.x");
    await tick("runs.matcher");
    const second = await next(worker);
    const step = (name: string, type: string) => ({
      ...{ id: stepIdOf(second, name), name, type, status: "completed" },
      ...{ started_at: new Date().toISOString(), ended_at: new Date().toISOString() },
    });
    const report = await worker.report(second, {
      status: "yielded",
      steps: [step("charge", "invoke"), step("limit", "sleep")],
      yield: named(second, sleep("later", 1)),
      yields: [named(second, sleep("later", 1))],
    });
    expect(report.status).toBe(200);
    const third = await next(worker);
    expect(done(third).map(([name]) => name)).toEqual(["x", "charge", "limit", "later"]);
    await worker.complete(third);
  });

  test("an event is taken once, also behind a wait of its branch that timed out", async () => {
    const { worker, job, runId } = await begin("once");
    const other = event("other", { event: "once.other" });
    await leave(worker, job, event("x1", { event: "once.x" }), other);
    await emit("once.x", { n: 1 });
    await tick("runs.matcher");
    const second = await next(worker);
    const soon = { event: "once.x", timeout: "20ms", on_timeout: "null" };
    await leave(worker, second, event("x2", soon, { after: "x1" }), { name: "other" });
    const third = await until(
      async () => {
        await tick("runs.wake");
        return (await worker.poll())[0];
      },
      { about: "the timeout" },
    );
    expect(done(third).map(([name, status]) => [name, status])).toContainEqual(["x2", "timed_out"]);
    await leave(worker, third, event("x3", { event: "once.x" }, { after: "x2" }), { name: "other" });
    await tick("runs.matcher");
    expect(await statuses(runId)).toMatchObject({ x3: "waiting" });
    // Alone, held and resumed it looks no further back.
    await rpc("PauseRun", { runId });
    await rpc("ResumeRun", { runId });
    await tick("runs.matcher");
    expect((await statuses(runId)).x3).toBe("waiting");
    await rpc("CancelRun", { id: runId });
  });

  test("all waits whose time is over end together", async () => {
    const { worker, job } = await begin("timeouts");
    const names = Array.from({ length: 30 }, (_, at) => `w${at}`);
    const soon = { timeout: "20ms", on_timeout: "null" };
    await leave(worker, job, ...names.map((name) => event(name, { event: `timeouts.${name}`, ...soon })));
    const second = await until(
      async () => {
        await tick("runs.wake");
        return (await worker.poll())[0];
      },
      { about: "the timeouts" },
    );
    expect(second.completed_steps).toHaveLength(30);
    await worker.complete(second);
  });

  test("several conditions of two steps are met apart", async () => {
    const { worker, job } = await begin("many");
    const many = (name: string, mode: string, ...names: string[]): Named => ({
      ...{
        name,
        type: "wait_for_events",
        mode,
        conditions: names.map((one) => ({ name: one, event: `many.${one}` })),
      },
    });
    await leave(worker, job, many("both", "all", "a", "b"), many("any", "any", "c", "d"));
    await emit("many.a");
    await emit("many.c");
    await tick("runs.matcher");
    const second = await next(worker);
    expect(done(second)).toEqual([["any", "completed"]]);
    await leave(worker, second, { name: "both" });
    await emit("many.b");
    await tick("runs.matcher");
    const third = await next(worker);
    expect(third.completed_steps.find(({ name }) => name === "both")?.output).toMatchObject({ a: {}, b: {} });
    await worker.complete(third);
  });

  test("a wait that times out and says so leaves the others; a person ends the one that is due first", async () => {
    const { worker, job, runId } = await begin("late");
    const soon = event("soon", { event: "late.soon", timeout: "20ms", on_timeout: "null" });
    await leave(worker, job, soon, sleep("nap", 3_600_000), event("later", { event: "late.later" }));
    const second = await until(
      async () => {
        await tick("runs.wake");
        return (await worker.poll())[0];
      },
      { about: "the timeout" },
    );
    expect(done(second)).toEqual([["soon", "timed_out"]]);
    await leave(worker, second, { name: "nap" }, { name: "later" });
    expect(await rpc("ResumeRun", { runId, stepId: "none" })).toMatchObject({
      code: "failed_precondition",
      message: "stepId: the run sleeps at no step none",
    });
    await rpc("ResumeRun", { runId, stepId: stepIdOf(second, "nap") });
    const third = await next(worker);
    expect(done(third)).toEqual([
      ["soon", "timed_out"],
      ["nap", "completed"],
    ]);
    await leave(worker, third, event("later", { event: "late.later" }));
    await emit("late.later");
    await tick("runs.matcher");
    await worker.complete(await next(worker));
  });

  test("a held run keeps its waits; what came meanwhile counts", async () => {
    const { worker, job, runId } = await begin("held");
    await leave(worker, job, sleep("nap", 3_600_000), event("answer", { event: "held.answer" }));
    expect((await rpc("PauseRun", { runId })).code).toBeUndefined();
    await emit("held.answer");
    await tick("runs.matcher");
    expect(await statuses(runId)).toEqual({ nap: "sleeping", answer: "waiting" });
    await rpc("ResumeRun", { runId });
    const second = await next(worker);
    await leave(worker, second, sleep("nap", 1), event("answer", { event: "held.answer" }));
    await tick("runs.matcher");
    const third = await next(worker);
    expect(done(third)).toEqual([["answer", "completed"]]);
    await worker.complete(third);
  });

  test("while a node lives that knows no such runs, the one yield counts, and registrations say so", async () => {
    const { store } = server.running.domain;
    const register = async (name: string) =>
      (await pullWorker(server, `w-${name}`).register(name)).body.open_waits;
    const { worker, job, runId } = await begin("mixed");
    expect(await register("mixed")).toBe(true);
    if (engine === "libsql") return void (await worker.complete(job));
    await store.write((session) =>
      session.run(sql`INSERT INTO nodes (id, version, url, started_at, heartbeat_at, facts)
        VALUES ('node_old', '0.40.0', '', 0, 0, '{"knows":[]}')`),
    );
    const beat = async () =>
      (await server.api("/api/v1/workers/w-mixed/heartbeat", { body: { jobs: [] } })).body.open_waits;
    await until(async () => (await register("mixed")) === undefined, { about: "the older node to count" });
    expect(await beat()).toBeUndefined();
    await leave(worker, job, sleep("nap", 3_600_000), event("answer", { event: "mixed.answer" }));
    expect(await statuses(runId)).toEqual({ nap: "sleeping" });
    await store.write((session) => session.run(sql`DELETE FROM nodes WHERE id = 'node_old'`));
    // A worker that registered meanwhile learns of it.
    await until(async () => (await beat()) === true, { about: "the older node to be gone" });
    expect(await register("mixed")).toBe(true);
  });

  test("a cancel ends all of them; refusals name the wait", async () => {
    const { worker, job, runId } = await begin("refused");
    const refused = async (...waits: Named[]) => (await leave(worker, job, ...waits)).body.message;
    expect(await refused({ name: "unknown" })).toContain("yields[0].type: required");
    expect(await refused(sleep("a", 1), sleep("b", -1))).toContain("yields[1].duration_ms");
    expect(await refused(event("c", { event: "no name" }))).toContain("yields[0].event_filter.event");
    await leave(worker, job, sleep("nap", 3_600_000), event("answer", { event: "refused.answer" }));
    expect((await leave(worker, job, sleep("nap", 1))).body).toMatchObject({ error: "RUN_NOT_RUNNING" });
    expect((await rpc("CancelRun", { id: runId })).code).toBeUndefined();
    expect([await rows("waits", runId), await rows("executions", runId)]).toEqual([0, 0]);
  });
});
