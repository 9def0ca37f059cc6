import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { holdsWithin } from "../support/within.ts";

const root = { email: "root@example.com", password: "correct horse battery", name: "Root" };

describe.each(engines)("impersonation on %s", (engine) => {
  let server: TestServer;
  let admin: string;
  let operator: string;
  let viewer: string;
  let org: string;
  let first: string;
  let second: string;

  const inOrg = (key: string, orgId: string, options: CallOptions = {}): CallOptions => ({
    ...options,
    key,
    headers: { "x-svc-org": orgId, ...options.headers },
  });
  const newKey = async (role: string) =>
    (
      await server.api("/api/v1/apikeys", {
        key: admin,
        body: { name: role, platform: true, role_ids: [role] },
      })
    ).body;
  const emit = (key: string, orgId: string, options: CallOptions = {}) =>
    server.rpc(
      "SvcService",
      "Emit",
      { event: "order.placed", data: { at: orgId } },
      inOrg(key, orgId, options),
    );
  const events = (key: string, orgId: string, options: CallOptions = {}) =>
    server.api("/api/v1/events", inOrg(key, orgId, options));

  beforeAll(async () => {
    server = await startTestServer({ engine });
    await server.api("/api/v1/platform/bootstrap", { body: root });
    admin = (await server.api("/api/v1/platform/auth/login", { body: rootLogin(), key: null })).body.token;
    operator = (await newKey("role_platform_operator")).key;
    viewer = (await newKey("role_platform_viewer")).key;
    org = (await server.api("/api/v1/platform/tenants", { key: admin, body: { name: "Acme" } })).body.id;
    const { tenancy } = server.running.domain;
    first = (await tenancy.createEnvironment({ orgId: org, name: "production" })).id;
    second = (await tenancy.createEnvironment({ orgId: org, name: "staging" })).id;
  });
  afterAll(() => server.stop());
  const rootLogin = () => ({ email: root.email, password: root.password });

  test("acts in the org's environments, and in no other's", async () => {
    expect((await emit(admin, org)).status).toBe(200);
    expect((await emit(operator, org, { environment: second })).status).toBe(200);
    expect((await emit(operator, org, { environment: "staging" })).status).toBe(200);
    expect((await events(viewer, org, { environment: first })).body.events.length).toBe(1);
    expect((await events(viewer, org, { environment: "staging" })).body.events.length).toBe(2);
    expect(JSON.stringify((await server.api("/api/v1/events")).body)).not.toContain(org);
    expect(await events(viewer, org, { environment: "env_default" })).toMatchObject({
      status: 400,
      body: { error: "unknown environment" },
    });
    // Every org is open to it, the default one too.
    expect((await events(viewer, "org_default")).status).toBe(200);
  });

  test("an org that is none, and the platform's own, are not found", async () => {
    for (const orgId of ["org_none", "org_platform"]) {
      expect((await events(admin, orgId)).status).toBe(404);
      expect((await server.api("/api/v1/roles", inOrg(admin, orgId))).status).toBe(404);
      expect((await emit(admin, orgId)).status).toBe(404);
    }
  });

  test("an org without environments is acted in outside any", async () => {
    const { id } = (await server.api("/api/v1/platform/orgs", { key: admin, body: { name: "Empty" } })).body;
    expect((await server.api("/api/v1/roles", inOrg(viewer, id))).status).toBe(200);
    expect(await events(viewer, id)).toMatchObject({
      status: 403,
      body: { error: "request has no environment scope" },
    });
  });

  test("a viewer reads over every protocol and changes nothing", async () => {
    expect((await server.rpc("SvcService", "ListFunctions", {}, inOrg(viewer, org))).status).toBe(200);
    expect((await server.rpc("SvcService", "ListFunctions", {}, inOrg(operator, org))).status).toBe(200);
    for (const path of ["/api/v1/events", "/api/v1/roles", "/api/v1/users", "/api/v1/apikeys"]) {
      expect((await server.api(path, inOrg(viewer, org))).status).toBe(200);
      // The head of what is read costs the write.
      expect((await server.api(path, inOrg(viewer, org, { method: "HEAD" }))).status).toBe(403);
      expect((await server.api(path, inOrg(operator, org, { method: "HEAD" }))).status).toBe(200);
    }
    expect((await emit(viewer, org)).status).toBe(403);
    const role = { body: { name: "Reader" } };
    expect((await server.api("/api/v1/roles", inOrg(viewer, org, role))).status).toBe(403);
    expect((await server.api("/api/v1/roles", inOrg(operator, org, role))).status).toBe(201);
    const user = { email: "someone@example.com", password: root.password };
    expect((await server.api("/api/v1/users", inOrg(viewer, org, { body: user }))).status).toBe(403);
    const made = await server.api("/api/v1/users", inOrg(operator, org, { body: user }));
    expect(made).toMatchObject({ status: 201, body: { org_id: org } });
    expect((await server.api(`/api/v1/users/${made.body.id}`, inOrg(viewer, org))).status).toBe(200);
  });

  test("the keys it makes are the tenant's, with roles of the tenant", async () => {
    const make = (body: object) =>
      server.api("/api/v1/apikeys", inOrg(operator, org, { body: { name: "made", ...body } }));
    expect(await make({})).toMatchObject({
      status: 400,
      body: { error: "role_ids: must be given: the caller's own are the platform's" },
    });
    expect((await make({ role_ids: ["role_platform_admin"] })).status).toBe(400);
    expect((await make({ role_ids: ["role_admin"], platform: true })).status).toBe(403);
    const { status, body } = await make({ role_ids: ["role_admin"] });
    expect(status).toBe(201);
    expect(body.environment_id).toBe(first);
    expect((await server.api("/api/v1/events", { key: body.key })).body.events).toBeArray();
    expect((await server.api("/api/v1/platform/users", { key: body.key })).status).toBe(403);
    // A tenant's credential impersonates nobody.
    const own = await server.api("/api/v1/users", inOrg(body.key, "org_default"));
    for (const user of own.body) expect(user.org_id).toBe(org);
  });

  test("a tenant's key with a platform role is still none of the platform's", async () => {
    const { key } = await server.running.domain.keys.create({
      orgId: org,
      environmentId: first,
      name: "slipped in",
      roleIds: ["role_platform_admin", "role_admin"],
    });
    for (const path of ["/users", "/tenants", "/audit"])
      expect(await server.api(`/api/v1/platform${path}`, { key })).toMatchObject({
        status: 403,
        body: { error: "platform credential required" },
      });
  });

  test("rotating the installation's secrets takes a platform admin who acts for nobody else", async () => {
    const secret = "0123456789abcdef0123456789abcdef";
    const rotate = (options: CallOptions, kind = "jwt_secret", id?: string) =>
      server.api("/api/v1/cluster/rotate-token", {
        ...options,
        body: { kind, new_value: secret, ...(id !== undefined && { remote_key_id: id }) },
      });
    expect((await rotate({ key: viewer })).status).toBe(403);
    expect((await rotate({ key: operator })).status).toBe(403);
    for (const acting of [inOrg(admin, org), inOrg(operator, "org_default"), inOrg(admin, "org_default"), {}])
      expect((await rotate(acting)).status).toBe(403);
    const { id, key } = await newKey("role_platform_viewer");
    expect((await rotate({ key: admin }, "api_key", id)).status).toBe(200);
    expect((await server.api("/api/v1/platform/users", { key })).status).toBe(401);
    expect((await server.api("/api/v1/platform/users", { key: secret })).status).toBe(200);
    const { body } = await server.api("/api/v1/platform/audit?event_type=platform.key.revoked", {
      key: admin,
    });
    expect(body.events[0].payload).toEqual({ change: "rotated", key_id: id });
  });

  test("under /platform the header changes nothing", async () => {
    const { body, status } = await server.api("/api/v1/platform/tenants", inOrg(viewer, "org_none"));
    expect(status).toBe(200);
    expect(body.length).toBeGreaterThan(1);
  });

  test("without an org it is admitted under /platform, and where its keys and the cluster are", async () => {
    for (const key of [admin, operator, viewer]) {
      for (const path of ["/events", "/roles", "/users", "/policies", "/apikeys"])
        expect((await server.api(`/api/v1${path}`, { key })).status).toBe(403);
      expect((await server.rpc("SvcService", "ListFunctions", {}, { key })).status).toBe(403);
      expect((await server.rpc("SvcService", "Emit", { event: "a" }, { key })).status).toBe(403);
      expect((await server.api("/api/v1/apikeys?platform=true", { key })).status).toBe(200);
      const desktop = await server.api("/api/v1/auth/desktop-session", { key, method: "POST" });
      expect(desktop.status).toBe(403);
      expect((await server.api("/api/v1/cluster/health", { key })).status).toBe(200);
      expect((await server.api("/api/v1/capacity/stats", { key })).status).toBe(200);
      const entries = await server.api("/api/v1/debounce/entries", { key, environment: first });
      expect(entries).toMatchObject({ status: 200, body: { count: 0 } });
    }
    const entry = `/api/v1/debounce/entries/${first}/f/${Buffer.from("k").toString("base64url")}`;
    const cancel = async (key: string) => (await server.api(entry, { key, method: "DELETE" })).status;
    expect([await cancel(viewer), await cancel(operator)]).toEqual([403, 204]);
    // Of its org the tenant's keys, with the query or without.
    expect((await server.api("/api/v1/apikeys?platform=true", inOrg(admin, org))).status).toBe(403);
  });

  test("the platform's deny policies bind it in a tenant's org, by either action's name", async () => {
    const deny = async (actions: string, resources: string) => {
      const body = { name: actions, effect: "deny", actions, resources };
      return (await server.api("/api/v1/platform/policies", { key: admin, body })).body.id;
    };
    const policies = [
      await deny("events:emit", `irn:svc:${org}:*:*:*:*`),
      await deny("platform:impersonate:read", "irn:svc:org_default:*:*:*:*"),
    ];
    const { id: roleId } = (
      await server.api("/api/v1/platform/roles", {
        key: admin,
        body: { name: "Bound", base: "platform_operator", policy_ids: policies },
      })
    ).body;
    const { key } = await newKey(roleId);
    expect((await emit(key, org)).status).toBe(403);
    expect((await emit(key, "org_default")).status).toBe(200);
    expect((await events(key, org)).status).toBe(200);
    expect((await events(key, "org_default")).status).toBe(403);
    expect((await emit(operator, org)).status).toBe(200);
  });

  test("a tenant's deny policies do not bind the platform", async () => {
    const policy = { name: "none", effect: "deny", actions: "*", resources: "*" };
    const { id } = (await server.api("/api/v1/policies", inOrg(operator, org, { body: policy }))).body;
    const body = { policy_id: id };
    const given = await server.api("/api/v1/roles/role_viewer/policies", inOrg(operator, org, { body }));
    expect(given.status).toBe(204);
    expect((await events(viewer, org)).status).toBe(200);
  });

  test("every call is told, refused ones too", async () => {
    const made = await newKey("role_platform_viewer");
    await events(made.key, org);
    await emit(made.key, org);
    await events(made.key, "org_none");
    const query = `event_type=platform.impersonated&platform_key_id=${made.id}&impersonated_org_id=${org}`;
    const { body } = await server.api(`/api/v1/platform/audit?${query}`, { key: admin });
    expect(body.total).toBe(2);
    expect(body.events[0]).toMatchObject({
      event_type: "platform.impersonated",
      scope: "platform",
      platform_key_id: made.id,
      platform_user_id: "",
      impersonated_org_id: org,
      payload: { operation: "events.emit", outcome: "permission_denied", environment_id: first },
    });
    expect(body.events[1].payload.outcome).toBe("ok");
    await events(admin, org);
    const byUser = await server.api(`/api/v1/platform/audit?limit=1`, { key: admin });
    expect(byUser.body.events[0].platform_user_id).toMatch(/^puser_/);
  });

  test("what it does in the org stands in the tenant's own audit, hot actions too", async () => {
    expect((await emit(operator, org)).status).toBe(200);
    await server.api(
      "/api/v1/workers/theirs/register",
      inOrg(operator, org, { body: { function_ids: ["a"] } }),
    );
    await server.api("/api/v1/workers/theirs/jobs", inOrg(operator, org));
    await server.running.tick("audit.flush");
    const { body } = await server.rpc("AuditService", "GetAuthAuditTrail", { limit: 100 }, inOrg(admin, org));
    const told = JSON.stringify(body);
    for (const operation of ["events.emit", "workers.register", "workers.poll"])
      expect(told).toContain(operation);
  });
});

