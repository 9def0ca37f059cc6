import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const password = "correct horse battery";

describe.each(engines)("roles that are carried on %s", (engine) => {
  let server: TestServer;
  let key = "";
  let count = 0;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    const login = { email: "root@example.com", password };
    await made("/platform/bootstrap", { ...login, name: "Root" });
    key = (await server.api("/api/v1/platform/auth/login", { body: login, key: null })).body.token;
  });
  afterAll(() => server.stop());

  const made = async (path: string, body: object) => {
    const answer = await server.api(`/api/v1${path}`, { body });
    expect(answer.status, JSON.stringify(answer.body)).toBe(201);
    return answer.body;
  };
  const newRole = (name: string, base?: string) => made("/roles", { name, ...(base && { base }) });
  const newUser = async (roles: string[]) => {
    const email = `r${count++}@example.com`;
    const user = await made("/users", { email, password, roles });
    const { body } = await server.api("/api/v1/auth/login", { body: { email, password }, key: null });
    return { ...user, token: body.token as string };
  };
  const get = async (key: string, path = "/users") => (await server.api(`/api/v1${path}`, { key })).status;
  const remove = (id: string, query = "") => server.api(`/api/v1/roles/${id}${query}`, { method: "DELETE" });
  const rolesOf = async (id: string) => (await server.api(`/api/v1/users/${id}`)).body.roles;
  const patch = (id: string, body: object) => server.api(`/api/v1/users/${id}`, { method: "PATCH", body });

  test("users take names and ids, and show names", async () => {
    const role = await newRole("both", "viewer");
    const user = await newUser(["role_developer", role.id, "both"]);
    expect(user.roles).toEqual(["developer", "both"]);
    expect((await patch(user.id, { roles: ["admin", "role_none"] })).body.error).toBe(
      "roles: role role_none not found",
    );
    expect((await patch(user.id, { roles: ["prole_1"] })).status).toBe(400);
    expect((await patch(user.id, { roles: ["platform_admin"] })).status).toBe(400);
    expect((await patch(user.id, { name: "N" })).body).toMatchObject({
      name: "N",
      roles: ["developer", "both"],
    });
  });

  test("a role that is carried is not deleted; its name made again is another role", async () => {
    const ops = await newRole("ops", "viewer");
    const user = await newUser(["ops"]);
    const { body: key } = await server.api("/api/v1/apikeys", { body: { name: "k", role_ids: [ops.id] } });
    await newUser(["ops", "viewer"]);
    const refused = await remove(ops.id);
    expect(refused).toMatchObject({ status: 409, body: { code: "failed_precondition" } });
    expect(refused.body.error).toBe(
      "the role is carried by 2 users and 1 key: take it off them, or delete it with force=true",
    );
    expect(await get(user.token, "/events")).toBe(200);
    expect((await remove(ops.id, "?force=true")).status).toBe(204);
    expect(await rolesOf(user.id)).toEqual([]);
    expect((await server.api(`/api/v1/apikeys/${key.id}`)).body.role_ids).toEqual([]);
    await until(async () => (await get(user.token, "/events")) === 403, { about: "the role's end" });
    const again = await newRole("ops", "admin");
    expect(again.id).not.toBe(ops.id);
    for (const token of [user.token, key.key]) {
      expect(await get(token)).toBe(403);
      expect(await get(token, "/events")).toBe(403);
    }
    expect((await remove(again.id)).status).toBe(204);
  });

  test("another name of a role changes nothing for who carries it", async () => {
    const role = await newRole("before", "developer");
    const user = await newUser(["before"]);
    await server.api(`/api/v1/roles/${role.id}`, { method: "PATCH", body: { name: "after" } });
    expect(await rolesOf(user.id)).toEqual(["after"]);
    await newRole("before", "admin");
    expect(await get(user.token, "/events")).toBe(200);
    expect(await get(user.token)).toBe(403);
  });

  test("a key made without roles has its maker's, by id", async () => {
    const role = await newRole("makers", "admin");
    const user = await newUser(["makers"]);
    const answer = await server.api("/api/v1/apikeys", { body: { name: "own" }, key: user.token });
    expect(answer.body.role_ids).toEqual([role.id]);
    expect(await get(answer.body.key)).toBe(200);
  });

  test("a role of the platform is not deleted while users or keys of the platform carry it", async () => {
    const as = (path: string, options: object = {}) => server.api(`/api/v1${path}`, { key, ...options });
    const role = (await as("/platform/roles", { body: { name: "auditor", base: "platform_viewer" } })).body;
    const person = { email: "a@example.com", password, name: "A", role_ids: [role.id] };
    const user = (await as("/platform/users", { body: person })).body;
    await as("/apikeys", { body: { name: "k", platform: true, role_ids: [role.id] } });
    const refused = await as(`/platform/roles/${role.id}`, { method: "DELETE" });
    expect(refused.body.error).toStartWith("the role is carried by 1 user and 1 key");
    expect((await as(`/platform/roles/${role.id}?force=true`, { method: "DELETE" })).status).toBe(204);
    expect((await as(`/platform/users/${user.id}`)).body.role_ids).toEqual([]);
    const { body: events } = await as("/platform/audit?event_type=platform.role.changed&limit=1");
    expect(events.events[0].payload).toMatchObject({ change: "deleted", role_id: role.id, taken_from: 2 });
  });

  test("of two changes of a user at once none is lost", async () => {
    const user = await newUser(["admin"]);
    for (let round = 0; round < 10; round++) {
      await patch(user.id, { roles: ["admin"] });
      const both = await Promise.all([
        patch(user.id, { roles: [] }),
        patch(user.id, { name: `x${round}` }),
        patch(user.id, { email: `moved${engine}${round}@example.com` }),
      ]);
      expect(both.map(({ status }) => status)).toEqual([200, 200, 200]);
      const { body } = await server.api(`/api/v1/users/${user.id}`);
      expect([body.roles, body.name, body.email]).toEqual([
        [],
        `x${round}`,
        `moved${engine}${round}@example.com`,
      ]);
    }
  });

  test("who comes beside the deletion of a role, an org or an environment does not stay", async () => {
    const { store } = server.running.domain;
    const left = async () =>
      await store.all(sql`SELECT id FROM users WHERE org_id NOT IN (SELECT id FROM orgs) UNION ALL
        SELECT id FROM api_keys WHERE environment_id NOT IN (SELECT id FROM environments) UNION ALL
        SELECT id FROM sessions WHERE org_id NOT IN (SELECT id FROM orgs)`);
    for (let round = 0; round < 6; round++) {
      const role = await newRole(`brief-${round}`, "admin");
      const email = `late${engine}${round}@example.com`;
      const [user, gone] = await Promise.all([
        server.api("/api/v1/users", { body: { email, password, roles: [role.id] } }),
        remove(role.id),
      ]);
      // One of the two was first.
      expect([user.status, gone.status].sort()).toEqual(user.status === 201 ? [201, 409] : [204, 400].sort());
      const { id: env_id } = await made("/environments", { name: `brief-${round}` });
      await Promise.all([
        ...Array.from({ length: 4 }, () => server.api("/api/v1/apikeys", { body: { name: "k", env_id } })),
        server.api(`/api/v1/environments/${env_id}`, { method: "DELETE" }),
      ]);
      const tenant = { org_name: "T", env_name: "e" };
      const provisioned = await server.api("/api/v1/tenants/provision", {
        key,
        headers: { "x-svc-org": "org_default" },
        body: tenant,
      });
      expect(provisioned.status, JSON.stringify(provisioned.body)).toBe(201);
      const { api_key, org } = provisioned.body;
      await Promise.all([
        ...Array.from({ length: 4 }, (_, at) =>
          server.api("/api/v1/users", {
            key: api_key.key,
            body: { email: `t${at}-${email}`, password, roles: ["admin"] },
          }),
        ),
        server.api(`/api/v1/platform/tenants/${org.id}`, { method: "DELETE", key }),
      ]);
      expect(await left()).toEqual([]);
    }
  }, 120_000);
});

