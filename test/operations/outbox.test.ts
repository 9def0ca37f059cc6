import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { lookerKey } from "../support/thing-doors.ts";
import { until } from "../support/until.ts";

const list = "/api/v1/outbox/dead-letter";

interface Row {
  id: string;
  event_id: string;
  attempts: number;
  due_at: number;
  dead_at: number | null;
}

describe.each(engines)("outbox on %s", (engine) => {
  let server: TestServer;
  let socket: TestSocket;
  let viewer: string;
  const rpc = (method: string, body: object) => server.rpc("SvcService", method, body);
  const rows = () =>
    server.running.domain.store.all<Row>(
      sql`SELECT id, event_id, attempts, due_at, dead_at FROM outbox ORDER BY id`,
    );
  /** A run that waits, and its cancel: one message of so many bytes of reason to whoever may hold it. */
  const cancelled = async (reason: string, environment = "env_default") => {
    const { body } = await server.rpc("SvcService", "Emit", { event: "held.asked" }, { environment });
    const runId = body.runIds[0] as string;
    const answer = await server.rpc("SvcService", "CancelRun", { id: runId, reason }, { environment });
    expect(answer.status).toBe(200);
    return runId;
  };
  /** The longest reason there is has four bytes a rune: more than the bus of this server takes. */
  const tooLong = "🙂".repeat(1_024);
  const age = () =>
    server.running.domain.store.write((session) => session.run(sql`UPDATE outbox SET due_at = 0`));
  const die = (eventId: string) =>
    until(
      async () => {
        await age();
        await server.running.tick("outbox.relay");
        return (await rows()).find((row) => row.event_id === eventId && row.dead_at !== null);
      },
      { about: "a dead letter", deadlineMs: 20_000, everyMs: 5 },
    );
  const frames = async (topic: string) => {
    const found = () => socket.of("event").filter((frame) => frame.topic === topic);
    await until(() => found().length > 0, { about: topic, deadlineMs: 20_000, everyMs: 10 });
    return found();
  };
  const letters = async (query = "env=env_default", options = {}) => server.api(`${list}?${query}`, options);

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { busPayloadMax: 1_024, pollHoldMs: 0 } });
    await rpc("RegisterFunction", { id: "held", triggers: [{ event: "held.asked" }] });
    const created = {
      orgId: "org_default",
      environmentId: "env_default",
      name: "v",
      roleIds: ["role_viewer"],
    };
    viewer = (await server.running.domain.keys.create(created)).key;
    socket = await openSocket(server.url, { key: viewer });
    await socket.subscribe("system.outbox.>");
  }, 120_000);
  afterAll(async () => {
    socket.close();
    await server.stop();
  });

  test("a message that is told at once leaves nothing behind", async () => {
    await cancelled("short");
    await until(async () => (await rows()).length === 0, {
      about: "an empty outbox",
      deadlineMs: 20_000,
      everyMs: 10,
    });
    expect((await letters()).body).toEqual({ items: [], limit: 50, offset: 0 });
  });

  test("a message that the bus does not take is a dead letter after ten attempts, is requeued, and discarded", async () => {
    const runId = await cancelled(tooLong);
    const eventId = `cancel-${runId}`;
    const { id } = await die(eventId);
    const [frame, ...more] = await frames(`system.outbox.${eventId}.dead_lettered`);
    expect(more).toEqual([]);
    expect(frame.data).toEqual({
      event_id: eventId,
      outbox_id: id,
      entity_id: "",
      topic: "runs.control",
      kind: "control",
      environment_id: "env_default",
      attempts: 10,
      last_error: expect.stringContaining("SVC_BUS_PAYLOAD_MAX allows 1024"),
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    });

    const { status, body } = await letters("env=env_default", { key: viewer });
    expect(status).toBe(200);
    expect(body.items).toHaveLength(1);
    const [letter] = body.items;
    expect(letter).toMatchObject({
      id,
      event_id: eventId,
      entity_id: "",
      topic: "runs.control",
      kind: "control",
      environment_id: "env_default",
      attempts: 10,
      last_error: frame.data.last_error,
    });
    expect(id).toStartWith("ob_");
    expect(Date.parse(letter.dead_at)).toBeGreaterThanOrEqual(Date.parse(letter.created_at));
    const message = JSON.parse(Buffer.from(letter.payload, "base64").toString());
    expect(message).toMatchObject({ messageId: eventId, kind: "cancel", runId, reason: tooLong });
    expect(JSON.parse(Buffer.from(letter.metadata, "base64").toString())).toEqual({
      message_id: eventId,
      run_id: runId,
    });

    const requeued = await server.api(`${list}/${eventId}/requeue`, { method: "POST" });
    expect(requeued).toMatchObject({ status: 200, body: { event_id: eventId, result: "requeued" } });
    expect((await frames(`system.outbox.${eventId}.requeued`))[0].data).toEqual({
      event_id: eventId,
      environment_id: "env_default",
      result: "requeued",
      timestamp: expect.any(String),
    });
    expect((await letters()).body.items).toEqual([]);
    expect((await server.api(`${list}/${eventId}/requeue`, { method: "POST" })).status).toBe(404);

    expect((await die(eventId)).attempts).toBe(10);
    const discarded = await server.api(`${list}/${eventId}`, { method: "DELETE" });
    expect(discarded).toMatchObject({ status: 200, body: { event_id: eventId, result: "discarded" } });
    expect((await frames(`system.outbox.${eventId}.discarded`))[0].data.result).toBe("discarded");
    expect(await rows()).toEqual([]);
    expect((await server.api(`${list}/${eventId}`, { method: "DELETE" })).status).toBe(404);
    expect((await rpc("GetRun", { id: runId })).body.status).toBe("RUN_STATUS_CANCELLED");
  }, 120_000);

  test("the newest dead letter is first, a page at a time", async () => {
    const first = `cancel-${await cancelled(tooLong)}`;
    await die(first);
    const second = `cancel-${await cancelled(tooLong)}`;
    await die(second);
    const ids = async (query: string) =>
      (await letters(query)).body.items.map((item: { event_id: string }) => item.event_id);
    expect(await ids("env=env_default")).toEqual([second, first]);
    expect(await ids("env=env_default&limit=1")).toEqual([second]);
    expect(await ids("env=env_default&limit=1&offset=1")).toEqual([first]);
    expect((await letters("env=env_default&limit=7&offset=3")).body).toEqual({
      items: [],
      limit: 7,
      offset: 3,
    });
    for (const eventId of [first, second]) await server.api(`${list}/${eventId}`, { method: "DELETE" });
  }, 120_000);

  test.each([
    ["limit", "0"],
    ["limit", "501"],
    ["limit", "many"],
    ["limit", ""],
    ["limit", "1.5"],
    ["offset", "-1"],
    ["offset", "10001"],
  ])("%s=%s is refused by its name", async (name, value) => {
    const { status, body } = await letters(`env=env_default&${name}=${value}`);
    expect(status).toBe(400);
    expect(body.message).toContain(name);
  });

  test("the list wants its environment named, by query or by header", async () => {
    const { status, body } = await server.api(list);
    expect({ status, message: body.message }).toEqual({
      status: 400,
      message: expect.stringContaining("env"),
    });
    expect((await server.api(list, { environment: "env_default" })).status).toBe(200);
    expect((await letters("env=env_unknown")).status).toBe(400);
  });

  test("readers may list, and only who manages the outbox may requeue and discard", async () => {
    for (const [path, method] of [
      [`${list}/evt_1/requeue`, "POST"],
      [`${list}/evt_1`, "DELETE"],
    ] as const) {
      expect((await server.api(path, { method, key: viewer })).status).toBe(403);
      expect((await server.api(path, { method, key: null })).status).toBe(401);
    }
    expect((await letters("env=env_default", { key: viewer })).status).toBe(200);
    expect((await letters("env=env_default", { key: null })).status).toBe(401);
  });

  test("another environment's dead letter is as one that is not there", async () => {
    const eventId = `cancel-${await cancelled(tooLong)}`;
    await die(eventId);
    const made = await server.api("/api/v1/environments", { body: { name: "other" } });
    const key = (
      await server.running.domain.keys.create({
        orgId: "org_default",
        environmentId: made.body.id,
        name: "o",
        roleIds: ["role_admin"],
      })
    ).key;
    const foreign = await server.api(`${list}/${eventId}`, { method: "DELETE", key });
    const absent = await server.api(`${list}/evt_absent`, { method: "DELETE", key });
    expect(foreign.status).toBe(404);
    expect(foreign.body).toEqual(JSON.parse(JSON.stringify(absent.body).replaceAll("evt_absent", eventId)));
    expect((await letters(`env=${made.body.id}`, { key })).body.items).toEqual([]);
    expect((await letters()).body.items).toHaveLength(1);
    await server.api(`${list}/${eventId}`, { method: "DELETE" });
  }, 120_000);

  test("a dead letter of an event that a policy hides is as one that is not there", async () => {
    const { key } = await lookerKey(server, "letters", {
      ...{ actions: "events:subscribe", resources: "event:*:secret.*" },
    });
    await server.running.domain.store.write((session) =>
      session.run(sql`INSERT INTO outbox (id, environment_id, event_id, topic, kind, payload, metadata, created_at,
          attempts, due_at, dead_at)
        VALUES ('ob_hidden', 'env_default', 'evt_hidden', 'events:secret.told', 'mirror', '{}', '{}', 1, 10, 1, 1),
          ('ob_shown', 'env_default', 'evt_shown', 'events:told', 'mirror', '{}', '{}', 1, 10, 1, 1)`),
    );
    const ids = async () => (await letters("env=env_default", { key })).body.items.map((row: Row) => row.id);
    expect(await ids()).toEqual(["ob_shown"]);
    for (const [method, path] of [
      ["DELETE", ""],
      ["POST", "/requeue"],
    ] as const) {
      const hidden = await server.api(`${list}/evt_hidden${path}`, { method, key });
      const absent = await server.api(`${list}/evt_absent${path}`, { method, key });
      expect(hidden.status).toBe(404);
      expect(hidden.body).toEqual(
        JSON.parse(JSON.stringify(absent.body).replaceAll("evt_absent", "evt_hidden")),
      );
    }
    expect((await letters()).body.items).toHaveLength(2);
    expect((await server.api(`${list}/evt_shown`, { method: "DELETE", key })).status).toBe(200);
    expect((await server.api(`${list}/evt_hidden`, { method: "DELETE" })).status).toBe(200);
  });

  test("an entry that nobody tries shows in the integrity report", async () => {
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`INSERT INTO outbox (id, environment_id, event_id, topic, kind, payload, metadata, created_at,
          attempts, due_at)
        VALUES ('ob_stuck', 'env_default', 'evt_stuck', 't', 'nobody', '{}', '{}', 1, 0, 1)`),
    );
    const check = await until(
      async () => {
        const { body } = await server.api("/api/v1/integrity");
        const found = body.checks.find((one: { name: string }) => one.name === "outbox.overdue");
        return found?.count === 1 ? found : undefined;
      },
      { about: "the check", deadlineMs: 20_000, everyMs: 100 },
    );
    expect(check.oldest.id).toBe("ob_stuck");
    await store.write((session) => session.run(sql`DELETE FROM outbox WHERE id = 'ob_stuck'`));
  });

  test("dead letters are forgotten after ninety days", async () => {
    const { store } = server.running.domain;
    const now = Date.now();
    const day = 86_400_000;
    for (const [id, deadAt] of [
      ["ob_old", now - 91 * day],
      ["ob_new", now - 89 * day],
    ] as const)
      await store.write((session) =>
        session.run(sql`INSERT INTO outbox (id, environment_id, event_id, topic, kind, payload, metadata, created_at,
            attempts, due_at, dead_at)
          VALUES (${id}, 'env_default', 'evt_1', 't', 'control', '{}', '{}', 1, 10, 1, ${deadAt})`),
      );
    await until(
      async () => {
        await server.running.tick("outbox.forget");
        return (await rows()).every(({ id }) => id !== "ob_old");
      },
      { about: "the old one to go", deadlineMs: 20_000, everyMs: 50 },
    );
    expect((await rows()).map(({ id }) => id)).toEqual(["ob_new"]);
    expect((await server.api(`${list}/evt_1`, { method: "DELETE" })).status).toBe(200);
  });
});
