import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { startOrgs } from "../support/oidc-orgs.ts";
import { engines, type TestServer } from "../support/server.ts";

const path = "/api/v1/issuers";
const wanted = { name: "Example", issuer: "https://login.example", client_id: "svc" };

// A server of its own: it has a second org and users of the platform.
describe.each(engines)("issuers on %s", (engine) => {
  let server: TestServer;
  let orgs: Awaited<ReturnType<typeof startOrgs>>;
  beforeAll(async () => {
    orgs = await startOrgs({ engine });
    server = orgs.server;
  }, 120_000);
  afterAll(() => server?.stop());

  const make = (more: object = {}, key = orgs.first.key) =>
    server.api(path, { key, body: { ...wanted, ...more } });
  const change = (id: string, body: object, key = orgs.first.key) =>
    server.api(`${path}/${id}`, { method: "PATCH", key, body });
  const remove = (id: string, key = orgs.first.key) => server.api(`${path}/${id}`, { method: "DELETE", key });

  test("one is made, changed and deleted, and its secret is never answered", async () => {
    const secret = "a secret of our client";
    const made = await make({ client_secret: secret, roles: [{ value: "eng", role: "developer" }] });
    expect(made).toMatchObject({
      status: 201,
      body: {
        ...{ ...wanted, org_id: "org_default", has_secret: true, is_enabled: true },
        ...{ scopes: "openid email profile", roles_claim: "groups" },
        roles: [{ value: "eng", role_id: "role_developer", role: "developer" }],
        callback_path: `/api/v1/auth/oidc/${made.body.id}/callback`,
        logout_path: `/api/v1/auth/oidc/${made.body.id}/logout`,
      },
    });
    const { id } = made.body;
    const changed = await change(id, { name: "Other", scopes: "openid  groups openid", roles_claim: "a.b" });
    expect(changed.body).toMatchObject({
      ...{ name: "Other", scopes: "openid groups", roles_claim: "a.b" },
      has_secret: true,
    });
    expect(changed.body.roles).toHaveLength(1);
    expect((await change(id, { client_secret: "", roles: [] })).body).toMatchObject({
      has_secret: false,
      roles: [],
    });
    await change(id, { client_secret: secret });
    const all = [await server.api(path), await server.api(`${path}/${id}`), made, changed];
    for (const answer of all) expect(JSON.stringify(answer.body)).not.toContain(secret);
    await server.running.tick("audit.flush");
    const kept = await Promise.all([
      server.running.domain.store.all(sql`SELECT * FROM issuers`),
      server.running.domain.store.all(sql`SELECT * FROM auth_audit WHERE operation LIKE 'issuers.%'`),
    ]);
    expect(kept[1].length).toBeGreaterThan(2);
    expect(JSON.stringify(kept)).not.toContain(secret);
    expect((await make()).status).toBe(409);
    expect((await make({}, orgs.second.key)).status).toBe(201);
    expect((await remove(id)).status).toBe(204);
    expect((await server.api(`${path}/${id}`)).status).toBe(404);
    expect(
      await server.running.domain.store.all(sql`SELECT * FROM issuer_roles WHERE issuer_id = ${id}`),
    ).toEqual([]);
  });

  test("what leads to no provider, or gives no role, is refused with its field", async () => {
    const bad: [string, unknown][] = [
      ["issuer", "http://login.example"],
      ["issuer", "ftp://login.example"],
      ["issuer", "https://user:word@login.example"],
      ["issuer", "https://login.example?x=1"],
      ["issuer", "https://login.example#x"],
      ["issuer", "https://lögin.example"],
      ["issuer", "login.example"],
      ["issuer", `https://login.example/${"x".repeat(500)}`],
      ["name", " "],
      ["name", "x".repeat(101)],
      ["name", "a\u0000b"],
      ["client_id", " "],
      ["client_id", "a\nb"],
      ["client_secret", "a\nb"],
      ["scopes", "email"],
      ["scopes", 'openid "x"'],
      ["roles_claim", " "],
      ["roles[0].role", [{ value: "x", role: "platform_admin" }]],
      [
        "roles[1].role",
        [
          { value: "x", role: "viewer" },
          { value: "x", role: "role_none" },
        ],
      ],
      ["roles[0].value", [{ value: "ü".repeat(200), role: "viewer" }]],
    ];
    for (const [field, value] of bad) {
      const { status, body } = await make({ [field.replace(/\[.*/, "")]: value });
      expect([field, value, status, body.field]).toEqual([field, value, 400, field]);
    }
    // Loopback is this machine.
    const local = await make({ issuer: "http://127.0.0.1:9/realm" });
    expect(local.status).toBe(201);
    await remove(local.body.id);
  });

  test("another org's looks like none, and who may not manage users sees none", async () => {
    const { body } = await make({ issuer: "https://mine.example" });
    const none = await server.api(`${path}/iss_none`, { key: orgs.second.key });
    const foreign = await server.api(`${path}/${body.id}`, { key: orgs.second.key });
    expect([foreign.status, JSON.stringify(foreign.body).replaceAll(body.id, "iss_none")]).toEqual([
      404,
      JSON.stringify(none.body),
    ]);
    expect((await change(body.id, { name: "x" }, orgs.second.key)).status).toBe(404);
    expect((await remove(body.id, orgs.second.key)).status).toBe(404);
    expect(JSON.stringify((await server.api(path, { key: orgs.second.key })).body)).not.toContain(body.id);
    // The platform's are no tenant's, from either side.
    const far = await server.api(`/api/v1/platform/issuers/${body.id}`, { key: orgs.platform });
    expect(far.status).toBe(404);
    const { key } = (
      await server.api("/api/v1/apikeys", { body: { name: "dev", role_ids: ["role_developer"] } })
    ).body;
    for (const [method, at] of [
      ["GET", path],
      ["GET", `${path}/${body.id}`],
      ["POST", path],
      ["PATCH", `${path}/${body.id}`],
      ["DELETE", `${path}/${body.id}`],
      ["GET", "/api/v1/sign-in"],
      ["PATCH", "/api/v1/sign-in"],
    ] as const)
      expect([
        method,
        at,
        (await server.api(at, { method, key, ...(method !== "GET" && { body: {} }) })).status,
      ]).toEqual([method, at, 403]);
    await remove(body.id);
  });

  test("a mapping keeps a role that is gone, which gives nothing, not even under its name", async () => {
    const role = (await server.api("/api/v1/roles", { body: { name: "Guide", base: "viewer" } })).body;
    const { body } = await make({ issuer: "https://roles.example", roles: [{ value: "*", role: "Guide" }] });
    expect(body.roles).toEqual([{ value: "*", role_id: role.id, role: "Guide" }]);
    await server.api(`/api/v1/roles/${role.id}`, { method: "DELETE" });
    await server.api("/api/v1/roles", { body: { name: "Guide", base: "admin" } });
    expect((await server.api(`${path}/${body.id}`)).body.roles).toEqual([{ value: "*", role_id: role.id }]);
    await remove(body.id);
  });

  test("an org has ten at most, and passwords stay on without one", async () => {
    expect(
      (await server.api("/api/v1/sign-in", { method: "PATCH", body: { passwords: false } })).status,
    ).toBe(409);
    const before = (await server.api(path)).body.length;
    for (let at = before; at < 10; at++)
      expect((await make({ issuer: `https://${at}.example` })).status).toBe(201);
    expect((await make({ issuer: "https://11.example" })).status).toBe(429);
    for (const { id } of (await server.api(path)).body) await remove(id);
  });

  test("a deleted org takes its issuers and people along", async () => {
    const { store } = server.running.domain;
    const { org, key } = orgs.second;
    await make({ issuer: "https://gone.example", roles: [{ value: "*", role: "viewer" }] }, key);
    await store.write((session) =>
      session.run(sql`INSERT INTO identities (org_id, issuer, subject, user_id, created_at)
        VALUES (${org}, 'https://gone.example', 'ada', 'usr_gone', 1)`),
    );
    expect((await server.api(`/api/v1/orgs/${org}`, { method: "DELETE", key })).status).toBe(204);
    for (const table of ["issuers", "issuer_roles", "identities"])
      expect(await store.all(sql`SELECT * FROM ${sql.raw(table)} WHERE org_id = ${org}`)).toEqual([]);
  });
});