describe("two nodes", () => {
  test("what is taken from a platform credential on one is taken on the other within a second", async () => {
    const one = await startTestServer({ engine: "postgres" });
    const two = await startTestServer({ engine: "postgres", home: one.home });
    try {
      await one.api("/api/v1/platform/bootstrap", { body: root });
      const login = async (email: string) =>
        (
          await two.api("/api/v1/platform/auth/login", {
            body: { email, password: root.password },
            key: null,
          })
        ).body.token as string;
      const key = await login(root.email);
      const api = (path: string, options: CallOptions = {}) => one.api(path, { key, ...options });
      const role = (
        await api("/api/v1/platform/roles", { body: { name: "Clerk", base: "platform_operator" } })
      ).body;
      const user = (
        await api("/api/v1/platform/users", {
          body: { ...root, email: "clerk@example.com", role_ids: [role.id] },
        })
      ).body;
      const token = await login("clerk@example.com");
      const made = (
        await api("/api/v1/apikeys", { body: { name: "x", platform: true, role_ids: [role.id] } })
      ).body;
      const statusAt = async (asker: string, method = "GET") =>
        (await two.api("/api/v1/platform/users", { key: asker, method })).status;
      const refused = (asker: string, status: number, method?: string) =>
        holdsWithin(
          1_000,
          async () => (await statusAt(asker, method)) === status,
          `${status} at the other node`,
        );

      const make = async (name: string) =>
        (await two.api("/api/v1/platform/tenants", { key: made.key, body: { name } })).status;
      expect(await make("before")).toBe(201);
      await api(`/api/v1/platform/roles/${role.id}`, { method: "PATCH", body: { base: "platform_viewer" } });
      await holdsWithin(1_000, async () => (await make("after")) === 403, "the role");
      expect(await statusAt(made.key)).toBe(200);

      await api(`/api/v1/apikeys/${made.id}`, { method: "DELETE" });
      // Answered once no node believes in it any more.
      expect(await statusAt(made.key)).toBe(401);

      expect(await statusAt(token)).toBe(200);
      await api(`/api/v1/platform/users/${user.id}`, { method: "PUT", body: { is_active: false } });
      await refused(token, 401);
      await api(`/api/v1/platform/users/${user.id}`, { method: "PUT", body: { is_active: true } });
      const again = await login("clerk@example.com");
      expect(await statusAt(again)).toBe(200);
      await api(`/api/v1/platform/users/${user.id}`, { method: "PUT", body: { role_ids: [] } });
      await refused(again, 403);
      await api(`/api/v1/platform/users/${user.id}`, { method: "DELETE" });
      await refused(again, 401);
    } finally {
      await two.stop();
      await one.stop();
    }
  }, 120_000);
});
