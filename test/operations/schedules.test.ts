import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { ownKeyMark } from "../../src/kit/key-claims.ts";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Ledger {
  expected_count: number;
  fired_count: number;
  missed_count: number;
  next_at: number | null;
}

describe.each(engines)("cron on %s", (engine) => {
  let server: TestServer;
  const lines: { event: string; functionId?: string; [field: string]: unknown }[] = [];
  const rpc = (method: string, body: unknown) => server.rpc("SvcService", method, body);
  const register = async (id: string, triggers: object[]) => {
    const { status, body } = await rpc("RegisterFunction", { id, triggers });
    expect({ status, body }).toMatchObject({ status: 200 });
    await tick();
  };
  const runs = async (functionId: string) =>
    ((await rpc("ListRuns", { functionId })).body.runs ?? []) as {
      id: string;
      eventId: string;
      eventName: string;
    }[];
  /** As its leader: who stood still for long stands for it again. */
  const tick = async () => {
    for (const loop of ["cluster.lead", "schedules.tick"]) await server.running.tick(loop);
  };
  const ledgers = (functionId: string) =>
    server.running.domain.store.all<Ledger>(sql`SELECT * FROM schedules WHERE function_id = ${functionId}
      ORDER BY place`);
  /** As if the next slot had been due so long ago, and another process had led then. */
  const miss = (functionId: string, ms: number, by: string | null) =>
    server.running.domain.store.write((session) =>
      session.run(sql`UPDATE schedules SET next_at = next_at - ${ms}, moved_by = COALESCE(${sql`CAST(${by} AS TEXT)`}, moved_by)
        WHERE function_id = ${functionId}`),
    );
  const frames = (functionId: string) =>
    lines.filter((line) => line.functionId === functionId && line.event.startsWith("cron."));

  beforeAll(async () => {
    const note = (event: string, fields: object = {}) => void lines.push({ ...fields, event });
    server = await startTestServer({ engine, log: { debug: note, info: note, warn: note, error: note } });
    await until(
      async () => {
        const { body } = await server.api("/api/v1/cluster/health");
        return JSON.stringify(body).includes('"cron"');
      },
      { about: "a leader of cron" },
    );
  });
  afterAll(() => server.stop());

  test("a slot starts its function, once", async () => {
    await register("every-second", [{ cron: "* * * * * *" }]);
    await register("bystander", [{ event: "every-second" }]);
    await until(async () => (await runs("every-second")).length >= 2, { about: "two slots" });
    await Promise.all([tick(), tick(), tick()]);
    const listed = async (key?: string) =>
      (await server.api("/api/v1/schedules?function_id=every-second", key === undefined ? {} : { key })).body
        .schedules[0];
    const last = await listed();
    const ran = (await runs("every-second")).map(({ id }) => id);
    expect(ran).toContain(last.last_run_id);
    expect(last).toMatchObject({ last_status: "waiting_for_capacity", missed: 0 });
    expect(Date.parse(last.last_at)).toBeLessThanOrEqual(Date.parse(last.next_at) - 1_000);
    const blind = { name: "functions-alone", effect: "deny", actions: "runs:read", condition: "true" };
    const role = (await server.api("/api/v1/roles", { body: { name: "no-runs", base: "viewer" } })).body;
    const policy = { ...blind, resources: "irn:svc:*:*:run:*:*" };
    const { id: policy_id } = (await server.api("/api/v1/policies", { body: policy })).body;
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id } });
    const keyed = { body: { name: "no-runs", role_ids: [role.id] } };
    const { key } = (await server.api("/api/v1/apikeys", keyed)).body;
    const hidden = await listed(key);
    expect(hidden).toMatchObject({ function_id: "every-second", last_at: expect.any(String) });
    expect(Object.keys(hidden).filter((name) => /run|status/.test(name))).toEqual([]);
    await rpc("DeleteFunction", { id: "every-second" });
    await tick();
    const started = await runs("every-second");
    expect(await runs("bystander")).toEqual([]);
    const slots = await Promise.all(
      started.map(async ({ eventId }) => (await server.api(`/api/v1/events/${eventId}`)).body),
    );
    for (const event of slots)
      expect(event).toMatchObject({
        name: "every-second",
        source: "cron",
        data: { expression: "* * * * * *" },
      });
    expect(new Set(slots.map(({ data }) => data.scheduledAt)).size).toBe(started.length);
    expect(
      frames("every-second")
        .map(({ event }) => event)
        .filter((event) => event !== "cron.missed"),
    ).toEqual(["cron.registered", "cron.removed"]);
    expect(frames("every-second").at(-1)).toMatchObject({ cause: "function_deleted" });
    expect(await ledgers("every-second")).toEqual([]);
  });

  test("a slot starts no run beside one that a singleton has, with an event's name or without", async () => {
    const options = { singleton: { mode: "skip" } };
    for (const [id, more] of [
      ["alone-plain", {}],
      ["alone-named", { event: "alone.due" }],
    ] as const) {
      const definition = { id, triggers: [{ cron: "* * * * * *", ...more }], ...options };
      expect(await rpc("RegisterFunction", definition)).toMatchObject({ status: 200 });
      await tick();
      const fired = async () => Number((await ledgers(id))[0]!.fired_count);
      await until(async () => (await fired()) >= 3, { about: "three slots" });
      const [only, ...others] = await runs(id);
      expect({ id, others }).toEqual({ id, others: [] });
      await rpc("CancelRun", { id: only!.id });
      await until(async () => (await runs(id)).length === 2, { about: "the next slot" });
      await rpc("DeleteFunction", { id });
      await tick();
    }
  });

  test("with an event name the event is emitted for all who want it", async () => {
    await register("ticker", [{ cron: "0 0 1 1 *", event: "clock.tick" }]);
    await register("listener", [{ event: "clock.tick" }]);
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE schedules SET next_at = ${Date.now() - 1_000} WHERE function_id = 'ticker'`),
    );
    await tick();
    expect(await runs("ticker")).toMatchObject([{ eventName: "clock.tick" }]);
    expect(await runs("listener")).toMatchObject([{ eventName: "clock.tick" }]);
    expect(await ledgers("ticker")).toMatchObject([{ expected_count: 1, fired_count: 1, missed_count: 0 }]);
  });

  test.each([
    ["downtime", "another"],
    ["stall", null],
  ] as const)("slots that nobody fired are missed by %s, and none is made up for", async (cause, by) => {
    const id = `missed-${cause}`;
    await register(id, [{ cron: "0 * * * *" }]);
    await miss(id, 5 * 3_600_000, by);
    await tick();
    const [ledger] = await ledgers(id);
    expect(ledger!.expected_count).toBe(ledger!.fired_count + ledger!.missed_count);
    expect(ledger!.missed_count).toBeGreaterThanOrEqual(4);
    expect(frames(id).at(-1)).toMatchObject({
      event: "cron.missed",
      count: ledger!.missed_count,
      cause,
      verified: true,
    });
    expect(await runs(id)).toHaveLength(ledger!.fired_count);
    expect(ledger!.next_at! % 3_600_000).toBe(0);
    const { body } = await server.api(`/api/v1/schedules?function_id=${id}`);
    const { fired_count: fired, missed_count: missed, next_at } = ledger!;
    expect(body.schedules).toMatchObject([{ function_id: id, expression: "0 * * * *", fired, missed }]);
    expect(body.schedules[0].coming.map(Date.parse)).toEqual(
      [0, 1, 2, 3, 4].map((hours) => next_at! + hours * 3_600_000),
    );
  });

  test("a slot that was fired unheard is no missed one, and a missed one is never fired again", async () => {
    await register("unheard", [{ cron: "0 * * * *" }]);
    await miss("unheard", 3 * 3_600_000, "another");
    const { store } = server.running.domain;
    const [before] = await ledgers("unheard");
    const hour = 3_600_000;
    // A slot's key is the server's own, which no caller can name; nodes of before 0.37 stored it as callers' are.
    const shown = (slot: number) => `cron:unheard:0:${slot}`;
    const stored = (slot: number) => ownKeyMark + shown(slot);
    const slots = [0, 1, 2].map((n) => before!.next_at! + n * hour);
    await store.write((session) =>
      session.run(sql`INSERT INTO idempotency_keys (environment_id, key, kind, function_id, event_id, run_ids, created_at)
        VALUES ('env_default', ${stored(slots[0]!)}, 'invoke', 'unheard', 'evt_first', '[]', ${Date.now()}),
          ('env_default', ${shown(slots[1]!)}, 'invoke', 'unheard', '', '[]', ${Date.now()})`),
    );
    // A caller's own, which takes no slot.
    expect((await rpc("Emit", { event: "squats", idempotencyKey: shown(slots[2]!) })).status).toBe(200);
    await tick();
    const [after] = await ledgers("unheard");
    expect(after!.expected_count).toBe(after!.fired_count + after!.missed_count);
    expect(after!.fired_count).toBe(2 + (await runs("unheard")).length);
    const taken = await store.all<{ key: string }>(
      sql`SELECT key FROM idempotency_keys WHERE function_id = 'unheard'`,
    );
    for (let slot = before!.next_at!; slot < after!.next_at!; slot += hour)
      expect(taken.map((row) => row.key)).toContain(slot === slots[1] ? shown(slot) : stored(slot));
  });

  test("registering again, invalid expressions, pauses", async () => {
    await register("steady", [{ cron: "0 6 * * *" }]);
    await register("steady", [{ cron: "0 6 * * *" }]);
    await register("steady", [{ cron: "0 7 * * *" }, { event: "also" }]);
    expect(frames("steady")).toMatchObject([
      { event: "cron.registered", replaced: false, expression: "0 6 * * *" },
      { event: "cron.registered", replaced: true, expression: "0 7 * * *" },
    ]);
    await register("broken", [{ cron: "CRON_TZ=Mars/Phobos 0 6 * * *" }]);
    expect(frames("broken")).toMatchObject([{ event: "cron.invalid" }]);
    const { schedules } = (await server.api("/api/v1/schedules?function_id=broken")).body;
    expect(schedules).toMatchObject([{ coming: [], error: expect.stringContaining("Mars/Phobos") }]);
    await rpc("UpdateFunctionStatus", { id: "steady", status: "FUNCTION_STATUS_PAUSED" });
    await tick();
    expect(await ledgers("steady")).toMatchObject([{ next_at: null }]);
    await rpc("UpdateFunctionStatus", { id: "steady", status: "FUNCTION_STATUS_ACTIVE" });
    await tick();
    expect((await ledgers("steady"))[0]!.next_at).toBeNumber();
    await rpc("UpdateFunctionStatus", { id: "steady", status: "FUNCTION_STATUS_ARCHIVED" });
    await tick();
    expect(frames("steady").at(-1)).toMatchObject({ event: "cron.removed", cause: "triggers_changed" });
  });
});
