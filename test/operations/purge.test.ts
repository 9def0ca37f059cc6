import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { openPurge } from "../../src/domain/access/tenancy/purge.ts";
import { ownedTables, purgeSlice } from "../../src/domain/access/tenancy/purge-rows.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { noMetrics } from "../../src/kit/metrics.ts";
import { type Sql, sql } from "../../src/kit/sql.ts";
import type { Session } from "../../src/store/store.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("the purge of deleted environments on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const rowsOf = async (id: string) => {
    const { store } = server.running.domain;
    let rows = 0;
    for (const { name } of ownedTables)
      rows += (await store.one<{ count: number }>(
        sql`SELECT count(*) AS count FROM ${sql.raw(name)} WHERE environment_id = ${id}`,
      ))!.count;
    return rows;
  };

  test("20,000 rows go in slices, and nobody else is kept waiting", async () => {
    const { store } = server.running.domain;
    const { id } = (await server.api("/api/v1/environments", { body: { name: "big" } })).body;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "big", env_id: id } })).body;
    await server.rpc(
      "SvcService",
      "RegisterFunction",
      { id: "f", name: "f", triggers: [{ event: "go" }] },
      { key },
    );
    for (let batch = 0; batch < 50; batch++) {
      const events = Array.from({ length: 100 }, (_, at) => ({ event: "go", data: { at } }));
      const answer = await server.rpc("SvcService", "TriggerBatch", { events }, { key });
      expect(answer.status).toBe(200);
    }
    const before = await rowsOf(id);
    expect(before).toBeGreaterThan(20_000);
    const others = await rowsOf("env_default");
    expect((await server.api(`/api/v1/environments/${id}`, { method: "DELETE" })).status).toBe(200);

    const clock = systemClock();
    const purge = openPurge({ store, clock, metrics: noMetrics });
    expect(await purge.backlog()).toBe(1);
    const tookMs: number[] = [];
    const write: typeof store.write = (work) =>
      store.write(async (session) => {
        const beganAt = clock.elapsed();
        const result = await work(session);
        tookMs.push(clock.elapsed() - beganAt);
        return result;
      });
    while ((await purge.duty.tick(write)).againInMs !== undefined);
    // The usual slice: the longest one is the machine's business.
    const usual = tookMs.toSorted((one, other) => one - other)[tookMs.length >> 1];
    expect(usual).toBeLessThan(engine === "libsql" ? 20 : 100);
    // A fast disk takes them in one round; never in one transaction.
    expect(tookMs.length).toBeGreaterThan(10);
    // The server's own loop may have taken a part of them.
    await until(async () => (await rowsOf(id)) === 0, { about: "the last rows" });
    expect(await rowsOf("env_default")).toBe(others);
    expect((await server.rpc("SvcService", "Emit", { event: "a" })).status).toBe(200);
  }, 120_000);

  test("where every commit takes long, slices do not end as single rows", async () => {
    const { store } = server.running.domain;
    const { id } = (await server.api("/api/v1/environments", { body: { name: "slow" } })).body;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "slow", env_id: id } })).body;
    for (let batch = 0; batch < 4; batch++) {
      const events = Array.from({ length: 100 }, () => ({ event: "go" }));
      expect((await server.rpc("SvcService", "TriggerBatch", { events }, { key })).status).toBe(200);
    }
    await server.api(`/api/v1/environments/${id}`, { method: "DELETE" });
    let elapsedMs = 0;
    const clock = { ...systemClock(), elapsed: () => elapsedMs };
    const purge = openPurge({ store, clock, metrics: noMetrics });
    let slices = 0;
    const write: typeof store.write = (work) => {
      slices++;
      elapsedMs += engine === "libsql" ? 7 : 70;
      return store.write(work);
    };
    while ((await purge.duty.tick(write)).againInMs !== undefined);
    await until(async () => (await rowsOf(id)) === 0, { about: "the last rows" });
    expect(slices).toBeLessThan(200);
  });

  test("counts as purged only after stragglers had their time; what they wrote goes too", async () => {
    const { store } = server.running.domain;
    const { id } = (await server.api("/api/v1/environments", { body: { name: "late" } })).body;
    await server.api(`/api/v1/environments/${id}`, { method: "DELETE" });
    const { deleted_at } = (await store.one<{ deleted_at: number }>(
      sql`SELECT deleted_at FROM deleted_environments WHERE id = ${id}`,
    ))!;
    const purgedAt = async () =>
      (await store.one<{ purged_at: number | null }>(
        sql`SELECT purged_at FROM deleted_environments WHERE id = ${id}`,
      ))!.purged_at;
    const clock = { ...systemClock(), now: () => now };
    let now = deleted_at + 1_000;
    const purge = openPurge({ store, clock, metrics: noMetrics });
    /** On a busy machine a tick ends before its work does. */
    const round = async () => {
      while ((await purge.duty.tick(store.write)).againInMs !== undefined);
    };
    await round();
    expect(await purgedAt()).toBeNull();
    await store.write((session) =>
      session.run(sql`INSERT INTO workers (environment_id, id, hostname, function_ids, labels, sdk, runtime,
          transport, max_concurrent, active_jobs, registered_at, last_heartbeat_at)
        VALUES (${id}, 'late', '', '[]', '{}', '', '', 'rest', 1, 0, 1, 1)`),
    );
    now = deleted_at + 60_001;
    await round();
    expect(await rowsOf(id)).toBe(0);
    await round();
    expect(await purgedAt()).toBe(now);
  });

  test("the duty does it by itself", async () => {
    const { id } = (await server.api("/api/v1/environments", { body: { name: "dutiful" } })).body;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "d", env_id: id } })).body;
    await server.rpc("SvcService", "Emit", { event: "a" }, { key });
    await server.api(`/api/v1/environments/${id}`, { method: "DELETE" });
    await until(
      async () => {
        await server.running.tick("tenancy.purge");
        return (await rowsOf(id)) === 0;
      },
      { about: "the purge" },
    );
  });

  test.if(engine === "postgres")("every slice goes by an index, also on empty tables", async () => {
    const { store } = server.running.domain;
    const planned = (work: (session: Session) => Promise<number>) =>
      store.write(async (session) => {
        const lines: string[] = [];
        const run = async (query: Sql) => {
          const rows = await session.all<{ "QUERY PLAN": string }>(sql`EXPLAIN ${query}`);
          lines.push(...rows.map((row) => row["QUERY PLAN"]));
          return 0;
        };
        await work({ ...session, run });
        return lines.join("\n");
      });
    for (const table of ownedTables) {
      const { ofRun } = table;
      const plan = await planned((session) =>
        purgeSlice(
          session,
          table,
          ofRun === undefined ? { environmentId: "env_x" } : { runIds: ["run_x", "run_y"] },
          100,
        ),
      );
      expect(plan).toContain(`Tid Scan on ${table.name}`);
      expect(plan).toMatch(/Index Cond: \(\(?(environment_id|run_id|parent_run_id|child_run_id)/);
      expect(plan).not.toContain("Seq Scan");
    }
  });
});
