import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { whileLived } from "../support/lived.ts";
import { plant } from "../support/plant.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Ledger {
  fired: number;
  missed: number;
}

describe.each(engines)("cron of many tenants on %s", (engine) => {
  let server: TestServer;
  let other: string;
  let otherKey: string;
  const missed: { environmentId?: string; cause?: string }[] = [];
  beforeAll(async () => {
    const note = (event: string, fields: object = {}) => {
      if (event === "cron.missed") missed.push(fields);
    };
    const log = { debug: note, info: note, warn: note, error: note };
    server = await startTestServer({ engine, log, settings: { pollHoldMs: 0 } });
    other = (await server.api("/api/v1/environments", { body: { name: "other" } })).body.id;
    otherKey = (await server.api("/api/v1/apikeys", { body: { name: "other", env_id: other } })).body.key;
  });
  afterAll(() => server.stop());

  const register = async (id: string, triggers: object[], key = server.adminKey) => {
    const answer = await server.rpc("SvcService", "RegisterFunction", { id, triggers }, { key });
    expect(answer).toMatchObject({ status: 200 });
  };
  const ledger = async (environmentId: string): Promise<Ledger> =>
    (await server.running.domain.store.one<Ledger>(sql`SELECT CAST(COALESCE(sum(fired_count), 0) AS BIGINT) AS fired,
      CAST(COALESCE(sum(missed_count), 0) AS BIGINT) AS missed FROM schedules WHERE environment_id = ${environmentId}`))!;

  test("5,000 triggers of every second cost another tenant no slot", async () => {
    const { store } = server.running.domain;
    for (let n = 0; n < 20; n++) await register(`busy-${n}`, [{ cron: "0 0 1 1 *" }]);
    await register("calm", [{ cron: "*/2 * * * * *" }], otherKey);
    await until(async () => (await ledger(other)).fired > 0, { about: "the first slot", deadlineMs: 20_000 });
    await plant(store, "schedules", 5_000, {
      environment_id: `'${server.env}'`,
      function_id: "'busy-' || (n % 20)",
      place: "1 + n",
      expression: "'* * * * * *'",
      next_at: `${Math.ceil(Date.now() / 1000) * 1000}`,
      moved_by: "COALESCE((SELECT max(moved_by) FROM schedules), '')",
    });
    const slots = async () => {
      missed.length = 0;
      const [before, busyBefore] = [await ledger(other), await ledger(server.env)];
      const seen = ({ fired, missed }: Ledger) => fired + missed;
      await until(async () => seen(await ledger(other)) >= seen(before) + 3, {
        about: "three slots",
        deadlineMs: 25_000,
      });
      const [after, busy] = [await ledger(other), await ledger(server.env)];
      return { lost: after.missed - before.missed, fired: busy.fired - busyBefore.fired };
    };
    const { databaseUrl } = server.home.place;
    const { lost, fired } = await whileLived(databaseUrl, slots, ({ lost }) => lost === 0);
    await store.write((session) =>
      session.run(sql`DELETE FROM schedules WHERE environment_id = ${server.env}`),
    );
    expect(lost).toBe(0);
    expect(fired).toBeGreaterThan(2_000);
    for (const frame of missed) expect(frame).toMatchObject({ environmentId: server.env, cause: "stall" });
  }, 240_000);
});