describe.each(engines)("users of the version before on %s", (engine) => {
  test("a node of it may change roles meanwhile, and is obeyed", async () => {
    const server = await startTestServer({ engine });
    try {
      const { store } = server.running.domain;
      const login = { email: "mixed@example.com", password };
      const { body: role } = await server.api("/api/v1/roles", { body: { name: "mixed", base: "admin" } });
      const { body: user } = await server.api("/api/v1/users", { body: { ...login, roles: ["viewer"] } });
      const { token } = (await server.api("/api/v1/auth/login", { body: login, key: null })).body;
      const status = async () => (await server.api("/api/v1/users", { key: token })).status;
      expect(await status()).toBe(403);
      const asBefore = (names: string[]) =>
        store.write((session) =>
          session.run(sql`UPDATE users SET roles = ${JSON.stringify(names)} WHERE id = ${user.id}`),
        );
      await asBefore(["mixed", "gone"]);
      await until(async () => (await status()) === 200, { about: "the new role" });
      expect((await server.api(`/api/v1/users/${user.id}`)).body.roles).toEqual(["mixed"]);
      const refused = await server.api(`/api/v1/roles/${role.id}`, { method: "DELETE" });
      expect(refused.body.error).toStartWith("the role is carried by 1 user");
      await asBefore([]);
      await until(async () => (await status()) === 403, { about: "the role's end" });
    } finally {
      await server.stop();
    }
  });
});
