import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const strict = { type: "object", required: ["ok"] };

describe.each(engines)("schemas of events, roughly, on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server?.stop());

  const registerText = (eventName: string, schemaJson: string, version = 1) =>
    server.rpc("EventSchemaService", "RegisterSchema", { eventName, version, schemaJson });
  const register = (eventName: string, schema: unknown, version = 1) =>
    registerText(eventName, JSON.stringify(schema), version);
  const emit = (event: string, dataValue: unknown) => server.rpc("SvcService", "Emit", { event, dataValue });

  test("what cannot be used is refused, and says where and why", async () => {
    const chain = Object.fromEntries(
      Array.from({ length: 30 }, (_, at) => [`a${at}`, { $ref: `#/$defs/a${(at + 1) % 30}` }]),
    );
    const refused: [schema: unknown, says: string][] = [
      [{ type: "text" }, "/type must be of null, boolean, object, array, number, integer, string"],
      [{ properties: { a: { minimum: "1" } } }, "/properties/a/minimum must be a number"],
      [{ properties: { a: 5 } }, "/properties must be an object of schemas"],
      [{ items: [true] }, "/items must be a schema: an object or a boolean"],
      [{ anyOf: [] }, "/anyOf must be a list of schemas, not empty"],
      [{ pattern: "(?=x)" }, "/pattern cannot be used: the pattern is not a valid RE2 expression"],
      [
        { pattern: "(x{1,100}){1,100}" },
        "/pattern cannot be used: the pattern has more than 500 parts, repeated ones counted",
      ],
      [{ $ref: "https://example.test/schema" }, "/$ref leads out of the schema, which must be whole"],
      [{ $ref: "file:///etc/passwd" }, "/$ref leads out of the schema, which must be whole"],
      [{ $ref: "#/$defs/none" }, "/$ref leads to no schema"],
      [{ $ref: "#/$defs/__proto__", $defs: {} }, "/$ref leads to no schema"],
      [
        { $defs: chain, $ref: "#/$defs/a0" },
        "the schema must not refer to itself in a circle ($ref, allOf, anyOf, …) about one value",
      ],
      [
        { allOf: [{ $ref: "#" }] },
        "the schema must not refer to itself in a circle ($ref, allOf, anyOf, …) about one value",
      ],
      [{ $schema: "http://json-schema.org/draft-03/schema#" }, "/$schema must be one of"],
      [{ $dynamicRef: "#a" }, "/$dynamicRef is not supported: use $ref"],
      [{ allOf: Array(5_000).fill({}) }, "the schema must hold at most 5000 schemas"],
      [{ enum: ["x".repeat(256 * 1024)] }, "the schema must be at most 262144 bytes"],
      ["text", "the schema must be an object or a boolean"],
      [{ $id: `http://x/${"y".repeat(500)}` }, "/$id must be a URI of at most 500 characters"],
      [{ "x-upcast": [{ op: "move", from: "a", to: "/b" }] }, "/x-upcast/0/from must be a JSON pointer"],
      [
        { "x-upcast": [{ op: "default", path: "/a".repeat(100_000), value: 1 }] },
        "/x-upcast/0/path must have at most 32 parts",
      ],
      [
        { "x-upcast": Array(11).fill({ op: "cel", path: "/a", expression: "1" }) },
        "/x-upcast must have at most 10 operations cel",
      ],
      [
        { "x-upcast": Array(51).fill({ op: "drop", path: "/a" }) },
        "/x-upcast must be a list of at most 50 operations",
      ],
      [{ "x-upcast": [{ op: "cel", path: "/a", expression: "1 +" }] }, "/x-upcast/0/expression"],
    ];
    for (const [schema, says] of refused) {
      const { status, body } = await register("rough.refused", schema);
      expect({ status, code: body.code }, says).toEqual({ status: 400, code: "invalid_argument" });
      expect(body.message).toStartWith(`schema_json: ${says}`);
    }
    expect((await registerText("rough.refused", "{")).body.message).toBe(
      "schema_json: the schema must be JSON text",
    );
    expect((await registerText("rough.refused", "[".repeat(100_000))).body.message).toContain("64 levels");
    expect((await registerText("rough.refused", `"${"x".repeat(1024 * 1024)}"`)).body.message).toContain(
      "bytes",
    );
    for (const [name, version] of [
      ["a b", 1],
      ["a.*", 1],
      ["", 1],
      ["x".repeat(300), 1],
      ["a", -1],
    ] as const)
      expect((await registerText(name, "true", version)).body.code, name).toBe("invalid_argument");
    expect((await emit("rough.refused", {})).status).toBe(200);
  });

  test("a check has an end, whatever schema and data", async () => {
    const $defs: Record<string, unknown> = { z: { type: "null" } };
    for (let at = 0; at < 60; at++) {
      const next = { $ref: at === 59 ? "#/$defs/z" : `#/$defs/a${at + 1}` };
      $defs[`a${at}`] = { anyOf: [next, next] };
    }
    await register("rough.boom", { $defs, $ref: "#/$defs/a0" });
    const boom = await emit("rough.boom", 1);
    expect(boom.body).toMatchObject({
      code: "resource_exhausted",
      message: "data: the check takes more than 100000 steps by version 1 of the schema of rough.boom",
    });
    await register("rough.letters", { pattern: "(.*)(.*)(.*)(.*)(.*)x$" });
    expect((await emit("rough.letters", "a".repeat(200_000))).body.code).toBe("resource_exhausted");
    await register("rough.unique", { uniqueItems: true });
    expect(
      (
        await emit(
          "rough.unique",
          Array.from({ length: 200_000 }, (_, at) => at),
        )
      ).body.code,
    ).toBe("resource_exhausted");
    const tree = { anyOf: [{ properties: { a: { $ref: "#" } } }, { type: "object" }], type: "object" };
    await register("rough.tree", tree);
    let data: object = {};
    for (let at = 0; at < 25; at++) data = { a: data };
    expect((await emit("rough.tree", data)).status).toBe(200);
    expect((await emit("rough.other", {})).status).toBe(200);
  });

  test("keys of data that every object inherits are none", async () => {
    await register("rough.keys", { required: ["toString"], properties: { constructor: { type: "number" } } });
    expect((await emit("rough.keys", {})).status).toBe(400);
    expect((await emit("rough.keys", { toString: 1 })).status).toBe(200);
    await registerText("rough.proto", '{"additionalProperties":false,"properties":{"a":true}}');
    const body = '{"event":"rough.proto","data":{"__proto__":1}}';
    const headers = { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" };
    const answer = await fetch(`${server.url}/svc.v1.SvcService/Emit`, { method: "POST", headers, body });
    expect(answer.status).toBe(400);
    expect(await answer.text()).toContain("/__proto__ is no property that is allowed");
  });

  test("an event that is accepted while its schema comes obeys the old state or the new one, in the order of the log", async () => {
    const name = "rough.race";
    let isOver = false;
    const bad = { ok: undefined, other: 1 };
    const emitting = Array.from({ length: 8 }, async (_, worker) => {
      const answers: number[] = [];
      while (!isOver) answers.push((await emit(name, worker % 2 === 0 ? { ok: 1 } : bad)).status);
      return answers;
    });
    for (let round = 1; round <= 5; round++) {
      expect((await register(name, strict)).status).toBe(200);
      expect((await emit(name, bad)).status).toBe(400);
      await server.rpc("EventSchemaService", "DeleteSchema", { eventName: name, version: 1 });
      expect((await emit(name, bad)).status).toBe(200);
    }
    await register(name, strict);
    isOver = true;
    const answers = (await Promise.all(emitting)).flat();
    expect(answers.every((status) => status === 200 || status === 400)).toBe(true);
    const rows = await server.running.domain.store.all<{ data: string; schema_hash: string | null }>(
      sql`SELECT data, schema_hash FROM events WHERE name = ${name} ORDER BY position`,
    );
    expect(rows.length).toBe(answers.filter((status) => status === 200).length + 5);
    const [checked, free] = [rows.filter((row) => row.schema_hash), rows.filter((row) => !row.schema_hash)];
    expect(checked.every(({ data }) => "ok" in JSON.parse(data))).toBe(true);
    expect(free.length).toBeGreaterThanOrEqual(5);
    // Six times the name became governed, so the log changes over at most eleven times.
    const changes = rows.filter((row, at) => at > 0 && !row.schema_hash !== !rows[at - 1]!.schema_hash);
    expect(changes.length).toBeLessThanOrEqual(11);
  });

  test("of many who register one version at once, one text wins, and all of its senders hear so", async () => {
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, at) => register("rough.version", { title: `${at % 3}` })),
    );
    const kept = (await server.rpc("EventSchemaService", "GetSchema", { eventName: "rough.version" })).body;
    const winner = Number(JSON.parse(kept.schemaJson).title);
    expect(answers.map(({ status }) => status)).toEqual(
      Array.from({ length: 12 }, (_, at) => (at % 3 === winner ? 200 : 409)),
    );
    expect(answers.filter(({ body }) => body.status === "registered")).toHaveLength(1);
  });

  test("what a policy denies is neither read, listed, changed nor checked", async () => {
    await register("pay.salary", true);
    await register("pay.open", true);
    const made = async (path: string, body: object) => (await server.api(path, { body })).body;
    const role = await made("/api/v1/roles", { name: "bound", base: "developer" });
    const policy = await made("/api/v1/policies", {
      name: "no salaries",
      effect: "deny",
      actions: "schemas:read, schemas:manage",
      resources: "irn:svc:*:*:event:*:pay.salary",
    });
    await made(`/api/v1/roles/${role.id}/policies`, { policy_id: policy.id });
    const { key } = await made("/api/v1/apikeys", { name: "bound", role_ids: [role.id] });
    const bound = (method: string, body: object) => server.rpc("EventSchemaService", method, body, { key });
    const named = { eventName: "pay.salary", version: 1, schemaJson: "true", fromVersion: 1 };
    for (const method of ["GetSchema", "RegisterSchema", "DeleteSchema", "TestUpcast", "CheckEnforcement"])
      expect((await bound(method, named)).body.code, method).toBe("permission_denied");
    const { schemas } = (await bound("ListSchemas", { limit: 200 })).body;
    const names = schemas.map(({ eventName }: { eventName: string }) => eventName);
    expect(names).toContain("pay.open");
    expect(names).not.toContain("pay.salary");
    const check = (await bound("CheckEnforcement", {})).body;
    expect(JSON.stringify(check)).not.toContain("pay.salary");
    const viewer = await made("/api/v1/apikeys", { name: "viewer", role_ids: ["role_viewer"] });
    const seen = (method: string) => server.rpc("EventSchemaService", method, named, { key: viewer.key });
    expect((await seen("GetSchema")).status).toBe(200);
    expect((await seen("RegisterSchema")).status).toBe(403);
  });

  test("an environment has so many schemas, and no more", async () => {
    await server.running.domain.store.write(async (session) => {
      for (let at = 0; at < 1_000; at++)
        await session.run(sql`INSERT INTO event_schemas
          (environment_id, event_name, version, hash, schema_json, bytes, description, created_at)
          VALUES (${server.env}, ${`many.${at}`}, 1, 'h', 'true', 4, '', 1)`);
    });
    const { body } = await register("many.more", true);
    expect(body).toMatchObject({
      code: "resource_exhausted",
      message: "an environment has at most 1000 schemas of events",
    });
  });
});
