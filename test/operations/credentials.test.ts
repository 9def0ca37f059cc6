import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { fingerprintOf } from "../../src/domain/access/keyring/rules.ts";
import { sessionsMax } from "../../src/domain/access/sessions/register.ts";
import { sql } from "../../src/kit/sql.ts";
import { claimsOf, forged, keyIdOf } from "../support/forged.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const password = "correct horse battery";
const another = "another horse battery";
const root = { email: "root@example.com", password };
const known = (letter: string) => `${letter}-chosen-by-who-rotates-${letter.repeat(20)}`;

describe.each(engines)("installation secrets on %s", (engine) => {
  let server: TestServer;
  let admin = "";
  let operator = "";
  let adminId = "";
  const platform = (path: string, options: CallOptions = {}) =>
    server.api(`/api/v1/platform${path}`, { key: admin, ...options });
  const enter = async (email: string) =>
    (await platform("/auth/login", { body: { email, password }, key: null })).body.token as string;
  const rotate = (kind: string, new_value: string, options: CallOptions = {}) =>
    server.api("/api/v1/cluster/rotate-token", { ...options, body: { kind, new_value } });
  const acting = (key: string, org = "org_default") => ({ key, headers: { "x-svc-org": org } });

  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  test("while the platform has nobody, an admin of the first org rotates them, one of another does not", async () => {
    const other = await server.running.domain.keys.create({
      orgId: "org_default",
      environmentId: "env_default",
      name: "developer",
      roleIds: ["role_developer"],
    });
    expect((await rotate("jwt_secret", known("a"), { key: other.key })).status).toBe(403);
    expect((await rotate("jwt_secret", known("a"))).status).toBe(200);
    expect((await rotate("platform_jwt_secret", known("b"))).status).toBe(200);
    const made = await platform("/bootstrap", { key: server.adminKey, body: { ...root, name: "Root" } });
    adminId = made.body.id;
    admin = await enter(root.email);
    await platform("/users", {
      body: { email: "op@example.com", password, name: "Op", role_ids: ["role_platform_operator"] },
    });
    operator = await enter("op@example.com");
  });

  test("from then on only a platform credential with the right, which acts for nobody else", async () => {
    const tenant = await platform("/tenants", { body: { name: "Tenant" } });
    const desktop = await server.api("/api/v1/auth/desktop-session", { method: "POST" });
    for (const kind of ["jwt_secret", "platform_jwt_secret", "signing_key", "master_key"])
      for (const options of [
        {},
        { key: desktop.body.token },
        { key: operator },
        acting(operator),
        acting(operator, tenant.body.id),
        acting(admin),
      ]) {
        const value = kind === "master_key" ? "ab".repeat(32) : known("x");
        expect((await rotate(kind, value, options)).status, kind).toBe(403);
      }
    expect((await rotate("signing_key", known("c"), { key: admin })).status).toBe(200);
  });

  test("a known secret forges nothing, whatever a token made with it says", async () => {
    const user = { email: "victim@example.com", password, roles: ["admin"] };
    const { id } = (await server.api("/api/v1/users", { body: user })).body;
    const login = { body: { email: user.email, password }, key: null };
    const own = (await server.api("/api/v1/auth/login", login)).body.token as string;
    expect((await server.api("/api/v1/users", { key: own })).status).toBe(200);
    // Both are known to the attacker, and both rotated once more, so that older ones are known too.
    const secrets = { jwt: known("a"), platform: known("b") };
    for (const rotated of [false, true]) {
      if (rotated) {
        expect((await rotate("jwt_secret", known("d"), { key: admin })).status).toBe(200);
        expect((await rotate("platform_jwt_secret", known("e"), { key: admin })).status).toBe(200);
      }
      const kids = { jwt: fingerprintOf(secrets.jwt), platform: fingerprintOf(secrets.platform) };
      expect([keyIdOf(own), keyIdOf(operator)]).toEqual([kids.jwt, kids.platform]);
      const sids = {
        none: undefined,
        made: "5e".repeat(16),
        own: claimsOf(own).sid,
        op: claimsOf(operator).sid,
      };
      for (const [subject, kind, path] of [
        [adminId, "platform", "/api/v1/platform/users"],
        [id, "user", "/api/v1/users"],
        ["ak_admin_bootstrap", "desktop", "/api/v1/users"],
      ] as const)
        for (const by of ["jwt", "platform"] as const)
          for (const [name, sid] of Object.entries(sids)) {
            // Knows secret and session: this is the token itself.
            if (kind === "user" && by === "jwt" && name === "own") continue;
            const claims = { sub: subject, kind, ...(sid !== undefined && { sid: sid as string }) };
            const key = await forged(secrets[by], kids[by], claims);
            expect((await server.api(path, { key })).status, `${kind} ${by} ${name}`).toBe(401);
          }
    }
    // Neither rotation ended a genuine session.
    expect((await server.api("/api/v1/users", { key: own })).status).toBe(200);
    expect((await platform("/users", { key: operator })).status).toBe(200);
  });

  test("a token of the platform is no tenant's, signed with a tenants' secret, and the other way round", async () => {
    const { sid } = claimsOf(admin) as { sid: string };
    const claims = { sub: adminId, kind: "platform", sid };
    const wrong = await forged(known("d"), fingerprintOf(known("d")), claims);
    const right = await forged(known("e"), fingerprintOf(known("e")), claims);
    expect((await platform("/users", { key: wrong })).status).toBe(401);
    expect((await platform("/users", { key: right })).status).toBe(200);
  });

  test("an Idempotency-Key that is too long is refused by name", async () => {
    const headers = { "idempotency-key": "k".repeat(6_000) };
    expect(await rotate("signing_key", known("f"), { key: admin, headers })).toMatchObject({
      status: 400,
      body: { field: "Idempotency-Key" },
    });
    const fits = { key: admin, headers: { "idempotency-key": "k".repeat(255) } };
    expect((await rotate("signing_key", known("f"), fits)).status).toBe(200);
    const again = await rotate("signing_key", known("f"), fits);
    expect(again.headers.get("idempotent-replay")).toBe("1");
  });
});

