import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { dropWaits } from "../../src/domain/engine/runs/waits/drop-waits.ts";
import { sql } from "../../src/kit/sql.ts";
import { type Assignment, pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("waits on %s", (engine) => {
  let server: TestServer;

  const rpc = async (method: string, body: unknown) => (await server.rpc("SvcService", method, body)).body;
  const emit = (event: string, data: unknown = {}, more: object = {}) =>
    rpc("Emit", { event, data, ...more });
  const run = (id: string) => rpc("GetRun", { id });
  const steps = async (runId: string) => (await rpc("GetRunSteps", { runId })).steps ?? [];
  const match = () => server.running.tick("runs.matcher");
  const count = async (table: string, runId: string) =>
    (await server.running.domain.store.all(sql`SELECT * FROM ${sql.raw(table)} WHERE run_id = ${runId}`))
      .length;
  /** A function with a worker of its own and a job of it. */
  const begin = async (name: string, data: unknown = {}, definition: object = {}) => {
    await rpc("RegisterFunction", { id: name, triggers: [{ event: `${name}.asked` }], ...definition });
    const worker = pullWorker(server, `w-${name}`);
    await worker.register(name);
    await emit(`${name}.asked`, data);
    const [job] = await worker.poll();
    return { worker, job: job!, runId: job!.run_id };
  };
  const waitFor = (filter: object) => ({ type: "wait_for_event", event_filter: filter });
  const makeDue = async (runId: string) => {
    const { store } = server.running.domain;
    const state = async () =>
      (await store.one<{ state: string }>(sql`SELECT state FROM executions WHERE run_id = ${runId}`))?.state;
    const before = await state();
    const due = sql`UPDATE executions SET wake_at = ${sql.bigint(Date.now())} WHERE run_id = ${runId}`;
    await store.write((session) => session.run(due));
    // The server's clock may be a little behind, and a look that took long puts a wait off.
    for (let now = before; now === before && now !== "queued"; now = await state())
      await server.running.tick("runs.wake");
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  }, 120_000);
  afterAll(() => server.stop());

  test("a wait ends with its event, which is the output of the step", async () => {
    const { worker, job, runId } = await begin("plain");
    const filter = { event: "plain.paid", timeout: "2h", payload: { ask: "boss" } };
    expect(await worker.leave(job, "wait", waitFor(filter))).toMatchObject({ status: 200 });
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_PAUSED", pauseReason: "wait_event" });
    const [step] = await steps(runId);
    expect(step).toMatchObject({
      stepId: stepIdOf(job, "wait"),
      name: "wait",
      stepType: "STEP_TYPE_WAIT_FOR_EVENT",
      status: "STEP_STATUS_WAITING",
      waitEventName: "plain.paid",
      input: { ask: "boss" },
    });
    const left = Date.parse(step.waitTimeout) - Date.now();
    expect(left).toBeGreaterThan(7_100_000);
    expect(left).toBeLessThan(7_300_000);
    expect((await rpc("ListRuns", { functionId: "plain", status: "paused" })).runs).toHaveLength(1);
    expect((await worker.complete(job)).body).toMatchObject({ error: "RUN_NOT_RUNNING" });
    await emit("plain.other");
    await match();
    expect(await worker.poll()).toEqual([]);
    const more = { metadata: { by: "test" }, version: 2, idempotencyKey: "plain-key" };
    const { eventId } = await emit("plain.paid", { amount: 5 }, more);
    await match();
    const [next] = await worker.poll();
    expect(next).toMatchObject({ run_id: runId, attempt: 1, execution_seq: 2, step_sequence_base: 1 });
    expect(next!.completed_steps).toEqual([
      {
        step_id: stepIdOf(job, "wait"),
        name: "wait",
        status: "completed",
        output: {
          id: eventId,
          name: "plain.paid",
          version: 2,
          data: { amount: 5 },
          timestamp: expect.stringMatching(/Z$/),
          source: "api",
          metadata: { by: "test" },
          idempotencyKey: "plain-key",
        },
      },
    ]);
    expect(await count("waits", runId)).toBe(0);
    expect(await worker.complete(next!, "done")).toMatchObject({ status: 200 });
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_COMPLETED", outputValue: "done" });
  });

  test("every form of match picks its event and leaves the others", async () => {
    const forms: [string, object, unknown, unknown][] = [
      ["bare", { match: "orderId" }, { orderId: "other" }, { orderId: "o1" }],
      ["data", { match: "data.orderId" }, { orderId: "other" }, { orderId: "o1" }],
      ["event-data", { match: "event.data.orderId" }, {}, { orderId: "o1" }],
      ["dollar", { match: "$.data.orderId" }, { orderId: 1 }, { orderId: "o1" }],
      ["nested", { match: "data.a.b.0" }, { a: { b: [8] } }, { a: { b: [7, 8] } }],
      ["object", { match: "data.deep" }, { deep: { x: 1 } }, { deep: { y: 2, x: 1 } }],
      ["value", { match: "orderId", match_value: "lit" }, { orderId: "o1" }, { orderId: "lit" }],
      ["number", { match: "data.n", match_value: 4 }, { n: "4" }, { n: 4.0 }],
      ["equal", { match: 'data.runId == "r1"' }, { runId: "r2" }, { runId: "r1" }],
      ["single", { match: "event.data.runId=='r1'" }, { runId: null }, { runId: "r1" }],
      ["true", { match: "data.ok == true" }, { ok: "true" }, { ok: true }],
      ["cel", { match: 'data.n > 3 && event.name == "forms.cel"' }, { n: 3 }, { n: 4 }],
      ["cel-miss", { match: "data.list.exists(x, x == 2)" }, {}, { list: [1, 2] }],
      ["any", {}, undefined, {}],
    ];
    const trigger = { orderId: "o1", a: { b: [7] }, deep: { x: 1, y: 2 } };
    const begun = [];
    for (const [name, filter, miss, hit] of forms) {
      const one = await begin(`form-${name}`, trigger);
      const answer = await one.worker.leave(
        one.job,
        "w",
        waitFor({ event: `forms.${name}`, timeout: 60_000, ...filter }),
      );
      expect([name, answer.status, answer.body]).toEqual([name, 200, expect.anything()]);
      begun.push({ ...one, name, miss, hit });
    }
    for (const { name, miss } of begun) if (miss !== undefined) await emit(`forms.${name}`, miss);
    await match();
    for (const { name, worker } of begun) expect([name, await worker.poll()]).toEqual([name, []]);
    for (const { name, hit } of begun) await emit(`forms.${name}`, hit);
    await match();
    for (const { name, worker, hit } of begun) {
      const [job] = await worker.poll();
      expect([name, job?.completed_steps[0]?.output]).toMatchObject([name, { data: hit }]);
    }
  });

  test("what cannot be a wait is refused, and the run stays with its worker", async () => {
    const { worker, job, runId } = await begin("refused");
    const bad: [string, object][] = [
      ["yield.event_filter", { type: "wait_for_event" }],
      ["yield.event_filter.event", waitFor({ event: "" })],
      ["yield.event_filter.event", waitFor({ event: "a b" })],
      ["yield.event_filter.match", waitFor({ event: "e", match: "data.x ==" })],
      ["yield.event_filter.match", waitFor({ event: "e", match: "unknown.x == 1 && true" })],
      ["yield.event_filter.match", waitFor({ event: "e", match_value: 1 })],
      ["yield.event_filter.match", waitFor({ event: "e", match: "data.x > 1", match_value: 1 })],
      ["yield.event_filter.timeout", waitFor({ event: "e", timeout: "soon" })],
      ["yield.event_filter.timeout", waitFor({ event: "e", timeout: "999d" })],
      ["yield.event_filter.timeout", waitFor({ event: "e", timeout: "0s" })],
      ["yield.type", { type: "wait_for_godot" }],
      ["yield.function_id", { type: "invoke_function" }],
    ];
    for (const [field, yielded] of bad) {
      const answer = await worker.leave(job, "w", yielded);
      expect([answer.status, answer.body.error]).toEqual([400, expect.anything()]);
      expect(answer.body.message).toContain(`${field}:`);
    }
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_RUNNING" });
    expect(await steps(runId)).toEqual([]);
  });

  test("a path that the triggering event does not have fails the run at once", async () => {
    const { worker, job, runId } = await begin("unresolved", { order: {} });
    await worker.leave(job, "w", waitFor({ event: "unresolved.x", match: "order.id" }));
    expect(await run(runId)).toMatchObject({
      status: "RUN_STATUS_FAILED",
      attempt: 1,
      error: { code: "WAIT_MATCH_UNRESOLVED", message: expect.stringContaining("data.order.id") },
    });
    expect(await steps(runId)).toMatchObject([{ status: "STEP_STATUS_FAILED" }]);
  });

  test("an event between the trigger and the yield counts, one before the trigger does not", async () => {
    await emit("late.paid", { n: "before" });
    const { worker, job } = await begin("late", { k: 1 });
    await emit("late.paid", { k: 2, n: "other" });
    await emit("late.paid", { k: 1, n: "between" });
    await worker.leave(job, "one", waitFor({ event: "late.paid", match: "k" }));
    await match();
    const [second] = await worker.poll();
    expect(second!.completed_steps).toMatchObject([{ output: { data: { n: "between" } } }]);
    // The same event ends no second wait; one that came after it does, though it came before the yield.
    await emit("late.paid", { k: 1, n: "next" });
    await worker.leave(second!, "two", waitFor({ event: "late.paid", match: "data.k == 1" }));
    await match();
    const [third] = await worker.poll();
    expect(third!.completed_steps[1]).toMatchObject({ output: { data: { n: "next" } } });
    await worker.leave(third!, "three", waitFor({ event: "late.paid", match: "data.k > 0" }));
    await match();
    expect(await worker.poll()).toEqual([]);
    await emit("late.paid", { k: 1, n: "last" });
    await match();
    expect((await worker.poll())[0]!.completed_steps[2]).toMatchObject({ output: { data: { n: "last" } } });
  });

  test("a lease that ends keeps what was seen; a sleep that ends does not look back", async () => {
    const { worker, job, runId } = await begin("leased");
    await emit("leased.paid", { n: 1 });
    await makeDue(runId);
    const [again] = await worker.poll();
    expect((await worker.leave(job, "w", waitFor({ event: "leased.paid" }))).status).toBe(409);
    const wakeAt = new Date(Date.now() + 60_000).toISOString();
    await worker.leave(again!, "nap", { type: "sleep", until: wakeAt });
    await makeDue(runId);
    const [woken] = await worker.poll();
    await worker.leave(woken!, "w", waitFor({ event: "leased.paid" }));
    await match();
    expect(await worker.poll()).toEqual([]);
    const second = await begin("leased-2");
    await emit("leased.paid", { n: 2 });
    await makeDue(second.runId);
    const [held] = await second.worker.poll();
    await second.worker.leave(held!, "w", waitFor({ event: "leased.paid" }));
    await match();
    expect((await second.worker.poll())[0]!.completed_steps).toMatchObject([{ output: { data: { n: 2 } } }]);
  });

  test("one event wakes several waits, starts a run and cancels another", async () => {
    const both = await Promise.all(["many-1", "many-2"].map((name) => begin(name, { id: 7 })));
    for (const { worker, job } of both)
      await worker.leave(job, "w", waitFor({ event: "many.done", match: "id" }));
    const loser = await begin(
      "many-loser",
      { id: 7 },
      { cancelOn: [{ event: "many.done", match: "data.id" }] },
    );
    const other = await begin(
      "many-other",
      { id: 8 },
      { cancelOn: [{ event: "many.done", match: "$.data.id" }] },
    );
    await rpc("RegisterFunction", { id: "many-started", triggers: [{ event: "many.done" }] });
    const { runIds } = await emit("many.done", { id: 7 });
    expect(runIds).toHaveLength(1);
    await match();
    for (const { worker } of both) expect(await worker.poll()).toHaveLength(1);
    expect(await run(loser.runId)).toMatchObject({
      status: "RUN_STATUS_CANCELLED",
      cancellationCause: "cancel-on-event",
    });
    expect((await loser.worker.complete(loser.job)).body).toMatchObject({ error: "RUN_NOT_RUNNING" });
    expect(await run(other.runId)).toMatchObject({ status: "RUN_STATUS_RUNNING" });
    expect(await count("waits", loser.runId)).toBe(0);
    expect(await count("waits", other.runId)).toBe(1);
    await other.worker.complete(other.job);
    expect(await count("waits", other.runId)).toBe(0);
  });

  test("cancel-on ends a run wherever it stands, but never by the event that starts it", async () => {
    const cancelOn = [
      { event: "self.asked", match: "" },
      { event: "self.stop", match: 'data.why == "test"' },
    ];
    const { worker, job, runId } = await begin("self", { a: 1 }, { cancelOn });
    await match();
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_RUNNING" });
    await worker.leave(job, "w", waitFor({ event: "self.never" }));
    await emit("self.stop", { why: "no" });
    await match();
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_PAUSED" });
    await emit("self.stop", { why: "test" });
    await match();
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_CANCELLED" });
    expect(await count("waits", runId)).toBe(0);
    expect(await count("executions", runId)).toBe(0);
    const { runIds } = await emit("self.asked");
    await match();
    expect(await run(runIds[0])).toMatchObject({ status: "RUN_STATUS_WAITING_FOR_CAPACITY" });
    await emit("self.asked");
    await match();
    expect(await run(runIds[0])).toMatchObject({ status: "RUN_STATUS_CANCELLED" });
    const bad = { id: "bad-cancel", cancelOn: [{ event: "x", match: "data.x ==" }] };
    const { body } = await server.rpc("SvcService", "RegisterFunction", bad);
    expect(body.message).toContain("cancelOn[0].match");
  });

  test("a wait that times out fails its run, and is not retried", async () => {
    const { worker, job, runId } = await begin("slow", {}, { retry: { maxAttempts: 5 } });
    await worker.leave(job, "w", waitFor({ event: "slow.paid", timeout: "90s" }));
    await makeDue(runId);
    expect(await run(runId)).toMatchObject({
      status: "RUN_STATUS_FAILED",
      attempt: 1,
      error: { code: "WAIT_TIMEOUT", message: expect.stringContaining("timed out waiting") },
    });
    expect(await steps(runId)).toMatchObject([{ status: "STEP_STATUS_TIMED_OUT" }]);
    expect(await count("waits", runId)).toBe(0);
    const second = await begin("slow-2");
    await second.worker.leave(second.job, "w", waitFor({ event: "slow.paid" }));
    await emit("slow.paid");
    // The event was there before anybody noticed that the time was over.
    await makeDue(second.runId);
    expect(await run(second.runId)).toMatchObject({ status: "RUN_STATUS_WAITING_FOR_CAPACITY" });
  });

  test("the same wait yielded again looks back as before, and nobody else's environment is looked at", async () => {
    const { worker, job, runId } = await begin("again");
    await worker.leave(job, "w", waitFor({ event: "again.paid" }));
    const { store } = server.running.domain;
    // As a person's resume does it: the handler enters again and finds itself where it was.
    await store.write(async (session) => {
      await session.run(
        sql`UPDATE executions SET state = 'queued', wake_at = ${Date.now()}, waiting_step_id = NULL WHERE run_id = ${runId}`,
      );
      await dropWaits(session, [runId]);
    });
    await emit("again.paid", { n: 1 });
    const [next] = await worker.poll();
    expect(next!.completed_steps).toEqual([]);
    await worker.leave(next!, "w", waitFor({ event: "again.paid" }));
    await match();
    expect((await worker.poll())[0]!.completed_steps).toMatchObject([{ output: { data: { n: 1 } } }]);
    expect(await steps(runId)).toHaveLength(1);
  });

  test("thousands that wait for one event are woken in slices", async () => {
    const many = 2_300;
    const { worker, job, runId } = await begin("crowd");
    await worker.leave(job, "w", waitFor({ event: "crowd.paid", match: 'data.go == "now"' }));
    await match();
    const { store } = server.running.domain;
    await store.write(async (session) => {
      const numbers = session.seams.rowsFrom("n", {
        copy: { type: "text", array: Array.from({ length: many - 1 }, (_, at) => `run_crowd${at}`) },
      });
      const copies: [string, string, string][] = [
        [
          "runs",
          "id",
          "environment_id, function_id, function_version, event_id, event_name, mode, status, attempt, max_attempts, created_at, updated_at, execution_seq",
        ],
        [
          "waits",
          "run_id",
          "kind, step_id, environment_id, event_name, match_path, value_hash, expression, from_position, fresh_at",
        ],
        [
          "steps",
          "run_id",
          "step_id, environment_id, name, type, sequence, status, attempt, created_at, updated_at",
        ],
        [
          "executions",
          "run_id",
          "environment_id, function_id, function_version, state, wake_at, execution_seq, attempt, max_attempts, step_count, history_count, lost_count, waiting_step_id, seen_position",
        ],
      ];
      for (const [table, key, columns] of copies)
        await session.run(sql`INSERT INTO ${sql.raw(table)} (${sql.raw(key)}, ${sql.raw(columns)})
          SELECT n.copy, ${sql.raw(columns)} FROM ${sql.raw(table)} CROSS JOIN ${numbers} WHERE ${sql.raw(key)} = ${runId}`);
    });
    await emit("crowd.paid", { go: "now" });
    const inState = async (state: string) =>
      (await store.all(sql`SELECT run_id FROM executions WHERE function_id = 'crowd' AND state = ${state}`))
        .length;
    const isWoken = async () => match().then(async () => (await inState("waiting")) === 0);
    await until(isWoken, { about: "all to be woken" });
    expect(await inState("queued")).toBe(many);
    expect(await store.all(sql`SELECT run_id FROM waits WHERE event_name = 'crowd.paid'`)).toEqual([]);
    const outputs = await store.all<{ output: string }>(
      sql`SELECT DISTINCT output FROM steps WHERE run_id LIKE 'run_crowd%' AND status = 'completed'`,
    );
    expect(outputs.map((row) => JSON.parse(row.output).data)).toEqual([{ go: "now" }]);
  });

  test("an environment without waits has no matcher", async () => {
    const { store, tenancy } = server.running.domain;
    const quiet = await tenancy.createEnvironment({ orgId: "org_default", name: "quiet" });
    const rows = await store.all<{ environment_id: string }>(sql`SELECT environment_id FROM matchers`);
    expect(rows.map((row) => row.environment_id)).not.toContain(quiet.id);
    expect(rows).toHaveLength(1);
  });

  test("seven in parallel: a yield of any step, one after the other", async () => {
    const { worker, job, runId } = await begin("parallel");
    let current: Assignment = job;
    for (let branch = 0; branch < 7; branch++) {
      await worker.report(current, {
        status: "yielded",
        yield: {
          step_id: `${runId}:all:${branch}:w:0`,
          ...waitFor({ event: "parallel.done", match: "data.branch", match_value: branch }),
        },
      });
      await emit("parallel.done", { branch });
      // A match that takes long on a busy machine goes on beside the loop.
      current = await until(
        async () => {
          await match();
          return (await worker.poll())[0];
        },
        { about: "the woken run" },
      );
      expect(current.completed_steps).toHaveLength(branch + 1);
    }
    await worker.complete(current);
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_COMPLETED" });
  });
});
