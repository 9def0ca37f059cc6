import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { FunctionDefinition } from "../../src/domain/engine/functions/definition.ts";
import { leastUnmatched } from "../../src/domain/engine/runs/waits/wait-rows.ts";
import { openRetention } from "../../src/domain/record/retention/service.ts";
import { testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { noMetrics } from "../../src/kit/metrics.ts";
import { nextSlice } from "../../src/kit/slice-size.ts";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const day = 86_400_000;

describe.each(engines)("retention on %s", (engine) => {
  let server: TestServer;
  const count = async (from: string) =>
    (await server.running.domain.store.one<{ n: number }>(sql`SELECT count(*) AS n FROM ${sql.raw(from)}`))!
      .n;
  const floorOf = async () =>
    (await server.running.domain.store.one<{ f: number }>(sql`SELECT retention_floor AS f FROM heads
      WHERE environment_id = 'env_default'`))!.f;
  const emit = async (event: string, times: number) => {
    for (let left = times; left > 0; left -= 100)
      await server.rpc("SvcService", "TriggerBatch", {
        events: Array.from({ length: Math.min(100, left) }, () => ({ event })),
      });
  };
  /** As it would be `days` from now. */
  const later = (
    days: number,
    more: { recordingRetention?: string; needed?: number; unread?: string; keptMs?: number } = {},
  ) => {
    const { store } = server.running.domain;
    const recording = more.recordingRetention !== undefined;
    const retention = openRetention({
      store,
      clock: { ...testClock(Date.now() + days * day), sleep: async () => {} },
      log: silentLog,
      metrics: noMetrics,
      kept: { events: more.keptMs ?? 30 * day, runs: more.keptMs ?? 90 * day },
      forgetBytes: async () => {},
      definitionOf: async (_environmentId, id) => {
        if (id === more.unread) throw new Error("unreadable");
        return { ...more, recording } as unknown as FunctionDefinition;
      },
      floorGuards: [async () => more.needed],
    });
    return {
      events: () => retention.expireEvents(store.write),
      runs: () => retention.expireRuns(store.write),
    };
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    await emit("plain", 1_500);
  });
  afterAll(() => server.stop());

  test("events go once they are old, and never past what somebody needs", async () => {
    await later(29).events();
    expect(await count("events")).toBe(1_500);
    await later(31, { needed: 101 }).events();
    expect(await count("events")).toBe(1_400);
    expect(await floorOf()).toBe(101);
    await server.rpc("SvcService", "RegisterFunction", { id: "live", triggers: [{ event: "live" }] });
    await emit("live", 1);
    await emit("plain", 10);
    await later(31).events();
    expect(await count("events")).toBe(11);
    expect(await floorOf()).toBe(1_501);
    const { feeds } = server.running.domain;
    const below = feeds.follow("env_default", { onEvents: () => {} }, 5);
    await expect(below).rejects.toThrow("positions below 1501 have expired");
    const { body } = await server.api("/api/v1/integrity");
    expect(body.checks.find((one: { name: string }) => one.name === "events.head").count).toBe(0);
  });

  test("events stay that a matcher has still to compare with what waits", async () => {
    const { store } = server.running.domain;
    // In a transaction that comes to nothing: no matcher finds what is made up here.
    const over = new Error("enough");
    const looked = store.write(async (session) => {
      const wait = (runId: string, from: number, freshAt: number | null) =>
        session.run(sql`INSERT INTO waits (run_id, kind, step_id, environment_id, event_name, match_path, value_hash,
            expression, from_position, fresh_at)
          VALUES (${runId}, 'wait', 'w', 'env_default', 'never', '', '', '', ${from}, ${freshAt})`);
      expect(await leastUnmatched(session, "env_default")).toBeUndefined();
      await session.run(sql`INSERT INTO matchers (environment_id, position) VALUES ('env_default', 1505)`);
      expect(await leastUnmatched(session, "env_default")).toBeUndefined();
      await wait("run_settled", 3, null);
      expect(await leastUnmatched(session, "env_default")).toBe(1506);
      await wait("run_fresh", 1502, 1);
      expect(await leastUnmatched(session, "env_default")).toBe(1503);
      expect(await leastUnmatched(session, "env_other")).toBeUndefined();
      throw over;
    });
    await expect(looked).rejects.toBe(over);
  });

  test("an environment whose runs cannot be judged keeps no other from expiring", async () => {
    const { store, tenancy } = server.running.domain;
    const { id } = await tenancy.createEnvironment({ orgId: "org_default", name: "broken" });
    await store.write((session) =>
      session.run(sql`UPDATE environments SET retention_days = 1 WHERE id IN (${id}, 'env_default')`),
    );
    const asked: string[] = [];
    const retention = openRetention({
      ...{ store, log: silentLog, metrics: noMetrics, clock: testClock(Date.now()) },
      kept: { events: 30 * day, runs: 90 * day },
      forgetBytes: async () => {},
      definitionOf: () => Promise.reject(new Error("not asked")),
      floorGuards: [
        async (environmentId) => {
          asked.push(environmentId);
          if (environmentId === "env_default") throw new Error("cannot say");
          return undefined;
        },
      ],
    });
    await expect(retention.expireEvents(store.write)).rejects.toThrow(
      "expired events of some environments could not be deleted",
    );
    expect(asked.sort()).toEqual(["env_default", id].sort());
    await store.write((session) => session.run(sql`UPDATE environments SET retention_days = NULL`));
  });

  test("runs go with steps and history once they are over for so long; live ones stay", async () => {
    await server.rpc("SvcService", "DeleteFunction", { id: "live" });
    await server.rpc("SvcService", "RegisterFunction", { id: "old", triggers: [{ event: "old" }] });
    await emit("old", 450);
    await server.rpc("SvcService", "DeleteFunction", { id: "old" });
    await server.rpc("SvcService", "RegisterFunction", { id: "young", triggers: [{ event: "young" }] });
    await emit("young", 1);
    expect(await count("runs")).toBe(452);
    await later(89).runs();
    await later(400, { recordingRetention: "forever" }).runs();
    expect(await count("runs")).toBe(452);
    await later(8, { recordingRetention: "7d" }).runs();
    expect(await count("runs")).toBe(1);
    expect(await count("run_history")).toBe(1);
    expect(await count("executions")).toBe(1);
  });

  test("an environment's own days go before the installation's", async () => {
    const { store } = server.running.domain;
    await store.write((session) => session.run(sql`UPDATE environments SET retention_days = 0`));
    const before = await count("events");
    await later(4_000).events();
    expect(await count("events")).toBe(before);
  });

  test("an environment's days are read and set, and others' stay", async () => {
    const days = async (options = {}) => (await server.api("/api/v1/retention", options)).body;
    const set = (body: object) => server.api("/api/v1/retention", { method: "PUT", body });
    expect((await set({ days: null })).status).toBe(200);
    expect(await days()).toEqual({
      event_days: 0,
      run_days: 90,
      own_days: null,
      retention_floor: await floorOf(),
    });
    const made = (await server.api("/api/v1/environments", { body: { name: "kept" } })).body;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "kept", env_id: made.id } })).body;
    expect((await set({ days: 14 })).body).toMatchObject({ event_days: 14, run_days: 14, own_days: 14 });
    expect(await days()).toMatchObject({ own_days: 14 });
    expect(await days({ key })).toMatchObject({ own_days: null, run_days: 90 });
    expect((await server.api("/api/v1/audit")).body.retention_days).toBe(14);
    for (const wrong of [-1, 1.5, "7", 36_501, undefined]) {
      const { status, body } = await set({ days: wrong });
      expect({ wrong, status }).toEqual({ wrong, status: 400 });
      expect(JSON.stringify(body)).toContain("days");
    }
    expect(await days()).toMatchObject({ own_days: 14 });
    const viewer = await server.running.domain.keys.create({
      orgId: "org_default",
      environmentId: "env_default",
      name: "viewer",
      roleIds: ["role_viewer"],
    });
    const refused = { method: "PUT", body: { days: 1 }, key: viewer.key };
    expect((await server.api("/api/v1/retention", refused)).status).toBe(403);
    expect((await days({ key: viewer.key })).own_days).toBe(14);
    expect((await set({ days: null })).body.own_days).toBe(null);
  });

  test("a slice is made to fit the time that one may take", () => {
    expect([nextSlice(200, 30), nextSlice(100, 5), nextSlice(100, 1)]).toEqual([100, 100, 200]);
    expect([nextSlice(10, 500), nextSlice(200, 0)]).toEqual([10, 200]);
    // Halving pays only where the time goes to rows.
    expect(nextSlice(100, 30, { rows: 200, tookMs: 60 })).toBe(50);
    expect(nextSlice(100, 28, { rows: 200, tookMs: 30 })).toBe(200);
    expect(nextSlice(100, Number.POSITIVE_INFINITY, { rows: 200, tookMs: 30 })).toBe(50);
  });

  test("a run whose definition cannot be read stays, and keeps no other from going", async () => {
    const { store } = server.running.domain;
    for (const id of ["read", "unread"]) {
      await server.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: `${id}.asked` }] });
      await emit(`${id}.asked`, 3);
    }
    await store.write((session) =>
      session.run(sql`UPDATE runs SET status = 'completed', ended_at = created_at
        WHERE function_id IN ('read', 'unread')`),
    );
    const left = async () =>
      (
        await store.all<{ function_id: string }>(
          sql`SELECT function_id FROM runs WHERE function_id IN ('read', 'unread')`,
        )
      ).map(({ function_id }) => function_id);
    await later(91, { unread: "unread" }).runs();
    expect(await left()).toEqual(["unread", "unread", "unread"]);
    await later(91).runs();
    expect(await left()).toEqual([]);
  });

  test("what is kept for minutes goes after minutes", async () => {
    const { store } = server.running.domain;
    await emit("read.asked", 2);
    await store.write((session) =>
      session.run(
        sql`UPDATE runs SET status = 'completed', ended_at = created_at WHERE function_id = 'read'`,
      ),
    );
    const runs = async () =>
      (await store.all(sql`SELECT id FROM runs WHERE function_id = 'read' AND status = 'completed'`)).length;
    const keptMs = 4 * 60_000;
    await later(3 / 1_440, { keptMs }).runs();
    expect(await runs()).toBe(2);
    await later(5 / 1_440, { keptMs }).runs();
    expect(await runs()).toBe(0);
  });
});
