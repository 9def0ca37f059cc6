import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

interface AuditEvent {
  id: string;
  event_type: string;
  environment_id: string;
  payload: Record<string, unknown>;
  metadata: Record<string, string>;
}

describe.each(engines)("the audit of calls on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { auditRedactFields: "nickName" } });
  });
  afterAll(() => server.stop());

  const keyWith = async (roleIds: string[], orgId = "org_default") =>
    (
      await server.running.domain.keys.create({
        orgId,
        environmentId: "env_default",
        name: "test",
        roleIds,
      })
    ).key;
  const flush = () => server.running.tick("audit.flush");
  const trail = async (query: object = {}, key = server.adminKey): Promise<AuditEvent[]> => {
    await flush();
    const answer = await server.rpc("AuditService", "GetAuthAuditTrail", query, { key });
    expect(answer.status).toBe(200);
    return answer.body.events;
  };

  test("a denial is there with the rule, an excluded call is not", async () => {
    const key = await keyWith(["role_viewer"]);
    expect((await server.rpc("SvcService", "Emit", { event: "a" }, { key })).status).toBe(403);
    expect((await server.rpc("SvcService", "Emit", { event: "a" })).status).toBe(200);
    const found = await trail({ action: "events:emit" });
    expect(found.map((event) => event.event_type)).toEqual(["authz.denied"]);
    expect(found[0]).toMatchObject({
      environment_id: "env_default",
      payload: { operation: "events.emit", decision: "denied", rule: "role", outcome: "permission_denied" },
    });
  });

  test("a change is there with its input, without secrets and named fields", async () => {
    const made = await server.api("/api/v1/users", {
      body: { email: "ann@example.test", name: "Ann", password: "correct horse 7" },
    });
    expect(made.status).toBe(201);
    const [created] = await trail({ action: "users.create" });
    expect(created).toMatchObject({
      event_type: "users.create",
      payload: { input: { email: "ann@example.test", name: "Ann" }, outcome: "ok" },
      metadata: { audit_redacted_fields: "password" },
    });
    expect(JSON.stringify(created)).not.toContain("horse");
  });

  test("a secret's value is in no row and no spool", async () => {
    const value = "marker-of-a-secret";
    const made = await server.api("/api/v1/secrets", { body: { name: "audited", value } });
    expect(made.status).toBe(201);
    const { store } = server.running.domain;
    await flush();
    const rows = await store.all(sql`SELECT * FROM auth_audit`);
    expect(rows.length).toBeGreaterThan(0);
    expect(JSON.stringify(rows)).not.toContain(value);
    const [event] = await trail({ action: "secrets:manage" });
    expect(event).toMatchObject({
      payload: { input: { name: "audited" } },
      metadata: { audit_redacted_fields: "value" },
    });
  });

  test("reads are left out, what the rule refuses is told, a foreign org looks like none", async () => {
    await server.api("/api/v1/roles");
    expect(await trail({ action: "orgs:read" })).toEqual([]);
    await server.api("/api/v1/roles/role_admin", { method: "DELETE" });
    expect((await trail({ action: "roles.delete" })).map((event) => event.event_type)).toEqual([
      "roles.delete_blocked",
    ]);
    const key = await keyWith(["role_admin"], "org_stranger");
    const ask = (org_id: string) => server.rpc("AuditService", "GetAuthAuditTrail", { org_id }, { key });
    const none = await ask("org_none");
    expect(none.status).toBe(404);
    const foreign = await ask("org_default");
    expect(JSON.stringify(foreign.body)).toBe(JSON.stringify(none.body).replace("org_none", "org_default"));
    const viewer = await keyWith(["role_viewer"]);
    expect((await server.rpc("AuditService", "GetAuthAuditTrail", {}, { key: viewer })).status).toBe(403);
    expect((await server.api("/api/v1/audit/verify", { key: viewer })).status).toBe(403);
  });

  test("a key that tries another environment is told of", async () => {
    const { id } = await server.running.domain.tenancy.createEnvironment({
      orgId: "org_default",
      name: "second",
    });
    const key = await keyWith(["role_developer"]);
    expect((await server.api("/api/v1/events", { key, environment: id })).status).toBe(403);
    const [event] = await trail({ action: "events:subscribe" });
    expect(event).toMatchObject({ event_type: "authz.denied", payload: { rule: "credential" } });
  });

  test("a flood of denials leaves a bounded number of rows", async () => {
    const key = await keyWith(["role_viewer"]);
    for (let n = 0; n < 70; n++) await server.api("/api/v1/apikeys", { key });
    const denied = await trail({ action: "keys.list", limit: 200 });
    expect(denied.length).toBe(60);
  });

  test("the trail of an environment shows calls by action or key, to admins", async () => {
    await server.api("/api/v1/roles", { body: { name: "trailed" } });
    await flush();
    const { body } = await server.api("/api/v1/audit?action=roles.create&api_key_id=ak_admin_bootstrap");
    expect(body.events[0]).toMatchObject({
      event_type: "roles.create",
      payload: { input: { name: "trailed" } },
      environment_id: "env_default",
    });
    expect(body).toMatchObject({ total_count: 1, retention_days: 365 });
    expect((await server.api("/api/v1/audit?api_key_id=ak_none")).body.events).toEqual([]);
    const key = await keyWith(["role_viewer"]);
    expect((await server.api("/api/v1/audit?action=roles.create", { key })).status).toBe(403);
    expect((await server.api("/api/v1/audit", { key })).status).toBe(200);
  });

  test("pages by cursor, newest first", async () => {
    for (const name of ["one", "two", "three"]) await server.api("/api/v1/roles", { body: { name } });
    await flush();
    const page = async (cursor: string) =>
      (await server.rpc("AuditService", "GetAuthAuditTrail", { action: "roles.create", limit: 2, cursor }))
        .body;
    const first = await page("");
    const second = await page(first.nextCursor);
    const names = [...first.events, ...second.events].map((event) => event.payload.input.name);
    expect(names.slice(0, 3)).toEqual(["three", "two", "one"]);
    expect(first.totalCount).toBe(4);
    expect(second.nextCursor).toBe("");
    const bad = await server.rpc("AuditService", "GetAuthAuditTrail", { from_timestamp: "yesterday" });
    expect(bad).toMatchObject({ status: 400, body: { message: "from: must be an RFC 3339 time" } });
  });

  test("a policy is tried on the calls that were made", async () => {
    const key = await keyWith(["role_viewer"]);
    await server.api("/api/v1/roles", { body: { name: "again" } });
    await server.rpc("SvcService", "Emit", { event: "a" }, { key });
    await flush();
    const { body } = await server.api("/api/v1/policies/dry-run", {
      body: { actions: "orgs:manage", condition: "true", last: 100 },
    });
    expect(body.past.decisions).toBeGreaterThan(2);
    expect(body.past.denied).toBeGreaterThan(0);
    expect(body.past.subjects).toEqual(["ak_admin_bootstrap"]);
  });

  test("a policy is tried on the calls since an instant", async () => {
    const tried = async (asked: object) => {
      const text = { actions: "orgs:manage", condition: "true" };
      return server.api("/api/v1/policies/dry-run", { body: { ...text, ...asked } });
    };
    for (const name of ["earlier", "later"]) await server.api("/api/v1/roles", { body: { name } });
    await flush();
    const rows = await server.running.domain.store.all<{ at: number }>(
      sql`SELECT at FROM auth_audit WHERE org_id = 'org_default' ORDER BY at DESC, sequence DESC`,
    );
    const [newest, oldest] = [Number(rows[0]!.at), Number(rows.at(-1)!.at)];
    const at = (ms: number) => new Date(ms).toISOString();
    // Calls of other tests may be written meanwhile: more, never fewer.
    const { past: all } = (await tried({ since: at(oldest) })).body;
    expect(all.decisions).toBeGreaterThanOrEqual(rows.length);
    expect((await tried({ since: at(oldest), last: 1 })).body.past.decisions).toBe(1);
    const { past: late } = (await tried({ since: at(newest) })).body;
    expect(late.decisions).toBeGreaterThan(0);
    expect(late.decisions).toBeLessThan(all.decisions);
    const none = (await tried({ since: at(newest + 3_600_000) })).body.past;
    expect(none).toEqual({ decisions: 0, denied: 0, subjects: [] });
    expect((await tried({ since: "last week" })).status).toBe(400);
  });

  test("the settings are told", async () => {
    const { body } = await server.api("/api/v1/audit/settings");
    expect(body).toMatchObject({
      capture_scope: "denials and writes",
      authz_successful_reads: false,
      authz_excluded_actions: ["entities:append", "events:emit", "functions:invoke"],
      kv_capture: false,
      payload_redaction_enabled: true,
      payload_redaction_fields: ["nick_name"],
      retention_days: 365,
      changes_require_restart: true,
      delivery_healthy: true,
      delivery_failure_count: 0,
    });
  });

  describe("the chain", () => {
    const write = (query: ReturnType<typeof sql>) =>
      server.running.domain.store.write((session) => session.run(query));
    const verify = async (query = "") => (await server.api(`/api/v1/audit/verify${query}`)).body;
    const more = async (count: number) => {
      for (let n = 0; n < count; n++) await server.api("/api/v1/roles/role_viewer", { method: "DELETE" });
      await flush();
    };

    test("is whole, and a noted head is found again", async () => {
      await more(3);
      const noted = await verify();
      expect(noted).toMatchObject({ valid: true, broken: null, next_sequence: null });
      expect(noted.checked).toBe(noted.head_sequence);
      await more(1);
      const query = `?noted_sequence=${noted.head_sequence}&noted_hash=${noted.head_hash}`;
      expect(await verify(query)).toMatchObject({ valid: true });
      const other = `?noted_sequence=${noted.head_sequence}&noted_hash=x`;
      expect(await verify(other)).toMatchObject({ broken: { sequence: noted.head_sequence } });
    });

    test("names the row that was changed", async () => {
      for (const change of [
        sql`UPDATE auth_audit SET caller_id = caller_id || 'x' WHERE org_id = 'org_default' AND sequence = 3`,
        sql`UPDATE auth_audit SET hash = 'x' WHERE org_id = 'org_default' AND sequence = 3`,
      ]) {
        const before = await server.running.domain.store.one<{ caller_id: string; hash: string }>(
          sql`SELECT caller_id, hash FROM auth_audit WHERE org_id = 'org_default' AND sequence = 3`,
        );
        await write(change);
        expect(await verify()).toMatchObject({ valid: false, broken: { sequence: 3 } });
        await write(sql`UPDATE auth_audit SET caller_id = ${before!.caller_id}, hash = ${before!.hash}
          WHERE org_id = 'org_default' AND sequence = 3`);
        expect(await verify()).toMatchObject({ valid: true });
      }
    });

    test("is cut by retention and stays checkable", async () => {
      const { audit } = server.running.domain;
      const before = await verify();
      const { store } = server.running.domain;
      // Rows of a year ago, as the chain has them: by changing the time the others would be broken. In the transaction that
      // cuts them, or the duty's own loop might find them first.
      const aged: typeof store.write = (work) =>
        store.write(async (session) => {
          await session.run(sql`UPDATE auth_audit SET at = 1 WHERE org_id = 'org_default' AND sequence <= 2`);
          return work(session);
        });
      expect(await audit.forgetOnce(aged)).toEqual({ againInMs: 200 });
      expect(await audit.forgetOnce(aged)).toBeUndefined();
      expect(await verify()).toMatchObject({
        valid: true,
        floor_sequence: 2,
        checked: before.head_sequence - 2,
      });
    });

    test("is missed when its tail was cut, with or without its head put back", async () => {
      const { store } = server.running.domain;
      const early = await verify();
      const head = await store.one<{ sequence: number; hash: string; signature: string }>(
        sql`SELECT sequence, hash, signature FROM auth_audit_heads WHERE org_id = 'org_default'`,
      );
      await more(2);
      await write(
        sql`DELETE FROM auth_audit WHERE org_id = 'org_default' AND sequence > ${early.head_sequence + 1}`,
      );
      expect(await verify()).toMatchObject({ valid: false, broken: { sequence: early.head_sequence + 2 } });
      await write(
        sql`DELETE FROM auth_audit WHERE org_id = 'org_default' AND sequence > ${early.head_sequence}`,
      );
      await write(sql`UPDATE auth_audit_heads SET sequence = ${head!.sequence}, hash = ${head!.hash},
        signature = ${head!.signature} WHERE org_id = 'org_default'`);
      expect(await verify()).toMatchObject({ valid: false });
      // What comes then does not heal it.
      await more(1);
      expect(await verify()).toMatchObject({
        valid: false,
        broken: { sequence: early.head_sequence + 1, reason: "the row is missing" },
      });
    });

    test("of another org is another chain", async () => {
      const key = await keyWith(["role_admin"], "org_stranger");
      await server.api("/api/v1/roles/role_viewer", { method: "DELETE", key });
      await flush();
      expect((await server.api("/api/v1/audit/verify", { key })).body).toMatchObject({
        org_id: "org_stranger",
        valid: true,
      });
    });

    test("whose head is forged without the key is refused, and never signed", async () => {
      const key = await keyWith(["role_admin"], "org_stranger");
      await write(sql`UPDATE auth_audit_heads SET sequence = sequence - 1 WHERE org_id = 'org_stranger'`);
      const theirs = async () => (await server.api("/api/v1/audit/verify", { key })).body;
      expect(await theirs()).toMatchObject({ valid: false });
      await server.api("/api/v1/roles/role_viewer", { method: "DELETE", key });
      await flush();
      const after = await theirs();
      expect(after).toMatchObject({ valid: false });
      expect(after.broken.reason).toContain("the head is not what was signed");
      await write(sql`DELETE FROM auth_audit_heads WHERE org_id = 'org_stranger'`);
      await write(sql`DELETE FROM auth_audit WHERE org_id = 'org_stranger'`);
      expect(await theirs()).toMatchObject({ valid: false, broken: { reason: "the head was deleted" } });
    });
  });
});