describe.each(engines)("sessions on %s", (engine) => {
  let server: TestServer;
  let count = 0;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  const login = async (email: string, text = password) =>
    server.api("/api/v1/auth/login", { body: { email, password: text }, key: null });
  const newUser = async (roles: string[] = ["admin"]) => {
    const email = `u${count++}@example.com`;
    const { body } = await server.api("/api/v1/users", { body: { email, password, roles } });
    return { id: body.id as string, email, token: (await login(email)).body.token as string };
  };
  const newKey = async () =>
    (await server.api("/api/v1/apikeys", { body: { name: "k", role_ids: ["role_admin"] } })).body;
  const desktop = (key: string) => server.api("/api/v1/auth/desktop-session", { method: "POST", key });
  const opens = async (key: string) => (await server.api("/api/v1/users", { key })).status === 200;
  const dies = (key: string, about: string) =>
    until(async () => !(await opens(key)), { about, deadlineMs: 5_000 });
  const rowsOf = async (subject: string) =>
    (await server.running.domain.store.all(sql`SELECT id FROM sessions WHERE subject_id = ${subject}`))
      .length;

  test("a logout ends this session alone, and takes the cookie back", async () => {
    const { id, email, token } = await newUser();
    const other = (await login(email)).body.token as string;
    expect(await opens(token)).toBe(true);
    const out = () => server.api("/api/v1/auth/logout", { method: "POST", key: token });
    const answer = await out();
    expect(answer.status).toBe(204);
    expect(answer.headers.get("set-cookie")).toMatch(/^svc_dashboard_token=; .*HttpOnly.*Max-Age=0/);
    expect(await opens(token)).toBe(false);
    expect((await server.api("/api/v1/auth/validate", { key: token })).status).toBe(401);
    expect((await out()).status).toBe(401);
    expect(await opens(other)).toBe(true);
    const cookie = { cookie: `svc_dashboard_token=${other}` };
    const byCookie = (headers: Record<string, string>) =>
      server.api("/api/v1/auth/logout", { method: "POST", key: null, headers: { ...cookie, ...headers } });
    expect((await byCookie({ origin: "http://evil.example" })).status).toBe(403);
    expect(await opens(other)).toBe(true);
    expect((await byCookie({})).status).toBe(204);
    expect(await opens(other)).toBe(false);
    expect(await rowsOf(id)).toBe(0);
    expect((await server.api("/api/v1/auth/logout", { method: "POST", key: null })).status).toBe(401);
  });

  test("a logout ends sessions of the platform too", async () => {
    const body = { ...root, name: "Root" };
    await server.api("/api/v1/platform/bootstrap", { body });
    const answer = await server.api("/api/v1/platform/auth/login", { body: root, key: null });
    const { token } = answer.body;
    const look = async () => (await server.api("/api/v1/platform/users", { key: token })).status;
    expect(await look()).toBe(200);
    expect((await server.api("/api/v1/auth/logout", { method: "POST", key: token })).status).toBe(204);
    expect(await look()).toBe(401);
  });

  test("rotating a key ends the desktop sessions that were made with it, by either door", async () => {
    const { id, key } = await newKey();
    const { token } = (await desktop(key)).body;
    expect(await opens(token)).toBe(true);
    const rotated = await server.api(`/api/v1/apikeys/${id}/rotate`, { method: "POST" });
    await dies(token, "the first desktop session's end");
    expect(await rowsOf(id)).toBe(0);
    const next = (await desktop(rotated.body.key)).body.token;
    expect(await opens(next)).toBe(true);
    const body = { kind: "api_key", new_value: `another-text-of-the-key-${count++}`, remote_key_id: id };
    expect((await server.api("/api/v1/cluster/rotate-token", { body })).status).toBe(200);
    await dies(next, "the second desktop session's end");
    expect(await opens((await desktop(body.new_value)).body.token)).toBe(true);
  });

  test("a desktop session that races the rotation of its key does not outlive it", async () => {
    for (let round = 0; round < 8; round++) {
      const { id, key } = await newKey();
      // Known to this node already: the request is let in at once.
      await desktop(key);
      const asked = Array.from({ length: 6 }, () => desktop(key));
      await server.api(`/api/v1/apikeys/${id}/rotate`, { method: "POST" });
      for (const { body } of await Promise.all(asked))
        if (body.token) await dies(body.token, "the end of a session by the old text");
    }
  }, 120_000);

  test("a login by the old password that races its change does not outlive it", async () => {
    for (let round = 0; round < 5; round++) {
      const { id, email, token } = await newUser();
      const change = server.api(`/api/v1/users/${id}/password`, {
        method: "PATCH",
        key: token,
        body: { current_password: password, new_password: another },
      });
      const logins = Array.from({ length: 6 }, () => login(email));
      expect((await change).status).toBe(204);
      for (const { body } of await Promise.all(logins))
        if (body.token) await dies(body.token, "the end of a session by the old password");
      expect(await rowsOf(id)).toBe(0);
      expect(await opens((await login(email, another)).body.token)).toBe(true);
    }
  }, 120_000);

  test("one has so many at a time: the oldest leaves", async () => {
    const { id, key } = await newKey();
    const first = (await desktop(key)).body.token;
    for (let made = 0; made < sessionsMax + 5; made++) expect((await desktop(key)).status).toBe(200);
    expect(await rowsOf(id)).toBe(sessionsMax);
    await dies(first, "the oldest session's end");
  }, 120_000);

  test("rows end with their user, their key, their time", async () => {
    const { store } = server.running.domain;
    const user = await newUser();
    expect(await rowsOf(user.id)).toBe(1);
    await server.api(`/api/v1/users/${user.id}`, { method: "DELETE" });
    expect(await rowsOf(user.id)).toBe(0);
    const { id, key } = await newKey();
    await desktop(key);
    await server.api(`/api/v1/apikeys/${id}`, { method: "DELETE" });
    expect(await rowsOf(id)).toBe(0);
    const old = await newUser();
    await store.write((session) =>
      session.run(sql`UPDATE sessions SET expires_at = 1 WHERE subject_id = ${old.id}`),
    );
    await dies(old.token, "its time");
    await server.running.tick("cluster.forget");
    expect(await rowsOf(old.id)).toBe(0);
  });

  test("of an environment's keys they end with it", async () => {
    const { id: env_id } = (await server.api("/api/v1/environments", { body: { name: "doomed" } })).body;
    const body = { name: "k", env_id, role_ids: ["role_admin"] };
    const { id, key } = (await server.api("/api/v1/apikeys", { body })).body;
    const { token } = (await desktop(key)).body;
    expect(await opens(token)).toBe(true);
    await server.api(`/api/v1/environments/${env_id}`, { method: "DELETE" });
    expect(await rowsOf(id)).toBe(0);
    await dies(token, "the session's end");
  });

  test("no text of a token stands in its row", async () => {
    const { token } = await newUser();
    const { sid } = claimsOf(token) as { sid: string };
    const rows = await server.running.domain.store.all(sql`SELECT * FROM sessions`);
    expect(JSON.stringify(rows)).not.toContain(sid);
  });
});
