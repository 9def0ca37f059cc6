import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { holdsWithin } from "../support/within.ts";

const password = "correct horse battery";
const root = { email: "root@example.com", password, name: "Root" };

describe.each(engines)("the platform on %s", (engine) => {
  let server: TestServer;
  let admin: string;
  let adminId: string;

  const path = "/api/v1/platform";
  const login = (email: string, text = password) =>
    server.api(`${path}/auth/login`, { body: { email, password: text }, key: null });
  const as = (key: string | null, rest: string, options: CallOptions = {}) =>
    server.api(`${path}${rest}`, { ...options, key });
  const asAdmin = (rest: string, options: CallOptions = {}) => as(admin, rest, options);
  const newUser = async (email: string, role_ids?: string[]) =>
    (await asAdmin("/users", { body: { email, password, name: "One", ...(role_ids && { role_ids }) } })).body;
  const tokenOf = async (email: string) => (await login(email)).body.token as string;
  const newKey = async (role: string) =>
    (
      await server.api("/api/v1/apikeys", {
        body: { name: role, platform: true, role_ids: [role] },
        key: admin,
      })
    ).body;
  const eventsOf = async (query: string) => (await asAdmin(`/audit?${query}`)).body.events;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { key: viewer } = (
      await server.api("/api/v1/apikeys", { body: { name: "viewer", role_ids: ["role_viewer"] } })
    ).body;
    expect((await as(viewer, "/bootstrap", { body: root })).status).toBe(403);
    expect((await as(null, "/bootstrap", { body: root })).status).toBe(401);
    for (const field of ["email", "password", "name"] as const) {
      const { [field]: _, ...body } = root;
      const answer = await server.api(`${path}/bootstrap`, { body });
      expect(answer).toMatchObject({ status: 400 });
      expect(answer.body.error).toContain(field);
    }
    const both = await Promise.all(
      ["root@example.com", "second@example.com"].map((email) =>
        server.api(`${path}/bootstrap`, { body: { ...root, email } }),
      ),
    );
    expect(both.map(({ status }) => status).sort()).toEqual([201, 409]);
    const made = both.find(({ status }) => status === 201)!.body;
    expect(Object.keys(made).sort()).toEqual(["email", "id", "name"]);
    expect(made.id).toMatch(/^puser_/);
    adminId = made.id;
    const answer = await login(made.email);
    expect(answer.status).toBe(200);
    expect(answer.body.user).toEqual({ ...made, roles: ["platform_admin"] });
    admin = answer.body.token;
  });
  afterAll(() => server.stop());

  test("bootstrap is over once there is a user, for whoever asks", async () => {
    expect((await server.api(`${path}/bootstrap`, { body: root })).status).toBe(409);
    expect((await asAdmin("/bootstrap", { body: root })).status).toBe(403);
  });

  describe("login", () => {
    test("answers a token and a cookie, and both let in", async () => {
      const answer = await login((await asAdmin(`/users/${adminId}`)).body.email.toUpperCase());
      expect(answer.headers.get("set-cookie")).toMatch(
        /^svc_dashboard_token=eyJ[^;]+; Path=\/; HttpOnly; SameSite=Lax; Max-Age=86400$/,
      );
      const cookie = answer.headers.get("set-cookie")!.split(";")[0]!;
      expect((await as(null, "/users", { headers: { cookie } })).status).toBe(200);
      // The key in the header wins over the cookie.
      expect((await as(server.adminKey, "/users", { headers: { cookie } })).status).toBe(403);
      const foreign = { cookie, "sec-fetch-site": "cross-site" };
      expect((await as(null, "/tenants", { body: { name: "x" }, headers: foreign })).status).toBe(403);
    });

    test("refuses what is missing, wrong or inactive", async () => {
      expect((await as(null, "/auth/login", { body: { email: "a@b" } })).status).toBe(400);
      expect((await as(null, "/auth/login", { body: { email: "", password: "x" } })).status).toBe(400);
      const known = await login((await asAdmin(`/users/${adminId}`)).body.email, "wrong password");
      const unknown = await login("nobody@example.com");
      expect(known.status).toBe(401);
      expect(unknown).toMatchObject({ status: 401, body: known.body });
      const { id } = await newUser("asleep@example.com");
      await asAdmin(`/users/${id}`, { method: "PATCH", body: { is_active: false } });
      expect((await login("asleep@example.com")).status).toBe(403);
      expect((await login("asleep@example.com", "wrong password")).status).toBe(401);
      // A tenant's account is none of the platform's.
      await server.api("/api/v1/users", { body: { email: "tenant@example.com", password } });
      expect((await login("tenant@example.com")).status).toBe(401);
    });

    test("guesses are throttled apart from those of tenants", async () => {
      const guesses = await Promise.all(Array.from({ length: 12 }, () => login("guess@example.com")));
      expect(guesses.filter(({ status }) => status === 429).length).toBe(2);
      const tenant = await server.api("/api/v1/auth/login", {
        body: { email: "guess@example.com", password },
        key: null,
      });
      expect(tenant.status).toBe(401);
    });
  });

  describe("users", () => {
    test("are made, listed, changed by PUT and PATCH, and deleted", async () => {
      const created = await asAdmin("/users", {
        body: { email: "One@Example.com", password, name: "One", role_ids: ["role_platform_viewer"] },
      });
      expect(created.status).toBe(201);
      const { id } = created.body;
      expect(created.body).toMatchObject({ email: "one@example.com", name: "One", is_active: true });
      expect(JSON.stringify(created.body)).not.toContain("hash");
      expect((await asAdmin("/users")).body.map((user: { id: string }) => user.id)).toContain(id);
      const put = await asAdmin(`/users/${id}`, { method: "PUT", body: { name: "Uno" } });
      expect(put).toMatchObject({ status: 200, body: { id, name: "Uno", email: "one@example.com" } });
      const patch = await asAdmin(`/users/${id}`, { method: "PATCH", body: { email: "uno@example.com" } });
      expect(patch).toMatchObject({ status: 200, body: { email: "uno@example.com" } });
      expect((await asAdmin(`/users/${id}`)).body).toEqual(patch.body);
      const taken = await newUser("uno@example.com");
      expect(taken.code).toBe("already_exists");
      await newUser("other@example.com");
      const both = await asAdmin(`/users/${id}`, { method: "PUT", body: { email: "other@example.com" } });
      expect(both.status).toBe(409);
      expect((await asAdmin(`/users/${id}`, { method: "DELETE" })).status).toBe(204);
      for (const method of ["GET", "PUT", "DELETE"])
        expect(
          (await asAdmin(`/users/${id}`, { method, ...(method === "PUT" && { body: {} }) })).status,
        ).toBe(404);
      for (const type of ["created", "updated", "deleted"]) {
        const found = await eventsOf(`event_type=platform.user.${type}`);
        const event = found.find(({ payload }: { payload: { user_id: string } }) => payload.user_id === id);
        expect(event).toMatchObject({
          platform_user_id: adminId,
          platform_key_id: "",
          impersonated_org_id: "",
        });
      }
      expect(JSON.stringify((await asAdmin("/audit")).body)).not.toContain(password);
    });

    test("bad ones are refused by field", async () => {
      for (const [change, message] of [
        [{ email: "nobody" }, "email: must be an email address"],
        [{ password: "short" }, "password: at least 8 characters"],
        [{ role_ids: ["role_admin"] }, "role_ids: role role_admin not found"],
        [{ name: "  " }, "name: must not be empty"],
      ] as const) {
        const body = { email: "bad@example.com", password, name: "Bad", ...change };
        const answer = await asAdmin("/users", { body });
        expect(answer).toMatchObject({ status: 400, body: { error: message } });
      }
    });

    test("another password or inactivity ends their sessions within a second", async () => {
      const { id } = await newUser("ends@example.com", ["role_platform_viewer"]);
      for (const change of [{ password: "another password" }, { is_active: false }]) {
        await asAdmin(`/users/${id}`, { method: "PATCH", body: { password, is_active: true } });
        const token = await tokenOf("ends@example.com");
        expect((await as(token, "/users")).status).toBe(200);
        await asAdmin(`/users/${id}`, { method: "PATCH", body: change });
        const isOver = async () => (await as(token, "/users")).status === 401;
        await holdsWithin(1_000, isOver, "the end of the session");
      }
    });

    test("the last active platform_admin stays", async () => {
      for (const body of [{ is_active: false }, { role_ids: ["role_platform_viewer"] }])
        expect((await asAdmin(`/users/${adminId}`, { method: "PATCH", body })).status).toBe(409);
      expect((await asAdmin(`/users/${adminId}`, { method: "DELETE" })).status).toBe(409);
      const { id } = await newUser("deputy@example.com", ["role_platform_admin"]);
      // Neither of them asks: whoever goes first would end the other's session.
      const { key } = await newKey("role_platform_admin");
      const both = await Promise.all([
        as(key, `/users/${adminId}`, { method: "PATCH", body: { is_active: false } }),
        as(key, `/users/${id}`, { method: "DELETE" }),
      ]);
      expect([
        [200, 409],
        [204, 409],
      ]).toContainEqual(both.map(({ status }) => status).sort());
      // Whoever is left restores the other.
      if (both[0].status === 200) {
        const deputy = await tokenOf("deputy@example.com");
        await as(deputy, `/users/${adminId}`, { method: "PATCH", body: { is_active: true } });
        admin = await tokenOf((await as(deputy, `/users/${adminId}`)).body.email);
        await asAdmin(`/users/${id}`, { method: "DELETE" });
      }
      expect((await asAdmin("/users")).status).toBe(200);
    });
  });

  describe("roles and policies", () => {
    test("custom roles are prole_, built-in ones stay as they are", async () => {
      const { body: list } = await asAdmin("/roles");
      expect(list.map(({ id }: { id: string }) => id)).toEqual(
        expect.arrayContaining(["role_platform_admin", "role_platform_operator", "role_platform_viewer"]),
      );
      const { status, body: role } = await asAdmin("/roles", { body: { name: "Auditor", policy_ids: [] } });
      expect(status).toBe(201);
      expect(role.id).toMatch(/^prole_/);
      expect(role).toMatchObject({ name: "Auditor", is_default: false });
      expect((await asAdmin("/roles", { body: { name: "Auditor" } })).status).toBe(409);
      for (const method of ["PUT", "PATCH"]) {
        const renamed = await asAdmin(`/roles/${role.id}`, { method, body: { name: `Auditor ${method}` } });
        expect(renamed).toMatchObject({ status: 200, body: { name: `Auditor ${method}` } });
      }
      expect((await asAdmin(`/roles/${role.id}`)).status).toBe(200);
      const builtIn = "/roles/role_platform_viewer";
      expect(await asAdmin(builtIn, { method: "DELETE" })).toMatchObject({
        status: 400,
        body: { error: "cannot delete built-in role" },
      });
      expect(await asAdmin(builtIn, { method: "PUT", body: { name: "x" } })).toMatchObject({
        status: 400,
        body: { error: "cannot update built-in role" },
      });
      expect((await asAdmin(`/roles/${role.id}`, { method: "DELETE" })).status).toBe(204);
      expect((await asAdmin(`/roles/${role.id}`)).status).toBe(404);
      const changes = (await eventsOf("event_type=platform.role.changed"))
        .filter(({ payload }: { payload: { role_id: string } }) => payload.role_id === role.id)
        .map(({ payload }: { payload: { change: string } }) => payload.change);
      expect(changes).toEqual(["deleted", "updated", "updated", "created"]);
    });

    test("a custom role grants what its base grants, less what its policies deny", async () => {
      const policy = await asAdmin("/policies", {
        body: { name: "no tenants", effect: "deny", actions: "platform:tenants:*", resources: "*" },
      });
      expect(policy.status).toBe(201);
      const { id } = policy.body;
      const changed = await asAdmin(`/policies/${id}`, { method: "PUT", body: { name: "none of tenants" } });
      expect(changed.body).toMatchObject({ name: "none of tenants", version: 2 });
      expect((await asAdmin("/policies")).body.length).toBe(1);
      const role = await asAdmin("/roles", {
        body: { name: "Clerk", base: "platform_operator", policy_ids: [id] },
      });
      const { key } = await newKey(role.body.id);
      expect((await as(key, "/users")).status).toBe(200);
      expect((await as(key, "/users", { body: { ...root, email: "x@example.com" } })).status).toBe(403);
      expect((await as(key, "/tenants")).status).toBe(403);
      expect((await as(key, "/tenants", { body: { name: "x" } })).status).toBe(403);
      await asAdmin(`/roles/${role.body.id}/policies/${id}`, { method: "DELETE" });
      expect((await as(key, "/tenants")).status).toBe(200);
      expect((await asAdmin(`/policies/${id}`, { method: "DELETE" })).status).toBe(204);
      expect((await asAdmin(`/policies/${id}`)).status).toBe(404);
      const allow = { name: "yes", effect: "allow", actions: "*", resources: "*" };
      expect(await asAdmin("/policies", { body: allow })).toMatchObject({
        status: 400,
        body: { code: "policy_effect_allow_deprecated" },
      });
    });

    test("operators and viewers hold what the spec says", async () => {
      const { key: operator } = await newKey("role_platform_operator");
      const { key: viewer } = await newKey("role_platform_viewer");
      for (const rest of ["/users", "/roles", "/policies", "/tenants", "/audit"])
        for (const key of [operator, viewer]) expect((await as(key, rest)).status).toBe(200);
      for (const key of [operator, viewer]) {
        expect((await as(key, "/users", { body: { ...root, email: "y@example.com" } })).status).toBe(403);
        expect((await as(key, "/roles", { body: { name: "y" } })).status).toBe(403);
        expect((await server.api("/api/v1/apikeys?platform=true", { key })).status).toBe(200);
        const made = await server.api("/api/v1/apikeys", { key, body: { name: "y", platform: true } });
        expect(made.status).toBe(403);
      }
      expect((await as(viewer, "/tenants", { body: { name: "y" } })).status).toBe(403);
      expect((await as(operator, "/tenants", { body: { name: "y" } })).status).toBe(201);
      // The head of what is read costs the write.
      expect((await as(viewer, "/users", { method: "HEAD" })).status).toBe(403);
      expect((await as(viewer, "/audit", { method: "HEAD" })).status).toBe(200);
      expect((await asAdmin("/users", { method: "HEAD" })).status).toBe(200);
    });

    test("tenants' credentials have nothing to do with the platform", async () => {
      for (const rest of ["/users", "/roles", "/policies", "/tenants", "/audit"])
        expect((await as(server.adminKey, rest)).status).toBe(403);
      const made = await as(server.adminKey, "/tenants", { body: { name: "x" } });
      expect(made).toMatchObject({ status: 403, body: { error: "platform credential required" } });
      expect((await as(null, "/users")).status).toBe(401);
    });
  });

  describe("tenants", () => {
    test("are made, listed and deleted; the platform's own org is none", async () => {
      const made = await asAdmin("/tenants", { body: { name: " Acme " } });
      expect(made).toMatchObject({ status: 201, body: { name: "Acme" } });
      const { id } = made.body;
      expect(id).toMatch(/^org_/);
      expect((await asAdmin(`/tenants/${id}`)).body).toEqual(made.body);
      const { body: list } = await asAdmin("/tenants");
      expect(list.map((org: { id: string }) => org.id)).toContain(id);
      expect(JSON.stringify(list)).not.toContain("org_platform");
      expect((await asAdmin("/tenants/org_platform")).status).toBe(404);
      expect((await asAdmin("/tenants/org_platform", { method: "DELETE" })).status).toBe(400);
      expect((await asAdmin("/tenants/org_default", { method: "DELETE" })).status).toBe(400);
      expect((await asAdmin("/tenants", { body: { name: " " } })).status).toBe(400);
      expect((await asAdmin(`/tenants/${id}`, { method: "DELETE" })).status).toBe(204);
      expect((await asAdmin(`/tenants/${id}`, { method: "DELETE" })).status).toBe(404);
      expect((await asAdmin(`/tenants/${id}`)).status).toBe(404);
      expect((await asAdmin("/orgs", { body: { name: "Alias" } })).status).toBe(201);
    });
  });

  describe("keys", () => {
    test("are made, listed, rotated and deleted by a platform admin, and audited", async () => {
      const made = await newKey("role_platform_viewer");
      expect(made.key).toMatch(/^ifplatform_[0-9a-f]{32}$/);
      expect(made.environment_id).toBeUndefined();
      const listed = async (query: string, key: string) =>
        (await server.api(`/api/v1/apikeys${query}`, { key })).body;
      const { body: list } = await server.api("/api/v1/apikeys?platform=true", { key: admin });
      expect(list.map(({ id }: { id: string }) => id)).toContain(made.id);
      expect(JSON.stringify(list)).not.toContain(made.key);
      expect(JSON.stringify(await listed("", server.adminKey))).not.toContain(made.id);
      expect((await server.api(`/api/v1/apikeys/${made.id}`)).status).toBe(404);
      expect((await as(made.key, "/users")).status).toBe(200);
      const rotated = await server.api(`/api/v1/apikeys/${made.id}/rotate`, { method: "POST", key: admin });
      expect(rotated.body.id).toBe(made.id);
      expect((await as(made.key, "/users")).status).toBe(401);
      expect((await as(rotated.body.key, "/users")).status).toBe(200);
      const roles = await server.api(`/api/v1/apikeys/${made.id}/roles`, {
        method: "PUT",
        body: { role_ids: ["role_platform_operator"] },
        key: admin,
      });
      expect(roles.body.role_ids).toEqual(["role_platform_operator"]);
      const gone = await server.api(`/api/v1/apikeys/${made.id}`, { method: "DELETE", key: admin });
      expect(gone.status).toBe(204);
      expect((await as(rotated.body.key, "/users")).status).toBe(401);
      const types = (await eventsOf("limit=4")).map(
        ({ event_type, payload }: { event_type: string; payload: { change: string } }) =>
          `${event_type} ${payload.change}`,
      );
      expect(types).toEqual([
        "platform.key.revoked deleted",
        "platform.role.changed roles_replaced",
        "platform.key.revoked rotated",
        "platform.key.created created",
      ]);
      const env = await server.api("/api/v1/apikeys", {
        body: { name: "x", platform: true, env_id: "env_default" },
        key: admin,
      });
      expect(env.status).toBe(400);
    });
  });

  describe("audit", () => {
    test("is filtered, bounded and paged", async () => {
      for (let at = 0; at < 5; at++) await newUser(`page-${at}@example.com`);
      const type = "event_type=platform.user.created";
      const first = (await asAdmin(`/audit?${type}&limit=2`)).body;
      expect(first.events.length).toBe(2);
      expect(first.total).toBeGreaterThan(4);
      const second = (await asAdmin(`/audit?${type}&limit=2&cursor=${first.next_cursor}`)).body;
      const ids = [...first.events, ...second.events].map(({ id }: { id: string }) => id);
      expect(new Set(ids).size).toBe(4);
      const [newest] = first.events;
      expect(newest).toMatchObject({ event_type: "platform.user.created", scope: "platform" });
      const at = newest.created_at;
      const exactly = (await asAdmin(`/audit?${type}&from=${at}&to=${at}`)).body;
      expect(exactly.events.map(({ id }: { id: string }) => id)).toContain(newest.id);
      // The five may have been made before and after a midnight.
      const days = new Set(
        [...first.events, ...second.events].map((one: { created_at: string }) => one.created_at.slice(0, 10)),
      );
      let total = 0;
      for (const day of days) total += (await asAdmin(`/audit?from=${day}&to=${day}`)).body.total;
      expect(total).toBeGreaterThan(3);
      const none = (await asAdmin("/audit?to=2001-01-01T00:00:00Z")).body;
      expect(none).toMatchObject({ events: [], total: 0, truncated: false });
      for (const query of ["from=yesterday", "to=1", "cursor=x", "event_type=other", "limit=many"])
        expect((await asAdmin(`/audit?${query}`)).status).toBe(400);
    });
  });
});
