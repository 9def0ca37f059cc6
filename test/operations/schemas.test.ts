import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const order = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  properties: { id: { type: "string", pattern: "^o[0-9]+$" }, total: { type: "number", minimum: 0 } },
  required: ["id"],
  additionalProperties: false,
};

describe.each(engines)("schemas of events on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server?.stop());

  const call = (method: string, body: object) => server.rpc("EventSchemaService", method, body);
  const register = (eventName: string, schema: unknown, version = 1, more: object = {}) =>
    call("RegisterSchema", { eventName, version, schemaJson: JSON.stringify(schema), ...more });
  const emit = (event: string, data: unknown, more: object = {}) =>
    server.rpc("SvcService", "Emit", { event, dataValue: data, ...more });
  const countOf = async (name: string) => (await server.api(`/api/v1/events?names=${name}`)).body.count;
  const setMode = (mode: string) =>
    server.api("/api/v1/events/enforcement", { method: "PUT", body: { mode } });

  test("are registered, listed, read and deleted", async () => {
    expect((await register("crud.a", order, 1, { description: "orders" })).body).toEqual({
      status: "registered",
    });
    expect((await register("crud.a", order)).body).toEqual({ status: "unchanged" });
    const other = await register("crud.a", { type: "string" });
    expect(other).toMatchObject({ status: 409, body: { code: "already_exists" } });
    await register("crud.a", true, 3);
    const got = await call("GetSchema", { eventName: "crud.a" });
    expect(got.body).toMatchObject({ eventName: "crud.a", version: 3, schemaJson: "true" });
    expect((await call("GetSchema", { eventName: "crud.a", version: 1 })).body).toMatchObject({
      description: "orders",
      schemaJson: JSON.stringify(order),
    });
    expect((await call("GetSchema", { eventName: "crud.a", version: 2 })).body).toMatchObject({
      code: "not_found",
      message: "schema crud.a/2 not found",
    });
    const list = await call("ListSchemas", { eventName: "crud.a", limit: 1, offset: 1 });
    expect(list.body).toMatchObject({ totalCount: 2, schemas: [{ eventName: "crud.a", version: 3 }] });
    expect((await call("DeleteSchema", { eventName: "crud.a", version: 3 })).status).toBe(200);
    expect((await call("DeleteSchema", { eventName: "crud.a", version: 3 })).body.code).toBe("not_found");
    expect((await call("DeleteSchema", { eventName: "crud.a" })).body.code).toBe("invalid_argument");
  });

  test("the same over REST", async () => {
    const body = { event_name: "crud.rest", version: 2, schema_json: JSON.stringify(order) };
    const made = await server.api("/api/v1/events/schemas", { body });
    expect(made).toMatchObject({ status: 201, body: { event_name: "crud.rest", version: 2, schema: order } });
    expect((await server.api("/api/v1/events/schemas", { body })).status).toBe(200);
    const { schemas } = (await server.api("/api/v1/events/schemas?event_name=crud.rest")).body;
    expect(schemas).toMatchObject([{ event_name: "crud.rest", version: 2, hash: made.body.hash }]);
    expect((await server.api("/api/v1/events/schemas/crud.rest")).body.schema).toEqual(order);
    expect((await server.api("/api/v1/events/schemas/crud.rest/2")).body).toEqual(made.body);
    const gone = await server.api("/api/v1/events/schemas/crud.rest/2", { method: "DELETE" });
    expect(gone.status).toBe(204);
    expect((await server.api("/api/v1/events/schemas/crud.rest")).status).toBe(404);
  });

  test("an event that breaks its schema is refused at every door, and nothing is written", async () => {
    await register("door.a", order);
    const good = { id: "o1", total: 3 };
    const bad = { id: "x1", total: -1 };
    const says = 'data: /id must match the pattern "^o[0-9]+$" (pattern, version 1 of the schema of door.a)';
    const doors: [string, string, (data: object) => object][] = [
      ["SvcService", "Emit", (data) => ({ event: "door.a", data })],
      ["SvcService", "Trigger", (data) => ({ event: "door.a", data })],
      ["PubSubService", "Emit", (data) => ({ event: "door.a", data })],
      ["SvcService", "TriggerSync", (data) => ({ event: "door.a", data })],
      [
        "EntityStreamService",
        "AppendEvent",
        (data) => ({ entityId: "e1", entityType: "e", eventName: "door.a", data }),
      ],
    ];
    for (const [service, method, body] of doors) {
      const refused = await server.rpc(service, method, body(bad));
      expect(refused, method).toMatchObject({
        status: 400,
        body: { code: "invalid_argument", message: says },
      });
      expect((await server.rpc(service, method, body(good))).status, method).toBe(200);
    }
    const written = await countOf("door.a");
    const batch = await server.rpc("SvcService", "TriggerBatch", {
      events: [
        { event: "door.b" },
        { event: "door.a", data: good },
        { event: "door.a", data: { id: "o2", no: 1 } },
      ],
    });
    expect(batch.body.message).toBe(
      "events[2].data: /no is no property that is allowed (additionalProperties, version 1 of the schema of door.a)",
    );
    const appends = await server.rpc("EntityStreamService", "AppendEvents", {
      streams: [
        { entityId: "e2", entityType: "e", events: [{ eventName: "door.a", data: good }] },
        { entityId: "e3", entityType: "e", events: [{ eventName: "door.a", data: {} }] },
      ],
    });
    expect(appends.body.message).toBe(
      'streams[1].events[0].data: must have the property "id" (required, version 1 of the schema of door.a)',
    );
    expect(await countOf("door.a")).toBe(written);
    expect(await countOf("door.b")).toBe(0);
    expect((await server.rpc("EntityStreamService", "GetStreamInfo", { entityId: "e2" })).status).toBe(404);
    const stream = await server.rpc("EntityStreamService", "ReadStream", { entityId: "e1" });
    expect(stream.body.events[0].schemaHash).toMatch(/^[0-9a-f]{64}$/);
  });

  test("a governed name has no other versions; any other name has all", async () => {
    await register("version.a", true, 2);
    expect((await emit("version.a", 1)).body).toMatchObject({
      code: "invalid_argument",
      message: "version: version.a has no schema of version 1 (registered: 2)",
    });
    expect((await emit("version.a", 1, { version: 2 })).status).toBe(200);
    expect((await emit("version.ab", 1, { version: 9 })).status).toBe(200);
    await call("DeleteSchema", { eventName: "version.a", version: 2 });
    expect((await emit("version.a", 1)).status).toBe(200);
  });

  test("what was accepted before is answered again for its key, whatever schema came since", async () => {
    const first = await emit("again.a", { id: 7 }, { idempotencyKey: "again-1" });
    await register("again.a", order);
    expect((await emit("again.a", { id: 7 }, { idempotencyKey: "again-1" })).body).toEqual(first.body);
    expect((await emit("again.a", { id: 7 }, { idempotencyKey: "again-2" })).status).toBe(400);
  });

  test("an invoke and a publish are not checked", async () => {
    await register("free.fn", { type: "string" });
    await server.rpc("SvcService", "RegisterFunction", { id: "free.fn", triggers: [] });
    const invoked = await server.rpc("SvcService", "InvokeFunction", {
      functionId: "free.fn",
      data: { a: 1 },
    });
    expect(invoked.status).toBe(200);
    const published = await server.rpc("PubSubService", "Publish", { topic: "free.fn", data: { a: 1 } });
    expect(published.status).toBe(200);
  });

  test("whoever emits for a caller is checked; the start of a schedule is not", async () => {
    await register("source.a", order);
    const draft = { ...{ name: "source.a", version: 1, value: {}, data: "{}" }, metadata: null };
    const emitAs = (source: string) =>
      server.running.domain.events.emit([{ ...draft, metadataValue: null, idempotencyKey: null }], {
        ...{ environmentId: server.env, source, runId: undefined },
      });
    await expect(emitAs("webhook")).rejects.toThrow('data: must have the property "id"');
    expect(await emitAs("cron")).toHaveLength(1);
    expect(await countOf("source.a")).toBe(1);
  });

  test("a step that emits is told as any caller, and an emit that is right goes on", async () => {
    await register("step.a", order);
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    const fn = createFunction({ id: "step.fn", event: "step.begin" }, async ({ step }) => {
      const refused = await step.emit("step.a", { id: "no" }).catch((error: Error) => error.message);
      await step.emit("step.a", { id: "o1" });
      return refused;
    });
    const worker = createWorker({ url: server.url, apiKey: server.adminKey, functions: [fn] });
    await worker.start();
    try {
      const { runIds } = await client.emit("step.begin", {});
      const run = await client.waitForRun(runIds[0]!);
      expect(run.status).toBe("completed");
      expect(run.output).toContain("/id must match the pattern");
      expect(await countOf("step.a")).toBe(1);
    } finally {
      await worker.stop();
    }
  });

  test("an environment warns, or does not look", async () => {
    await register("mode.a", order);
    expect((await setMode("warn")).body).toEqual({ mode: "warn" });
    const warned = await emit("mode.a", { id: "o1", total: "7" });
    expect((await server.api(`/api/v1/events/${warned.body.eventId}`)).body).toMatchObject({
      schema_breach: "/properties/total/type",
      schema_hash: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    const odd = `a\0${"b".repeat(1_000)}`;
    await register("mode.odd", { properties: { [odd]: { type: "string" } } });
    const marked = await emit("mode.odd", { [odd]: 1 });
    const { schema_breach } = (await server.api(`/api/v1/events/${marked.body.eventId}`)).body;
    expect(schema_breach).toBe(`/properties/a\ufffd${"b".repeat(186)}`);
    const other = await emit("mode.a", {}, { version: 4 });
    expect((await server.api(`/api/v1/events/${other.body.eventId}`)).body.schema_breach).toBe("version");
    const check = await call("CheckEnforcement", { eventName: "mode.a" });
    expect(check.body).toMatchObject({ mode: "warn", trafficWindowHours: 24, totalSchemas: 1 });
    const hash = check.body.schemas[0].schemaHash;
    expect(check.body.schemas).toMatchObject([{ eventName: "mode.a", version: 1, asserts: true }]);
    expect(check.body.schemas[0].traffic).toEqual([
      { version: 4, count: "1" },
      { version: 1, schemaHash: hash, count: "1" },
    ]);
    await setMode("off");
    const off = await emit("mode.a", {});
    expect((await server.api(`/api/v1/events/${off.body.eventId}`)).body.schema_hash).toBeUndefined();
    expect((await setMode("sometimes")).status).toBe(400);
    await setMode("enforce");
    expect((await emit("mode.a", {})).status).toBe(400);
  });

  test("data of older versions is brought up by what the schemas say", async () => {
    const up = [
      { op: "rename", path: "/name", to: "label" },
      { op: "move", from: "/street", to: "/address/street" },
      { op: "default", path: "/country", value: "AT" },
      { op: "drop", path: "/old" },
      { op: "cel", path: "/size", expression: "size(data.items)" },
    ];
    await register("up.a", { type: "object" });
    await register("up.a", { type: "object", "x-upcast": up }, 2);
    await register("up.a", { type: "object" }, 5);
    const data = { name: "n", street: "s", old: 1, items: [1, 2] };
    const now = { items: [1, 2], label: "n", address: { street: "s" }, country: "AT", size: 2 };
    const tested = await call("TestUpcast", { eventName: "up.a", fromVersion: 1, data });
    expect(tested.body).toEqual({
      data: now,
      stepsApplied: [{ fromVersion: 1, toVersion: 2, description: "rename, move, default, drop, cel" }],
    });
    const rest = await server.api("/api/v1/events/upcast", {
      body: { eventName: "up.a", fromVersion: 2, toVersion: 5, data },
    });
    expect(rest.body).toEqual({ success: true, data, steps_applied: [] });
    const emitted = await emit("up.a", data);
    const path = `/api/v1/events/${emitted.body.eventId}`;
    expect((await server.api(path)).body).toMatchObject({ version: 1, data });
    expect((await server.api(`${path}?schemaVersion=5`)).body).toMatchObject({ version: 5, data: now });
    const list = await server.api("/api/v1/events?names=up.a&schemaVersion=2");
    expect(list.body.events).toMatchObject([{ version: 2, data: now }]);
    const target = { entityId: "up.1", entityType: "up", eventName: "up.a" };
    await server.rpc("EntityStreamService", "AppendEvent", { ...target, data });
    const read = await server.rpc("EntityStreamService", "ReadStream", {
      entityId: "up.1",
      schemaVersion: 2,
    });
    expect(read.body.events).toMatchObject([{ version: 2, data: now, entityVersion: "1" }]);
    const historyAt = async (schemaVersion: number) => {
      const message = { entityId: "up.1", schemaVersion };
      return (await server.rpc("EntityStreamService", "GetEntityHistory", message)).body.entries;
    };
    expect(await historyAt(2)).toMatchObject([{ schemaVersion: 2, eventData: now, entityVersion: "1" }]);
    expect(await historyAt(0)).toMatchObject([{ schemaVersion: 1, eventData: data }]);
    expect((await call("TestUpcast", { eventName: "up.a", fromVersion: 1, toVersion: 4 })).body.code).toBe(
      "not_found",
    );
    const failing = await call("TestUpcast", { eventName: "up.a", fromVersion: 1, data: {} });
    expect(failing.body.code).toBe("failed_precondition");
    const unknown = await register("up.b", { "x-upcast": [{ op: "explode" }] });
    expect(unknown.body.message).toBe(
      "schema_json: /x-upcast/0/op must be one of rename, move, default, drop, cel",
    );
  });
});
