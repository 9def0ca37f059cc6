import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";

const password = "correct horse battery";

/** What is refused at its own door is refused at every other one that leads to it. */
describe.each(engines)("doors that lead to the same, on %s", (engine) => {
  let server: TestServer;
  /** A session of the platform's admin. */
  let root: string;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    const body = { email: "root@example.com", password, name: "Root" };
    await server.api("/api/v1/platform/bootstrap", { body });
    const login = { email: body.email, password };
    root = (await server.api("/api/v1/platform/auth/login", { body: login, key: null })).body.token;
  });
  afterAll(() => server.stop());

  let made = 0;
  async function roleWith(base: string, actions: string, resources = "*"): Promise<string> {
    const role = await server.api("/api/v1/roles", { body: { name: `role-${++made}`, base } });
    const body = { name: `policy-${made}`, effect: "deny", actions, resources };
    const policy = await server.api("/api/v1/policies", { body });
    expect(policy.status).toBe(201);
    const given = { body: { policy_id: policy.body.id } };
    expect((await server.api(`/api/v1/roles/${role.body.id}/policies`, given)).status).toBe(204);
    return role.body.id;
  }
  async function userWith(...roles: string[]) {
    const email = `user-${++made}@example.com`;
    const { id } = (await server.api("/api/v1/users", { body: { email, password, roles } })).body;
    const login = await server.api("/api/v1/auth/login", { body: { email, password }, key: null });
    return { id: id as string, key: login.body.token as string };
  }
  const environment = async (name: string, more: object = {}) =>
    (await server.api("/api/v1/environments", { body: { name, ...more } })).body.id as string;

  test("a policy about an environment binds what is done to it from another", async () => {
    const role = await roleWith(
      "admin",
      "secrets:manage,apikeys:manage,functions:list",
      "irn:svc:*:*:*:prod*:*",
    );
    const { key } = await userWith(role);
    const project = (await server.api("/api/v1/projects", { body: { name: "shop" } })).body.id;
    const production = await environment("production", { project_id: project });
    const staging = await environment("staging", { project_id: project });
    const path = (id: string) => `/api/v1/environments/${id}`;
    const rpc = (method: string, id: string) => server.rpc("EnvironmentService", method, { id }, { key });
    const ways = (id: string): [string, () => Promise<{ status: number }>][] => [
      ["get", () => server.api(path(id), { key })],
      ["get rpc", () => rpc("GetEnvironment", id)],
      ["rename", () => server.api(path(id), { key, method: "PUT", body: { name: "harmless" } })],
      ["rotate its key", () => rpc("RotateAPIKey", id)],
      ["key in it", () => server.api("/api/v1/apikeys", { key, body: { name: "k", env_id: id } })],
      ["delete rpc", () => rpc("DeleteEnvironment", id)],
      ["delete", () => server.api(path(id), { key, method: "DELETE" })],
    ];
    for (const [name, ask] of ways(production)) expect(`${name} ${(await ask()).status}`).toBe(`${name} 403`);
    const withAll = () => server.api(`/api/v1/projects/${project}`, { key, method: "DELETE" });
    expect((await withAll()).status).toBe(403);
    expect((await server.api(path(production))).body.name).toBe("production");
    for (const [name, ask] of ways(staging).slice(0, -1))
      expect(`${name} ${(await ask()).status}`).toMatch(/ 20[01]$/);
    expect((await server.api(path(production), { method: "DELETE" })).status).toBe(200);
    expect((await withAll()).status).toBe(200);
  });

  test("about another org's environment no policy tells anything", async () => {
    const { key } = await userWith(await roleWith("admin", "*", "irn:svc:*:*:*:prod*:*"));
    const platform = (path: string, body: object, headers = {}) =>
      server.api(`/api/v1${path}`, { key: root, body, headers });
    const tenant = (await platform("/platform/tenants", { name: "B" })).body.id;
    const theirs = (await platform("/environments", { name: "production" }, { "x-svc-org": tenant })).body.id;
    const asked = async (id: string) => {
      const { status, body } = await server.api(`/api/v1/environments/${id}`, { key, method: "DELETE" });
      return [status, JSON.stringify(body).replaceAll(id, "")];
    };
    expect(await asked(theirs)).toEqual(await asked("env_00000000000000000000000000"));
  });

  test("a key gets another text by no door that is closed to its rotation", async () => {
    const denied = await roleWith("admin", "apikeys:manage");
    const { key } = await userWith(denied);
    const victim = (await server.api("/api/v1/apikeys", { body: { name: "v", role_ids: ["role_admin"] } }))
      .body;
    const chosen = "a-text-that-the-attacker-has-chosen-0123456789";
    const rotate = (as: CallOptions) =>
      server.api("/api/v1/cluster/rotate-token", {
        ...as,
        body: { kind: "api_key", remote_key_id: victim.id, new_value: chosen },
      });
    expect((await rotate({ key })).status).toBe(403);
    expect((await server.api("/api/v1/apikeys", { key: victim.key })).status).toBe(200);
    expect((await rotate({})).status).toBe(200);
  });

  test("who may not read users reads none by their id, and no trail of calls without orgs:read", async () => {
    const { key, id } = await userWith(await roleWith("admin", "users:read,orgs:read"));
    const other = await userWith();
    expect((await server.api("/api/v1/users", { key })).status).toBe(403);
    expect((await server.api(`/api/v1/users/${other.id}`, { key })).status).toBe(403);
    expect((await server.api(`/api/v1/users/${id}`, { key })).status).toBe(200);
    expect((await server.api(`/api/v1/users/${other.id}`)).status).toBe(200);
    const trail = "/api/v1/audit?action=users:manage";
    expect((await server.api(trail, { key })).status).toBe(403);
    expect((await server.api(trail)).status).toBe(200);
  });

  test("a search counts nothing that it keeps back", async () => {
    const role = await roleWith("developer", "functions:list", "irn:svc:*:*:*:*:hidden-*");
    const { key } = await userWith(role);
    const register = (id: string) => server.rpc("SvcService", "RegisterFunction", { id, triggers: [] });
    for (const id of ["hidden-one", "shown-one", "shown-two"]) await register(id);
    const count = async (name: string, limit = 10) =>
      (await server.rpc("SvcService", "ListFunctions", { name, limit }, { key })).body.totalCount ?? 0;
    expect([await count("hid"), await count("shown"), await count("", 1), await count("none")]).toEqual([
      0, 2, 1, 0,
    ]);
    expect((await server.rpc("SvcService", "ListFunctions", { name: "hid" })).body.totalCount).toBe(1);
  });

  test("who may not read an event makes no function that it starts", async () => {
    const role = await roleWith("developer", "events:subscribe", "irn:svc:*:*:event:*:payroll.*");
    const { key } = await userWith(role);
    const register = async (id: string, as: CallOptions, ...events: string[]) =>
      (
        await server.rpc(
          "SvcService",
          "RegisterFunction",
          { id, triggers: events.map((event) => ({ event })) },
          as,
        )
      ).status;
    for (const event of ["payroll.paid", "payroll.>", "*.paid"])
      expect(`${event} ${await register("spy", { key }, "order.placed", event)}`).toBe(`${event} 403`);
    expect(await register("clerk", { key }, "order.placed", "order.paid")).toBe(200);
    expect(await register("clerk", {}, "payroll.paid")).toBe(200);
    expect(await register("clerk", { key }, "order.placed")).toBe(200);
    const back = { functionId: "clerk", version: 2 };
    expect((await server.rpc("SvcService", "RollbackFunction", back, { key })).status).toBe(403);
    expect((await server.rpc("SvcService", "RollbackFunction", back)).status).toBe(200);
  });

  test("logging out ends the session that was asked with, and no other", async () => {
    const own = await userWith("admin");
    const victim = await userWith("admin");
    const cookie = `svc_dashboard_token=${victim.key}`;
    const answer = await fetch(`${server.url}/api/v1/auth/logout?token=${own.key}`, {
      method: "POST",
      headers: { cookie, origin: "http://evil.example", "sec-fetch-site": "same-site" },
    });
    expect(answer.status).toBe(204);
    expect((await server.api("/api/v1/users", { key: own.key })).status).toBe(401);
    expect((await server.api("/api/v1/users", { key: victim.key })).status).toBe(200);
  });

  test("a session does not guess its user's password", async () => {
    const { id, key } = await userWith();
    const change = (current_password: string) =>
      server.api(`/api/v1/users/${id}/password`, {
        key,
        method: "PATCH",
        body: { current_password, new_password: "another horse battery" },
      });
    const seen: number[] = [];
    for (let guess = 0; guess < 12; guess++) seen.push((await change(`guess number ${guess}`)).status);
    expect(seen).toEqual([...Array(10).fill(403), 429, 429]);
    expect((await change(password)).status).toBe(429);
  });

  test("who impersonates one org and names an environment of another acts in that other's", async () => {
    const platform = (path: string, body: object, headers = {}) =>
      server.api(`/api/v1${path}`, { key: root, body, headers });
    const org = (await platform("/platform/tenants", { name: "A" })).body.id;
    await platform("/environments", { name: "home" }, { "x-svc-org": org });
    const policy = await platform("/platform/policies", {
      name: "not the first",
      effect: "deny",
      actions: "platform:impersonate*",
      resources: "irn:svc:org_default:*:*:*:*",
    });
    const bound = { name: "bound", base: "platform_operator", policy_ids: [policy.body.id] };
    const role = (await platform("/platform/roles", bound)).body.id;
    const keyWith = async (id: string) =>
      (await platform("/apikeys", { name: id, platform: true, role_ids: [id] })).body;
    const target = await environment("target");
    const acting = (key: string): CallOptions => ({ key, headers: { "x-svc-org": org } });
    const ways = (key: string) => [
      () => server.api(`/api/v1/environments/${target}`, acting(key)),
      () =>
        server.api(`/api/v1/environments/${target}`, { ...acting(key), method: "PUT", body: { name: "t" } }),
      () => server.rpc("EnvironmentService", "RotateAPIKey", { id: target }, acting(key)),
      () => server.api(`/api/v1/debounce/entries/${target}/fn/a2V5`, { ...acting(key), method: "DELETE" }),
      () => server.rpc("EnvironmentService", "DeleteEnvironment", { id: target }, acting(key)),
    ];
    for (const ask of ways((await keyWith(role)).key)) expect((await ask()).status).toBe(403);
    const operator = await keyWith("role_platform_operator");
    for (const ask of ways(operator.key)) expect((await ask()).status).toBeLessThan(300);
    // The org learns of it, reads too.
    await server.running.tick("audit.flush");
    const { body } = await server.rpc("AuditService", "GetAuthAuditTrail", { apiKeyId: operator.id });
    expect(body.events).toHaveLength(5);
  });
});
