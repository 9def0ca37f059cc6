import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { debounceCheck } from "../../src/domain/engine/debounce/service.ts";
import { runChecks, statesCheck } from "../../src/domain/engine/runs/invariants.ts";
import { wakeDue } from "../../src/domain/engine/runs/wakes/due.ts";
import { openSweep } from "../../src/domain/engine/runs/wakes/sweep.ts";
import { scheduleChecks } from "../../src/domain/engine/schedules/service.ts";
import { testClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import { pullWorker } from "../support/pull-worker.ts";
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
  const poll = async () => {
    const ask = async () => (await server.api("/api/v1/workers/w/jobs?available=1")).body?.jobs;
    return (await until(ask, { about: "a job" }))[0];
  };
  const finish = ({ execution_seq, lease_token, job_id }: Awaited<ReturnType<typeof poll>>) =>
    server.api(`/api/v1/workers/w/jobs/${job_id}`, {
      method: "PUT",
      body: { status: "completed", execution_seq, lease_token },
    });
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
      definitionOf: () => Promise.reject(new Error("nothing lost its execution")),
    });
    await sweep(store.write);
    expect(seen).toEqual([runId]);
    expect(await overdue.run("env_default")).toEqual({ count: 0, oldest: null });
    await write(sql`DELETE FROM executions WHERE run_id = ${runId}`);
    await write(sql`DELETE FROM runs WHERE id = ${runId}`);
  });

  test("a run that a person holds is held again, and goes on when it is let", async () => {
    const runId = await emit();
    expect((await server.rpc("SvcService", "PauseRun", { runId })).body.status).toBe("paused");
    const before = (await check("runs.without_execution")).healed;
    await write(sql`DELETE FROM executions WHERE run_id = ${runId}`);
    await healed("runs.without_execution", before + 1);
    const { body } = await server.rpc("SvcService", "GetRun", { id: runId });
    expect(body).toMatchObject({ status: "RUN_STATUS_PAUSED", pauseReason: "injection" });
    // Once more: its own restoration does not hide who holds it.
    await write(sql`DELETE FROM executions WHERE run_id = ${runId}`);
    await healed("runs.without_execution", before + 2);
    expect((await server.api("/api/v1/workers/w/jobs?available=1")).status).toBe(204);
    expect((await server.rpc("SvcService", "ResumeRun", { runId })).status).toBe(200);
    const job = await poll();
    expect(job.run_id).toBe(runId);
    await finish(job);
  });

  test("a run that slept sleeps on until its time", async () => {
    const runId = await emit();
    const job = await poll();
    const until = new Date(Date.now() + 3_600_000).toISOString();
    const { execution_seq, lease_token, job_id } = job;
    const yielded = { step_id: `${runId}:nap:0`, type: "sleep", until };
    const left = await server.api(`/api/v1/workers/w/jobs/${job_id}`, {
      method: "PUT",
      body: { status: "yielded", execution_seq, lease_token, yield: yielded },
    });
    expect(left.status).toBe(200);
    const before = (await check("runs.without_execution")).healed;
    const execution = () =>
      server.running.domain.store.one(
        sql`SELECT state, wake_at, waiting_step_id, attempt FROM executions WHERE run_id = ${runId}`,
      );
    const slept = await execution();
    await write(sql`DELETE FROM executions WHERE run_id = ${runId}`);
    await healed("runs.without_execution", before + 1);
    expect(await execution()).toEqual(slept!);
    expect((await server.rpc("SvcService", "CancelRun", { id: runId })).status).toBe(200);
  });

  test("a restored run still counts in its lane, tells its parent, and sees no event of before", async () => {
    await server.rpc("SvcService", "RegisterFunction", {
      id: "parent",
      triggers: [{ event: "parent.begin" }],
      cancelOn: [{ event: "parent.end", match: "data.id" }],
    });
    await server.rpc("SvcService", "RegisterFunction", { id: "child", concurrency: { limit: 1, key: "k" } });
    const parents = pullWorker(server, "parents");
    const children = pullWorker(server, "children");
    await parents.register("parent");
    await children.register("child");
    await server.rpc("SvcService", "Emit", { event: "asked.for" });
    await server.rpc("SvcService", "Emit", { event: "parent.begin", data: { id: 1 } });
    const next = (worker: typeof parents) => until(async () => (await worker.poll())[0], { about: "a job" });
    const parent = await next(parents);
    await parents.leave(parent, "call", {
      type: "invoke_function",
      function_id: "child",
      input: { k: "lane" },
    });
    const child = await next(children);
    const kept = (runId: string) =>
      server.running.domain.store.one(sql`SELECT parent_run_id, lane_id, started_at, waiting_step_id,
        CASE WHEN watched_at IS NULL THEN 'no' ELSE 'yes' END AS watched FROM executions WHERE run_id = ${runId}`);
    const before = await kept(child.run_id);
    const healings = (await check("runs.without_execution")).healed;
    await write(sql`DELETE FROM executions WHERE run_id = ${child.run_id}`);
    await healed("runs.without_execution", healings + 1);
    expect(await kept(child.run_id)).toEqual(before!);
    const again = await next(children);
    await write(sql`DELETE FROM executions WHERE run_id = ${parent.run_id}`);
    await healed("runs.without_execution", healings + 2);
    expect(await kept(parent.run_id)).toMatchObject({ watched: "yes", lane_id: null });
    // The handler asks for the same child again, and hears of its end.
    const asking = await next(parents);
    await parents.leave(asking, "call", {
      type: "invoke_function",
      function_id: "child",
      input: { k: "lane" },
    });
    await children.complete(again, 5);
    const told = await next(parents);
    expect(told.completed_steps).toMatchObject([{ status: "completed", output: 5 }]);
    await parents.leave(told, "wait", { type: "wait_for_event", event_filter: { event: "asked.for" } });
    await server.running.tick("runs.matcher");
    const { body } = await server.rpc("SvcService", "GetRun", { id: parent.run_id });
    expect(body).toMatchObject({ status: "RUN_STATUS_PAUSED", pauseReason: "wait_event" });
    await server.rpc("SvcService", "Emit", { event: "asked.for" });
    await parents.complete(await next(parents));
  });

  test("a run that nothing would wake is asked again for what it waits for", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "waits", triggers: [{ event: "waits.begin" }] });
    const worker = pullWorker(server, "waiter");
    await worker.register("waits");
    const { body } = await server.rpc("SvcService", "Emit", { event: "waits.begin" });
    const runId = body.runIds[0];
    const next = () => until(async () => (await worker.poll())[0], { about: "a job" });
    const ask = { type: "wait_for_event", event_filter: { event: "waits.over" } };
    await worker.leave(await next(), "wait", ask);
    // What came meanwhile is not lost with the wait.
    await write(sql`DELETE FROM waits WHERE run_id = ${runId}`);
    await server.rpc("SvcService", "Emit", { event: "waits.over" });
    await healed("runs.without_wake", 1);
    await worker.leave(await next(), "wait", ask);
    const told = await next();
    expect(told.completed_steps).toMatchObject([{ status: "completed", output: { name: "waits.over" } }]);
    expect((await worker.complete(told)).status).toBe(200);
  });

  /** Each shows its own check one row that is wrong, and takes it back. */
  const wrongs: [string, ReturnType<typeof sql>[], ReturnType<typeof sql>[]][] = [
    [
      "runs.without_wake",
      [
        sql`INSERT INTO executions (run_id, environment_id, function_id, function_version, state, wake_at, execution_seq,
            attempt, max_attempts, step_count, history_count, lost_count, waiting_step_id)
          SELECT id, environment_id, function_id, 1, 'waiting', ${4e15}, 1, 1, 3, 0, 1, 0, 's' FROM runs
          WHERE id = (SELECT MIN(id) FROM runs)`,
      ],
      [sql`DELETE FROM executions WHERE waiting_step_id = 's'`],
    ],
    [
      "lanes.overfull",
      [
        sql`UPDATE functions SET lane_limit = 1, updated_at = 1 WHERE id = 'swept'`,
        ...["a", "b"].map(
          (
            id,
          ) => sql`INSERT INTO executions (run_id, environment_id, function_id, function_version, state, wake_at,
              execution_seq, attempt, max_attempts, step_count, history_count, lost_count, lane_id, claimed_at)
            VALUES (${`run_over_${id}`}, 'env_default', 'swept', 1, 'leased', ${4e15}, 1, 1, 3, 0, 1, 0, 'lane', 9)`,
        ),
      ],
      [
        sql`DELETE FROM executions WHERE lane_id = 'lane'`,
        sql`UPDATE functions SET lane_limit = NULL WHERE id = 'swept'`,
      ],
    ],
    [
      "events.unmatched",
      [
        sql`INSERT INTO waits (run_id, kind, step_id, environment_id, event_name, match_path, value_hash, from_position, fresh_at)
          VALUES ('run_none', 'wait', 's', 'env_none', 'never', '', '', 0, 1)`,
        sql`UPDATE waits SET environment_id = 'env_default', fresh_at = 2, from_position = ${4e15} WHERE run_id = 'run_none'`,
      ],
      [sql`DELETE FROM waits WHERE run_id = 'run_none'`],
    ],
    [
      "waits.unmet",
      [
        sql`INSERT INTO executions (run_id, environment_id, function_id, function_version, state, wake_at, execution_seq,
            attempt, max_attempts, step_count, history_count, lost_count, waiting_step_id)
          VALUES ('run_none', 'env_default', 'none', 1, 'waiting', ${4e15}, 1, 1, 3, 0, 1, 0, 's')`,
        sql`INSERT INTO waits (run_id, kind, step_id, environment_id, event_name, match_path, value_hash, from_position,
            of_step, condition, mode, place, subject, test, bound)
          VALUES ('run_none', 'wait', 's#0', 'env_default', '', '', '', 0, 's', 'c', 'any', 'stream', 'e', 'reaches', 2)`,
        sql`INSERT INTO streams (environment_id, entity_id, entity_type, version, created_at, updated_at)
          VALUES ('env_default', 'e', 't', 2, 1, 1)`,
      ],
      [sql`UPDATE waits SET bound = 3 WHERE run_id = 'run_none'`],
    ],
    [
      "children.overdue",
      [
        sql`INSERT INTO child_ends (child_run_id, environment_id, ended_at) VALUES ('run_none', 'env_default', 1)`,
      ],
      [sql`DELETE FROM child_ends WHERE child_run_id = 'run_none'`],
    ],
    [
      "debounces.overdue",
      [
        sql`INSERT INTO debounces (id, environment_id, function_id, function_version, debounce_key, event_id, event_position,
            period_ms, max_wait_ms, first_at, armed_at, fires_at)
          VALUES ('d', 'env_default', 'none', 1, 'k', 'evt_none', 1, 1, 1, 1, 1, 1)`,
      ],
      [sql`DELETE FROM debounces WHERE id = 'd'`],
    ],
    [
      "cron.ledger",
      [
        sql`INSERT INTO schedules (environment_id, function_id, place, expression, event_name, next_at, expected_count,
            fired_count, missed_count, moved_by, created_at, updated_at)
          VALUES ('env_default', 'none', 0, '* * * * *', '', NULL, 3, 1, 1, '', 1, 1)`,
      ],
      [sql`DELETE FROM schedules WHERE function_id = 'none'`],
    ],
    [
      "cron.overdue",
      [
        sql`INSERT INTO schedules (environment_id, function_id, place, expression, event_name, next_at, expected_count,
            fired_count, missed_count, moved_by, created_at, updated_at)
          VALUES ('env_default', 'none', 0, '* * * * *', '', 1, 0, 0, 0, '', 1, 1)`,
      ],
      [sql`DELETE FROM schedules WHERE function_id = 'none'`],
    ],
  ];

  test.each(wrongs)("%s is seen, and is no other environment's", async (name, break_, mend) => {
    const { store } = server.running.domain;
    class Undone extends Error {}
    const offences = async (environmentId: string, changes: ReturnType<typeof sql>[]) => {
      let count = -1;
      await store
        .write(async (session) => {
          for (const change of changes) await session.run(change);
          const reader = { ...store, all: session.all.bind(session), one: session.one.bind(session) };
          const checks = [
            ...runChecks(reader, testClock(Date.now())),
            statesCheck(reader, testClock(Date.now())),
            debounceCheck(reader, testClock(Date.now())),
            ...scheduleChecks(reader, testClock(Date.now())),
          ];
          count = (await checks.find((one) => one.name === name)!.run(environmentId)).count;
          throw new Undone();
        })
        .catch((error: unknown) => {
          if (!(error instanceof Undone)) throw error;
        });
      return count;
    };
    expect(await offences("env_default", [])).toBe(0);
    expect(await offences("env_default", break_)).toBe(1);
    expect(await offences("env_none", break_)).toBe(0);
    expect(await offences("env_default", [...break_, ...mend])).toBe(0);
    expect(await check(name)).toMatchObject({ name, count: 0 });
  });

  test("every check answers the rows that it counts", async () => {
    const { body } = await server.api("/api/v1/integrity");
    for (const { name } of body.checks) {
      const answer = await server.api(`/api/v1/integrity/${name}/rows`);
      expect([name, answer.status, answer.body]).toEqual([name, 200, { rows: [] }]);
    }
    await write(sql`UPDATE heads SET position = position + 1 WHERE environment_id = 'env_default'`);
    const rows = async () => (await server.api("/api/v1/integrity/events.head/rows")).body.rows;
    await until(async () => (await rows()).length === 1, { about: "the end of the log", everyMs: 200 });
    const [{ id, facts }] = await rows();
    expect(id).toStartWith("position ");
    expect(facts.head - facts.last).toBe(1);
    await write(sql`UPDATE heads SET position = position - 1 WHERE environment_id = 'env_default'`);
  });

  test("the rows behind a number are listed, with what is wrong of each, and in pages", async () => {
    const path = "/api/v1/integrity/cron.ledger/rows";
    const list = async (query = "", key?: string) =>
      (await server.api(`${path}${query}`, key === undefined ? {} : { key })).body;
    expect(await list()).toEqual({ rows: [] });
    for (const [at, id] of ["three", "one", "two"].entries())
      await write(sql`INSERT INTO schedules (environment_id, function_id, place, expression, event_name, next_at,
          expected_count, fired_count, missed_count, moved_by, created_at, updated_at)
        VALUES ('env_default', ${id}, 0, '0 0 1 1 *', '', ${Date.now() + 1e9}, 5, 3, 1, '', 1, ${1_000 - at})`);
    await until(async () => (await list()).rows.length === 3, { about: "the rows", everyMs: 200 });
    const { rows } = await list();
    expect(rows[0]).toEqual({
      ...{ id: "two:0", at: new Date(998).toISOString() },
      facts: { expected: 5, fired: 3, missed: 1 },
    });
    const seen: string[] = [];
    let cursor = "";
    do {
      const page = await list(`?limit=1&cursor=${cursor}`);
      seen.push(...page.rows.map((row: { id: string }) => row.id));
      cursor = page.next_cursor ?? "";
    } while (cursor !== "");
    expect(seen).toEqual(["two:0", "one:0", "three:0"]);
    expect((await server.api(`${path}?cursor=x`)).status).toBe(400);
    expect((await server.api("/api/v1/integrity/none/rows")).status).toBe(404);
    const { id } = (await server.api("/api/v1/environments", { body: { name: "balanced" } })).body;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "balanced", env_id: id } })).body;
    expect(await list("", key)).toEqual({ rows: [] });
    await write(sql`DELETE FROM schedules WHERE expression = '0 0 1 1 *'`);
  });

  test("what cannot be healed is shown and warned of", async () => {
    await write(sql`UPDATE heads SET position = position + 1 WHERE environment_id = 'env_default'`);
    await shown("events.head", 1);
    await server.running.tick("integrity.look");
    expect((await server.api("/health")).body.warnings[0]).toContain("events.head: 1");
    expect((await server.api("/ready")).status).toBe(200);
    await write(sql`UPDATE heads SET position = position - 1 WHERE environment_id = 'env_default'`);
    await shown("events.head", 0);
    await server.running.tick("integrity.look");
    expect((await server.api("/health")).body.warnings).toBeUndefined();
  });
});
