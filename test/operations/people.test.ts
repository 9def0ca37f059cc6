import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { holdsWithin } from "../support/within.ts";

const password = "correct horse battery";

describe.each(engines)("keys, users and sessions on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  const newKey = async (body: object = {}) =>
    (await server.api("/api/v1/apikeys", { body: { name: "test", role_ids: ["role_developer"], ...body } }))
      .body;
  const newUser = async (email: string, roles: string[] = ["viewer"]) =>
    (await server.api("/api/v1/users", { body: { email, password, name: "Test", roles } })).body;
  const login = (email: string, text = password, headers: Record<string, string> = {}) =>
    server.api("/api/v1/auth/login", { body: { email, password: text }, key: null, headers });
  const cookieOf = (answer: { headers: Headers }) => answer.headers.get("set-cookie")!.split(";")[0]!;

  describe("keys", () => {
    test("a key is answered once, listed without its text, and works", async () => {
      const key = await newKey({ expires_in: "720h" });
      expect(key.id).toMatch(/^ak_[0-9a-f-]{36}$/);
      expect(key.key).toMatch(/^ifkey_[0-9a-f]{32}$/);
      expect(key.key_prefix).toBe(key.key.slice(0, 14));
      expect(key.environment_id).toBe("env_default");
      expect(Date.parse(key.expires_at) - Date.parse(key.created_at)).toBe(720 * 3_600_000);
      expect(key.expires).toBe(key.expires_at);
      const one = await server.api(`/api/v1/apikeys/${key.id}`);
      expect(one.body.key).toBeUndefined();
      const { body: list } = await server.api("/api/v1/apikeys");
      expect(JSON.stringify(list)).not.toContain(key.key);
      expect(list.map((row: { id: string }) => row.id)).toContain(key.id);
      expect((await server.rpc("SvcService", "Emit", { event: "a" }, { key: key.key })).status).toBe(200);
      expect((await server.api("/api/v1/apikeys", { key: key.key })).status).toBe(403);
    });

    test("without roles it has its maker's", async () => {
      const { role_ids } = (await server.api("/api/v1/apikeys", { body: { name: "mine" } })).body;
      expect(role_ids).toEqual(["role_admin"]);
    });

    test("deletion revokes at once", async () => {
      const key = await newKey();
      expect((await server.api("/api/v1/events", { key: key.key })).status).toBe(200);
      expect((await server.api(`/api/v1/apikeys/${key.id}`, { method: "DELETE" })).status).toBe(204);
      expect(await server.api("/api/v1/events", { key: key.key })).toMatchObject({
        status: 401,
        body: { error: "Invalid API key" },
      });
      expect((await server.api(`/api/v1/apikeys/${key.id}`)).status).toBe(404);
      expect((await server.api(`/api/v1/apikeys/${key.id}`, { method: "DELETE" })).status).toBe(404);
    });

    test("rotation keeps all but the text", async () => {
      const before = await newKey({ expires_in: "1h" });
      const { status, body: after } = await server.api(`/api/v1/apikeys/${before.id}/rotate`, {
        method: "POST",
      });
      expect(status).toBe(200);
      for (const field of ["id", "name", "environment_id", "expires_at", "role_ids"])
        expect(after[field]).toEqual(before[field]);
      expect(after.key).not.toBe(before.key);
      expect((await server.api("/api/v1/events", { key: before.key })).status).toBe(401);
      expect((await server.api("/api/v1/events", { key: after.key })).status).toBe(200);
    });

    test("an expired key is refused, stays listed and cannot be rotated", async () => {
      const { id, key } = await server.running.domain.keys.create({
        orgId: "org_default",
        environmentId: "env_default",
        name: "old",
        roleIds: ["role_viewer"],
        expiresAt: 1,
      });
      expect((await server.api("/api/v1/events", { key })).body.error).toBe("API key expired");
      expect((await server.api(`/api/v1/apikeys/${id}`)).status).toBe(200);
      const rotated = await server.api(`/api/v1/apikeys/${id}/rotate`, { method: "POST" });
      expect(rotated).toMatchObject({ status: 409, body: { code: "failed_precondition" } });
    });

    test("roles are replaced and obeyed at once", async () => {
      const key = await newKey();
      const put = (role_ids: string[]) =>
        server.api(`/api/v1/apikeys/${key.id}/roles`, { method: "PUT", body: { role_ids } });
      expect((await put(["role_viewer"])).body.role_ids).toEqual(["role_viewer"]);
      expect((await server.rpc("SvcService", "Emit", { event: "a" }, { key: key.key })).status).toBe(403);
      expect((await put(["role_none"])).body.error).toBe("role_ids: role role_none not found");
      expect((await put(["role_platform_admin"])).status).toBe(400);
    });

    test("bad keys are refused by field", async () => {
      for (const [body, message] of [
        [{ name: " " }, "name: must not be empty"],
        [{ name: "x", expires_in: "soon" }, "expires_in: must be a duration such as 720h"],
        [{ name: "x", expires_in: "0s" }, "expires_in: must be above zero and at most 100 years"],
        [{ name: "x", env_id: "env_none" }, "env_id: unknown environment"],
        [{ name: "x", role_ids: ["prole_1"] }, "role_ids: role prole_1 not found"],
        [{ name: 7 }, "name: "],
      ] as const) {
        const answer = await server.api("/api/v1/apikeys", { body });
        expect(answer.status).toBe(400);
        expect(answer.body.error).toStartWith(message);
      }
    });

    test("tenants have nothing to do with platform keys", async () => {
      const made = await server.api("/api/v1/apikeys", { body: { name: "x", platform: true } });
      expect(made.status).toBe(403);
      expect((await server.api("/api/v1/apikeys?platform=true")).status).toBe(403);
    });

    test("another org's key looks like none", async () => {
      const { id } = await newKey();
      const { key } = await server.running.domain.keys.create({
        orgId: "org_stranger",
        environmentId: "env_default",
        name: "stranger",
        roleIds: ["role_admin"],
      });
      const own = await server.api(`/api/v1/apikeys/${id}`, { key });
      const none = await server.api("/api/v1/apikeys/ak_none", { key });
      expect(own.status).toBe(404);
      expect(JSON.stringify(own.body).replaceAll(id, "ak_none")).toBe(JSON.stringify(none.body));
    });
  });

  describe("users", () => {
    test("are made, listed, changed and deleted by admins", async () => {
      const user = await newUser("One@Example.com");
      expect(user).toMatchObject({ email: "one@example.com", roles: ["viewer"], org_id: "org_default" });
      expect(JSON.stringify(user)).not.toContain("hash");
      const taken = await server.api("/api/v1/users", { body: { email: "one@example.com", password } });
      expect(taken.status).toBe(409);
      const changed = await server.api(`/api/v1/users/${user.id}`, {
        method: "PATCH",
        body: { name: "Uno", roles: ["developer"] },
      });
      expect(changed.body).toMatchObject({ name: "Uno", roles: ["developer"], email: "one@example.com" });
      expect((await server.api(`/api/v1/users/${user.id}`, { method: "DELETE" })).status).toBe(204);
      expect((await server.api(`/api/v1/users/${user.id}`)).status).toBe(404);
    });

    test("bad users are refused by field", async () => {
      for (const [change, message] of [
        [{ email: "nobody" }, "email: must be an email address"],
        [{ password: "short" }, "password: at least 8 characters"],
        [{ roles: ["owner"] }, "roles: role owner not found"],
        [{ roles: ["platform_admin"] }, "roles: role platform_admin not found"],
      ] as const) {
        const body = { email: "bad@example.com", password, ...change };
        const answer = await server.api("/api/v1/users", { body });
        expect(answer.status).toBe(400);
        expect(answer.body.error).toBe(message);
      }
    });

    test("others see and change only themselves", async () => {
      const user = await newUser("self@example.com");
      const other = await newUser("other@example.com");
      const cookie = cookieOf(await login("self@example.com"));
      const as = (path: string, options: object = {}) =>
        server.api(path, { key: null, headers: { cookie }, ...options });
      expect((await as(`/api/v1/users/${user.id}`)).body.email).toBe("self@example.com");
      const hidden = await as(`/api/v1/users/${other.id}`);
      expect([hidden.status, hidden.body.error]).toEqual([
        403,
        "Insufficient permissions: users:read is granted by admin",
      ]);
      expect((await as("/api/v1/users")).status).toBe(403);
      const change = (id: string, current_password: string) =>
        as(`/api/v1/users/${id}/password`, {
          method: "PATCH",
          body: { current_password, new_password: "another password" },
        });
      const foreign = await change(other.id, password);
      expect([foreign.status, foreign.body.error]).toEqual([
        403,
        "Insufficient permissions: users change no password but their own",
      ]);
      expect((await change(user.id, "wrong password")).status).toBe(403);
      expect((await change(user.id, password)).status).toBe(204);
      expect((await login("self@example.com")).status).toBe(401);
      expect((await login("self@example.com", "another password")).status).toBe(200);
    });
  });

  describe("sessions", () => {
    test("login answers a token and a cookie, and both let in", async () => {
      await newUser("in@example.com", ["developer"]);
      const answer = await login("IN@example.com");
      expect(answer.headers.get("set-cookie")).toMatch(
        /^svc_dashboard_token=eyJ[^;]+; Path=\/; HttpOnly; SameSite=Lax; Max-Age=86400$/,
      );
      const { token } = answer.body;
      const valid = await server.api("/api/v1/auth/validate", {
        key: null,
        headers: { cookie: cookieOf(answer) },
      });
      expect(valid).toMatchObject({ status: 200, body: { valid: true, email: "in@example.com" } });
      expect((await server.rpc("SvcService", "Emit", { event: "a" }, { key: token })).status).toBe(200);
      expect((await server.api("/api/v1/users", { key: token })).status).toBe(403);
      expect((await server.api("/api/v1/auth/validate", { key: null })).status).toBe(401);
    });

    test("what is no valid token is refused", async () => {
      const { token } = (await login("admin@svc.local", "wrong password one")).body;
      expect(token).toBeUndefined();
      await newUser("forged@example.com");
      const good = (await login("forged@example.com")).body.token as string;
      const [head, body, sign] = good.split(".") as [string, string, string];
      const none = Buffer.from('{"alg":"none","typ":"JWT"}').toString("base64url");
      const claims = JSON.parse(Buffer.from(body, "base64url").toString());
      const later = Buffer.from(JSON.stringify({ ...claims, exp: claims.exp + 99 })).toString("base64url");
      for (const text of [
        `${head}.${later}.${sign}`,
        `${none}.${body}.`,
        `${none}.${body}.${sign}`,
        `${head}.${body}.${sign.slice(0, -2)}`,
        good.replace("eyJ", "eyK"),
      ])
        expect((await server.api("/api/v1/events", { key: text })).status).toBe(401);
    });

    test("a deleted user's session ends within a second", async () => {
      const user = await newUser("gone@example.com");
      const { token } = (await login("gone@example.com")).body;
      expect((await server.api("/api/v1/events", { key: token })).status).toBe(200);
      await server.api(`/api/v1/users/${user.id}`, { method: "DELETE" });
      const isOver = async () => (await server.api("/api/v1/events", { key: token })).status === 401;
      await holdsWithin(1_000, isOver, "the end of the session");
    });

    test("a cookie is good for this site's own pages only", async () => {
      await newUser("csrf@example.com", ["developer"]);
      const cookie = cookieOf(await login("csrf@example.com"));
      const emit = (headers: Record<string, string>) =>
        server.rpc("SvcService", "Emit", { event: "a" }, { key: null, headers: { cookie, ...headers } });
      expect((await emit({})).status).toBe(200);
      expect((await emit({ "sec-fetch-site": "same-origin" })).status).toBe(200);
      expect((await emit({ origin: server.url })).status).toBe(200);
      expect((await emit({ "sec-fetch-site": "cross-site" })).status).toBe(403);
      expect((await emit({ "sec-fetch-site": "same-site", origin: server.url })).status).toBe(403);
      expect((await emit({ origin: "https://evil.example" })).status).toBe(403);
      const read = await server.api("/api/v1/events", {
        key: null,
        headers: { cookie, "sec-fetch-site": "cross-site" },
      });
      expect(read.status).toBe(403);
    });

    test("a desktop session has the key's roles and environment, and ends with the key", async () => {
      const key = await newKey();
      const { token } = (await server.api("/api/v1/auth/desktop-session", { method: "POST", key: key.key }))
        .body;
      expect((await server.api("/api/v1/events", { key: token })).status).toBe(200);
      const elsewhere = await server.running.domain.tenancy.createEnvironment({
        orgId: "org_default",
        name: `elsewhere-${engine}`,
      });
      expect((await server.api("/api/v1/events", { key: token, environment: elsewhere.id })).status).toBe(
        403,
      );
      const again = await server.api("/api/v1/auth/desktop-session", { method: "POST", key: token });
      await server.api(`/api/v1/apikeys/${key.id}`, { method: "DELETE" });
      const isOver = async () => (await server.api("/api/v1/events", { key: token })).status === 401;
      await holdsWithin(1_000, isOver, "the end of the session");
      expect(again.status).toBe(401);
      const dashboard = (await login("csrf@example.com")).body.token;
      const user = await server.api("/api/v1/auth/desktop-session", { method: "POST", key: dashboard });
      expect(user.status).toBe(401);
    });

    test("guesses are throttled, and the real user still gets in from elsewhere", async () => {
      const throttled = await startTestServer({ engine: "libsql", settings: { trustProxy: true } });
      try {
        await throttled.api("/api/v1/users", { body: { email: "real@example.com", password } });
        const guess = (text: string, address: string) =>
          throttled.api("/api/v1/auth/login", {
            body: { email: "real@example.com", password: text },
            key: null,
            headers: { "x-forwarded-for": address },
          });
        const answers = await Promise.all(
          Array.from({ length: 50 }, (_, place) => guess(`guess number ${place}`, "192.0.2.1")),
        );
        const statuses = answers.map((answer) => answer.status);
        expect(statuses.filter((status) => status === 401).length).toBe(10);
        expect(statuses.filter((status) => status === 429).length).toBe(40);
        const refused = answers.find((answer) => answer.status === 429)!;
        expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
        expect((await guess(password, "192.0.2.1")).status).toBe(429);
        expect((await guess(password, "192.0.2.2")).status).toBe(200);
      } finally {
        await throttled.stop();
      }
    }, 120_000);

    test("an unknown account is refused in the same words", async () => {
      const known = await login("csrf@example.com", "wrong password");
      const unknown = await login("nobody@example.com", "wrong password");
      expect(known.status).toBe(401);
      expect(unknown.body).toEqual(known.body);
    });
  });
});
