import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { whoOperations } from "../support/who.ts";
import { holdsWithin } from "../support/within.ts";

describe.each(engines)("on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, operations: whoOperations });
  });
  afterAll(() => server.stop());

  const newKey = (changes: { roleIds?: string[]; environmentId?: string | null; expiresAt?: number } = {}) =>
    server.running.domain.keys.create({
      orgId: "org_default",
      environmentId: "env_default",
      name: "test",
      roleIds: ["role_viewer"],
      ...changes,
    });
  const refusal = (message: string, code: string) => ({ error: message, message, code });
  const invalid = refusal("Invalid API key", "unauthenticated");

  test("a key opens what its role grants, in its own environment", async () => {
    const { id, key } = await newKey();
    const answer = await server.api("/test/who", { key });
    expect(answer.status).toBe(200);
    expect(answer.body).toEqual({
      caller: { kind: "key", id, orgId: "org_default", roles: ["role_viewer"], tokensAfter: 0 },
      environment_id: "env_default",
    });
  });

  test("what the role does not grant is 403", async () => {
    const { key } = await newKey();
    const { status, body } = await server.api("/test/manage", { key });
    expect({ status, body }).toEqual({
      status: 403,
      body: refusal("Insufficient permissions: apikeys:manage is granted by admin", "permission_denied"),
    });
    expect((await server.api("/test/manage")).status).toBe(200);
  });

  test("no key is 401, except on what is public", async () => {
    const { status, body } = await server.api("/test/who", { key: null });
    expect({ status, body }).toEqual({
      status: 401,
      body: refusal("Authentication required", "unauthenticated"),
    });
    expect((await server.api("/test/public", { key: null })).status).toBe(200);
    expect((await server.api("/test/public", { key: "ifkey_wrong" })).status).toBe(200);
    const basic = { authorization: "Basic YTpi" };
    expect((await server.api("/test/who", { key: null, headers: basic })).body.error).toBe(
      "Authentication required",
    );
  });

  test.each(["ifkey_00000000000000000000000000000000", "x", "y".repeat(300), "' OR 1=1 --"])(
    "an unknown key is 401: %s",
    async (key) => {
      const { status, body } = await server.api("/test/who", { key });
      expect({ status, body }).toEqual({ status: 401, body: invalid });
    },
  );

  test("an expired key is 401 before anything is said of its environment or role", async () => {
    const { key } = await newKey({ expiresAt: 1_000, environmentId: null, roleIds: [] });
    const { status, body } = await server.api("/test/manage", { key, environment: "env_of_nobody" });
    expect({ status, body }).toEqual({ status: 401, body: refusal("API key expired", "unauthenticated") });
  });

  test("a key ends at its time although it is remembered", async () => {
    // What is remembered goes by the time that passes, the end of a key by the clock: that one alone jumps.
    const base = systemClock();
    let aheadMs = 0;
    const clock = { ...base, now: () => base.now() + aheadMs };
    const other = await startTestServer({ engine, clock, operations: whoOperations });
    try {
      const { key } = await other.running.domain.keys.create({
        orgId: "org_default",
        environmentId: "env_default",
        name: "test",
        roleIds: ["role_viewer"],
        expiresAt: clock.now() + 3_600_000,
      });
      expect((await other.api("/test/who", { key })).status).toBe(200);
      aheadMs = 3_600_000;
      expect(await other.api("/test/who", { key })).toMatchObject({
        status: 401,
        body: { error: "API key expired" },
      });
    } finally {
      await other.stop();
    }
  });

  test("a key without an environment is 403, before its role is asked", async () => {
    const { key } = await newKey({ environmentId: null, roleIds: [] });
    const { status, body } = await server.api("/test/who", { key });
    const wanted = refusal("request has no environment scope", "permission_denied");
    expect({ status, body }).toEqual({ status: 403, body: wanted });
  });

  test("the query carries a key too; the header is believed first", async () => {
    const { id, key } = await newKey();
    const byQuery = await server.api(`/test/who?token=${key}`, { key: null });
    expect(byQuery.body.caller.id).toBe(id);
    expect((await server.api("/test/who?token=ifkey_wrong")).body.caller.id).toBe("ak_admin_bootstrap");
    expect((await server.api(`/test/who?token=${key}`, { key: "ifkey_wrong" })).body).toEqual(invalid);
    expect((await server.api(`/test/who?mytoken=${key}`, { key: null })).status).toBe(401);
  });

  test("the scheme may be written in any case", async () => {
    const { key } = await newKey();
    const headers = { authorization: `bearer  ${key}` };
    expect((await server.api("/test/who", { key: null, headers })).status).toBe(200);
  });

  test("the same refusals reach Connect callers", async () => {
    const answer = await server.rpc("SvcService", "ListRuns", {}, { key: "ifkey_wrong" });
    // A method that has no operation yet is told so; one that has asks for a key first.
    expect([401, 501]).toContain(answer.status);
    if (answer.status === 401)
      expect(answer.body).toEqual({ code: "unauthenticated", message: "Invalid API key" });
  });

  test("a revoked key ends at once here, and within a second on another node", async () => {
    const other =
      engine === "postgres"
        ? await startTestServer({ engine, home: server.home, operations: whoOperations })
        : undefined;
    try {
      const { id, key } = await newKey();
      expect((await server.api("/test/who", { key })).status).toBe(200);
      expect((await other?.api("/test/who", { key }))?.status ?? 200).toBe(200);
      expect(await server.running.domain.keys.remove(id)).toBe(true);
      expect((await server.api("/test/who", { key })).body).toEqual(invalid);
      if (!other) return;
      const gone = async () => (await other.api("/test/who", { key })).status === 401;
      await holdsWithin(1_000, gone, "that the key is gone, at the other node");
    } finally {
      await other?.stop();
    }
  });

  test("when a key was used last is written later, all keys at once", async () => {
    const startedAt = Date.now();
    const used = [await newKey(), await newKey()];
    const unused = await newKey();
    for (const { key } of used) await server.api("/test/who", { key });
    await server.running.tick("keys.used");
    const lastUsed = async ({ id }: { id: string }) =>
      (
        await server.running.domain.store.one<{ last_used_at: number | null }>(
          sql`SELECT last_used_at FROM api_keys WHERE id = ${id}`,
        )
      )?.last_used_at;
    // By the server's clock: it follows the database's, a little off this machine's.
    for (const key of used) {
      const at = (await lastUsed(key))!;
      expect(at).toBeGreaterThan(startedAt - 1_000);
      expect(at).toBeLessThan(Date.now() + 1_000);
    }
    expect(await lastUsed(unused)).toBeNull();
  });

  test("only a hash of the key is stored", async () => {
    const { id, key } = await newKey();
    expect(key).toMatch(/^ifkey_[0-9a-f]{32}$/);
    expect(id).toMatch(/^ak_[0-9a-f-]{36}$/);
    const row = await server.running.domain.store.one(sql`SELECT * FROM api_keys WHERE id = ${id}`);
    expect(JSON.stringify(row)).not.toContain(key.slice(14));
    expect(row).toMatchObject({ key_prefix: key.slice(0, 14) });
  });
});

describe.each(engines)("--dev on %s", (engine) => {
  test("everyone is admin, in the environment they choose", async () => {
    const server = await startTestServer({ engine, operations: whoOperations, settings: { dev: true } });
    try {
      expect((await server.api("/test/manage", { key: null })).status).toBe(200);
      const { id } = await server.running.domain.tenancy.createEnvironment({
        orgId: "org_default",
        name: "staging",
      });
      const inStaging = await server.api("/test/who?env=staging", { key: null });
      expect(inStaging.body).toMatchObject({ environment_id: id, caller: { kind: "dev" } });
    } finally {
      await server.stop();
    }
  });
});
