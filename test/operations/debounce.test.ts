import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import {
  type CallOptions,
  engines,
  type Home,
  makeHome,
  startTestServer,
  type TestServer,
} from "../support/server.ts";
import { until } from "../support/until.ts";

interface Entry {
  environment_id: string;
  function_id: string;
  debounce_key: string;
  key_kind?: string;
  event_id: string;
  function_version: number;
  period_ms: number;
  armed_at: string;
  fires_at: string;
}

describe.each(engines)("debounce on %s", (engine) => {
  let server: TestServer;
  let home: Home;
  const rpc = (method: string, body: unknown, options: CallOptions = {}) =>
    server.rpc("SvcService", method, body, options);
  const register = async (id: string, debounce: object, more: object = {}) => {
    const { status, body } = await rpc("RegisterFunction", {
      id,
      triggers: [{ event: `${id}.asked` }],
      debounce,
      ...more,
    });
    expect({ status, body }).toMatchObject({ status: 200 });
  };
  const emit = async (event: string, data: unknown = {}, more: object = {}) => {
    const { status, body } = await rpc("Emit", { event, data, ...more });
    expect({ status, body }).toMatchObject({ status: 200 });
    expect(body.runIds).toBeUndefined();
    return body.eventId as string;
  };
  const entries = async (functionId: string) => {
    const { status, body } = await server.api("/api/v1/debounce/entries?limit=1000");
    expect(status).toBe(200);
    return (body.entries as Entry[]).filter((entry) => entry.function_id === functionId);
  };
  const runs = async (functionId: string) =>
    ((await rpc("ListRuns", { functionId })).body.runs ?? []) as {
      id: string;
      eventId: string;
      input: unknown;
    }[];
  /** As if so much time had passed since the entries were armed. */
  const age = (functionId: string, ms: number, on = server) =>
    on.running.domain.store.write((session) =>
      session.run(sql`UPDATE debounces SET first_at = first_at - ${ms}, armed_at = armed_at - ${ms},
        fires_at = fires_at - ${ms} WHERE function_id = ${functionId}`),
    );
  const fire = () => server.running.tick("debounce.fire");
  const cancel = (env: string, fn: string, key: string, options: CallOptions = {}) =>
    server.api(`/api/v1/debounce/entries/${env}/${fn}/${key}`, { method: "DELETE", ...options });
  const coded = (key: string) => Buffer.from(key).toString("base64url");

  const keyIn = async (environmentId: string, role: string) => {
    const created = { orgId: "org_default", environmentId, name: "test", roleIds: [role] };
    return (await server.running.domain.keys.create(created)).key;
  };

  beforeAll(async () => {
    home = await makeHome(engine);
    server = await startTestServer({ engine, home });
  });
  afterAll(async () => {
    await server.stop();
    await home.remove();
  });

  test("a number and the text of it are two keys, and a cancel by the text cancels both", async () => {
    await register("kinds", { key: "k", periodMs: 60_000 });
    const asked = (k: unknown) => emit("kinds.asked", { k });
    const wanted = new Map<string, [key: string, kind: string]>();
    for (const [k, key, kind] of [
      [1, "1", "value"],
      ["1", "1", "text"],
      [true, "true", "value"],
      ["true", "true", "text"],
      [[1], "[1]", "value"],
      ["[1]", "[1]", "text"],
      ["__global__", "__global__", "text"],
      [null, "__global__", "none"],
      ["", "__global__", "none"],
    ] as const) {
      await asked(k);
      wanted.set(`${key} ${kind}`, [key, kind]);
      // The last event of each counts.
      await asked(k);
    }
    const found = await entries("kinds");
    const told = found.map(({ debounce_key, key_kind }) => [debounce_key, key_kind]);
    expect(told.toSorted()).toEqual([...wanted.values()].toSorted());
    expect((await cancel(server.env, "kinds", coded("1"))).status).toBe(204);
    expect((await cancel(server.env, "kinds", coded("__global__"))).status).toBe(204);
    await age("kinds", 60_000);
    await fire();
    const inputs = (await runs("kinds")).map(({ input }) => JSON.stringify((input as { k: unknown }).k));
    expect(inputs.toSorted()).toEqual(['"[1]"', '"true"', "[1]", "true"]);
  });

  test.each(["event.channel", "event.data.event.channel", "$.event.channel", "data.event.channel"])(
    "a key %s is that of the data's own field `event`",
    async (key) => {
      const id = key.replaceAll(/\W/g, "_");
      await register(id, { key, periodMs: 60_000 });
      for (const channel of ["one", "two"]) await emit(`${id}.asked`, { event: { channel } });
      // Without such a field `event.` stands for the event, and its data follows.
      if (key.startsWith("event.c")) await emit(`${id}.asked`, { channel: "three" });
      const wanted = key.startsWith("event.c") ? ["one", "three", "two"] : ["one", "two"];
      expect((await entries(id)).map(({ debounce_key }) => debounce_key).toSorted()).toEqual(wanted);
    },
  );

  test("an entry that an older node armed takes both until it fires", async () => {
    await register("older", { key: "k", periodMs: 60_000 });
    await emit("older.asked", { k: "7" });
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE debounces SET key_kind = NULL WHERE function_id = ${"older"}`),
    );
    // In one flush: both are of the entry that is there.
    await rpc("TriggerBatch", {
      events: ["7", 7, "7", 7].map((k) => ({ event: "older.asked", data: { k } })),
    });
    expect(await entries("older")).toHaveLength(1);
    await age("older", 60_000);
    await fire();
    expect((await runs("older")).map(({ input }) => input)).toEqual([{ k: 7 }]);
    await rpc("TriggerBatch", { events: ["7", 7].map((k) => ({ event: "older.asked", data: { k } })) });
    expect((await entries("older")).map(({ key_kind }) => key_kind).toSorted()).toEqual(["text", "value"]);
  });

  // A file has one node.
  test.if(engine === "postgres")("while an older node lives, a number is its text, as there", async () => {
    await register("mixed", { key: "k", periodMs: 60_000 });
    const { store } = server.running.domain;
    const now = Date.now();
    await store.write((session) =>
      session.run(sql`INSERT INTO nodes (id, version, url, started_at, heartbeat_at, draining_at, facts)
        VALUES ('older', '0.40.0', '', ${now}, ${now}, NULL, '{"loops":[]}')`),
    );
    try {
      for (const k of ["7", 7]) await emit("mixed.asked", { k });
      expect((await entries("mixed")).map(({ key_kind }) => key_kind)).toEqual([undefined]);
    } finally {
      await store.write((session) => session.run(sql`DELETE FROM nodes WHERE id = 'older'`));
    }
    await age("mixed", 60_000);
    await fire();
    for (const k of ["7", 7]) await emit("mixed.asked", { k });
    expect(await entries("mixed")).toHaveLength(2);
  });

  test("repetitions become one run of the last event, a lane for each key", async () => {
    await register("search", { periodMs: 60_000, key: "data.user" });
    await emit("search.asked", { user: "a", n: 1 });
    await emit("search.asked", { user: "b", n: 2 });
    const last = await emit("search.asked", { user: "a", n: 3 });
    const list = await entries("search");
    expect(list.map(({ debounce_key }) => debounce_key).sort()).toEqual(["a", "b"]);
    const a = list.find(({ debounce_key }) => debounce_key === "a")!;
    expect(a).toMatchObject({
      environment_id: server.env,
      event_id: last,
      function_version: 1,
      period_ms: 60_000,
    });
    expect(a.armed_at).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    expect(Date.parse(a.fires_at) - Date.parse(a.armed_at)).toBe(60_000);
    await fire();
    expect(await runs("search")).toEqual([]);
    await age("search", 60_000);
    await Promise.all([fire(), fire()]);
    await fire();
    const started = await runs("search");
    expect(started.map(({ input }) => input)).toContainEqual({ user: "a", n: 3 });
    expect(started).toHaveLength(2);
    expect(await entries("search")).toEqual([]);
  });

  test("events of one batch and of many callers arm one entry", async () => {
    await register("burst", { periodMs: 60_000 });
    await rpc("TriggerBatch", {
      events: Array.from({ length: 5 }, (_, n) => ({ event: "burst.asked", data: { n } })),
    });
    await Promise.all(Array.from({ length: 20 }, (_, n) => emit("burst.asked", { n: 100 + n })));
    const [entry, ...others] = await entries("burst");
    expect(others).toEqual([]);
    expect(entry!.debounce_key).toBe("__global__");
    const { body } = await server.api("/api/v1/events?name=burst.asked&limit=1");
    expect(entry!.event_id).toBe(body.events[0].id);
  });

  test.each([
    [{ user: 7 }, "7"],
    [{ user: true }, "true"],
    [{ user: { id: 1 } }, '{"id":1}'],
    [{ user: null }, "__global__"],
    [{ user: "" }, "__global__"],
    [{}, "__global__"],
    [[1], "__global__"],
    ["text", "__global__"],
    [{ user: "ü" }, "ü"],
  ])("the key of %j is %s", async (data, key) => {
    await register("keys", { periodMs: 60_000, key: "user" });
    const eventId = await emit("keys.asked", data);
    expect((await entries("keys")).find((entry) => entry.event_id === eventId)?.debounce_key).toBe(key);
  });

  test("maxWaitMs bounds what repetitions can put off", async () => {
    await register("bounded", { periodMs: 60_000, maxWaitMs: 90_000 });
    await emit("bounded.asked");
    await age("bounded", 50_000);
    await emit("bounded.asked");
    const [entry] = await entries("bounded");
    expect(Date.parse(entry!.fires_at) - Date.parse(entry!.armed_at)).toBeLessThanOrEqual(40_000);
    await age("bounded", 41_000);
    await fire();
    expect(await runs("bounded")).toHaveLength(1);
  });

  test("a period of a second fires by itself", async () => {
    await register("soon", { periodMs: 1_000 });
    const eventId = await emit("soon.asked", { n: 1 });
    await until(async () => (await runs("soon")).length === 1, { about: "the run of a debounced event" });
    expect(await runs("soon")).toMatchObject([{ eventId, input: { n: 1 } }]);
  });

  test("a repeated idempotency key does not arm again", async () => {
    await register("keyed", { periodMs: 60_000 });
    const first = await emit("keyed.asked", { n: 1 }, { idempotencyKey: "d1" });
    await emit("keyed.asked", { n: 2 });
    expect(await emit("keyed.asked", { n: 3 }, { idempotencyKey: "d1" })).toBe(first);
    expect((await entries("keyed"))[0]!.event_id).not.toBe(first);
  });

  test.if(engine === "postgres")("nodes that fire at once start one run", async () => {
    const other = await startTestServer({ engine, home });
    await register("shared", { periodMs: 60_000, key: "k" });
    for (let k = 0; k < 30; k++) await emit("shared.asked", { k });
    await age("shared", 60_000);
    const nodes = [server, other];
    await Promise.all([...nodes, ...nodes].map((node) => node.running.tick("debounce.fire")));
    await until(async () => (await entries("shared")).length === 0, { about: "all entries to fire" });
    expect((await rpc("ListRuns", { functionId: "shared", limit: 100 })).body.totalCount).toBe(30);
    await other.stop();
  });

  test("what would cancel the run does so from its event on", async () => {
    await register(
      "stoppable",
      { periodMs: 60_000 },
      { cancelOn: [{ event: "stoppable.stop", match: "id" }] },
    );
    await emit("stoppable.asked", { id: 1 });
    await age("stoppable", 60_000);
    await fire();
    const [run] = await runs("stoppable");
    await emit("stoppable.stop", { id: 2 });
    await emit("stoppable.stop", { id: 1 });
    await until(async () => (await rpc("GetRun", { id: run!.id })).body.status === "RUN_STATUS_CANCELLED", {
      about: "the run to be cancelled",
    });
  });

  test("direct starts are not debounced", async () => {
    await register("direct", { periodMs: 60_000 });
    expect((await rpc("InvokeFunction", { functionId: "direct" })).body.runId).toStartWith("run_");
    expect(await entries("direct")).toEqual([]);
  });

  test("cancelling: every status", async () => {
    await register("stopped", { periodMs: 60_000, key: "k" });
    await emit("stopped.asked", { k: "a/b ü" });
    expect((await cancel("env_foreign", "stopped", coded("a/b ü"))).status).toBe(403);
    for (const bad of ["%2B", "YQ==", "a", "_w"])
      expect((await cancel(server.env, "stopped", bad)).status).toBe(400);
    for (const path of ["", `/${server.env}`, `/${server.env}/stopped`])
      expect((await server.api(`/api/v1/debounce/entries${path}`, { method: "DELETE" })).status).toBe(400);
    expect((await cancel(server.env, "stopped", coded("a/b ü"), { key: null })).status).toBe(401);
    const viewer = await keyIn(server.env, "role_viewer");
    expect((await cancel(server.env, "stopped", coded("a/b ü"), { key: viewer })).status).toBe(403);
    expect((await server.api("/api/v1/debounce/entries", { key: viewer })).status).toBe(200);
    expect(await entries("stopped")).toHaveLength(1);
    const gone = await cancel(server.env, "stopped", coded("a/b ü"));
    expect(gone).toMatchObject({ status: 204, body: undefined });
    expect((await cancel(server.env, "stopped", coded("a/b ü"))).status).toBe(204);
    expect(await entries("stopped")).toEqual([]);
    for (const limit of [0, 1001, "x"])
      expect((await server.api(`/api/v1/debounce/entries?limit=${limit}`)).status).toBe(400);
  });

  test("what becomes of an entry when its function changes", async () => {
    for (const id of ["deleted", "paused", "archived", "undone", "newer"]) {
      await register(id, { periodMs: 60_000 });
      await emit(`${id}.asked`, { id });
    }
    await rpc("DeleteFunction", { id: "deleted" });
    expect(await entries("deleted")).toEqual([]);
    await rpc("UpdateFunctionStatus", { id: "paused", status: "FUNCTION_STATUS_PAUSED" });
    await rpc("UpdateFunctionStatus", { id: "archived", status: "FUNCTION_STATUS_ARCHIVED" });
    await rpc("RegisterFunction", { id: "undone", triggers: [{ event: "undone.asked" }] });
    await register("newer", { periodMs: 60_000 }, { timeoutMs: 5_000 });
    for (const id of ["paused", "archived", "undone", "newer"]) await age(id, 60_000);
    await fire();
    expect(await runs("deleted")).toEqual([]);
    expect(await runs("archived")).toEqual([]);
    expect(await entries("archived")).toEqual([]);
    expect(await runs("paused")).toMatchObject([{ status: "RUN_STATUS_WAITING_FOR_CAPACITY" }]);
    expect(await runs("undone")).toMatchObject([{ functionVersion: 1 }]);
    // The definition that its event found, as the entry said.
    expect(await runs("newer")).toMatchObject([{ functionVersion: 1 }]);
  });

  test("entries outlive a restart, and another environment sees none of them", async () => {
    await register("kept", { periodMs: 60_000 });
    const eventId = await emit("kept.asked");
    const theirs = await server.running.domain.tenancy.createEnvironment({
      orgId: "org_default",
      name: "theirs",
    });
    const key = await keyIn(theirs.id, "role_developer");
    expect((await server.api("/api/v1/debounce/entries", { key })).body).toEqual({ entries: [], count: 0 });
    expect((await cancel(server.env, "kept", coded("__global__"), { key })).status).toBe(403);
    await server.stop();
    server = await startTestServer({ engine, home });
    expect(await entries("kept")).toMatchObject([{ event_id: eventId }]);
    await age("kept", 60_000);
    await until(async () => (await runs("kept")).length === 1, { about: "the run after a restart" });
  });
});
