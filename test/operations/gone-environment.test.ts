import { expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { keptLog } from "../support/who.ts";

/** Until the purge has come by, loops find what a deleted environment had: that must hold nobody else up. */
test.each(engines)(
  "loops live with what a deleted environment left behind on %s",
  async (engine) => {
    const kept = keptLog();
    const server = await startTestServer({ engine, log: kept.log });
    try {
      const { store } = server.running.domain;
      const { id } = (await server.api("/api/v1/environments", { body: { name: "left" } })).body;
      const { key } = (await server.api("/api/v1/apikeys", { body: { name: "k", env_id: id } })).body;
      const triggers = [{ event: "go" }, { cron: "* * * * *" }];
      const debounce = { periodMs: 3_600_000, key: "k" };
      for (const definition of [
        { id: "f", name: "f", triggers },
        { id: "g", name: "g", triggers: [{ event: "go" }], debounce },
      ])
        expect((await server.rpc("SvcService", "RegisterFunction", definition, { key })).status).toBe(200);
      // Duties do nothing on a node that does not lead yet.
      await until(
        async () => {
          await server.running.tick("schedules.tick");
          return (await store.all(sql`SELECT * FROM schedules WHERE environment_id = ${id}`)).length > 0;
        },
        { about: "the schedule" },
      );
      const started = await server.rpc("SvcService", "Emit", { event: "go", data: { k: 1 } }, { key });
      const run = started.body.runIds[0] as string;
      expect(run).toStartWith("run_");
      const { count } = (await store.one<{ count: number }>(sql`SELECT count(*) AS count FROM debounces`))!;
      expect(count).toBe(1);
      expect((await server.api(`/api/v1/environments/${id}`, { method: "DELETE" })).status).toBe(200);

      await store.write(async (session) => {
        await session.run(sql`INSERT INTO waits (run_id, kind, step_id, environment_id, event_name, match_path, value_hash,
        from_position, fresh_at) VALUES (${run}, 'event', 's', ${id}, 'go', '', '', 0, 1)`);
        await session.run(sql`INSERT INTO waits (run_id, kind, step_id, environment_id, event_name, match_path, value_hash,
        from_position, of_step, condition, mode, place, subject, test, bound, due_at)
        VALUES (${run}, 'wait', 's#0', ${id}, '', '', '', 0, 's', 'c', 'any', 'stream', 'e', 'reaches', 1, 1)`);
        await session.run(sql`INSERT INTO matchers (environment_id, position) VALUES (${id}, 0)
        ON CONFLICT (environment_id) DO NOTHING`);
        await session.run(sql`INSERT INTO invocations (parent_run_id, step_id, environment_id, function_id, kind, due_at,
        created_at) VALUES (${run}, 's', ${id}, 'f', 'invoke', 1, 1)`);
        await session.run(
          sql`INSERT INTO child_ends (child_run_id, environment_id, ended_at) VALUES (${run}, ${id}, 1)`,
        );
        await session.run(sql`UPDATE executions SET state = 'leased', worker_id = 'w', lease_hash = 'x', wake_at = 1
        WHERE run_id = ${run}`);
        await session.run(sql`UPDATE debounces SET fires_at = 1`);
        await session.run(sql`UPDATE schedules SET next_at = 1`);
      });
      for (const name of [
        "runs.wake",
        "runs.matcher",
        "runs.states",
        "runs.children",
        "debounce.fire",
        "batches.close",
        "runs.deadlines",
        "events.delayed",
        "schedules.tick",
        "runs.lanes",
        "workers.dispatch",
        "log.feeds",
        "push.look",
        "runs.sweep",
        "tenancy.follow",
        "tenancy.purge",
        "runs.sweep",
      ])
        for (const _twice of [1, 2]) await server.running.tick(name);
      expect(kept.of("loop.failed")).toEqual([]);
      // A round of the purge takes a while of its own, however much it gets done in it.
      await until(
        async () => {
          await server.running.tick("tenancy.purge");
          for (const table of [
            "executions",
            "waits",
            "invocations",
            "child_ends",
            "debounces",
            "schedules",
            "runs",
          ]) {
            const left = await store.all(sql`SELECT * FROM ${sql.raw(table)} WHERE environment_id = ${id}`);
            expect({ table, left }).toEqual({ table, left: [] });
          }
          return true;
        },
        { about: "all tables to be empty" },
      );
      expect(kept.of("loop.failed")).toEqual([]);
    } finally {
      await server.stop();
    }
  },
  90_000,
);
