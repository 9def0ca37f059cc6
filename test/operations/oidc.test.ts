import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isDeepStrictEqual } from "node:util";
import { sql } from "../../src/kit/sql.ts";
import { startProvider, TestBrowser, type TestProvider } from "../support/oidc.ts";
import {
  addIssuer,
  type MadeIssuer,
  platformLogin,
  signInAt,
  startOrgs,
  whenEnded,
} from "../support/oidc-orgs.ts";
import { engines, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const password = "correct horse battery";

// A server of its own: it may call loopback, and has two orgs with an issuer each.
describe.each(engines)("sign-in by OpenID providers on %s", (engine) => {
  let server: TestServer;
  let orgs: Awaited<ReturnType<typeof startOrgs>>;
  let ofFirst: TestProvider;
  let ofSecond: TestProvider;
  let first: MadeIssuer;
  let second: MadeIssuer;
  beforeAll(async () => {
    orgs = await startOrgs({ engine });
    server = orgs.server;
    ofFirst = await startProvider({
      ada: { email: "ada@first.example", name: "Ada", groups: ["eng", "all"] },
      bob: { email: "bob@first.example", groups: "ops" },
      eve: { email: "eve@first.example" },
      fay: { email: "taken@first.example", groups: ["eng"] },
      gus: { groups: ["eng"] },
      hal: { email: "hal@first.example", email_verified: false, groups: ["eng"] },
      ida: { email: "ida@first.example", groups: ["eng"] },
    });
    ofSecond = await startProvider({
      ada: { email: "ada@second.example", groups: ["readers"] },
      fay: { email: "fay@second.example", groups: ["readers"] },
    });
    first = await addIssuer(server, ofFirst, {
      key: orgs.first.key,
      roles: [
        { value: "eng", role: "developer" },
        { value: "ops", role: "role_admin" },
      ],
    });
    second = await addIssuer(server, ofSecond, {
      key: orgs.second.key,
      roles: [{ value: "*", role: "viewer" }],
      more: { scopes: "openid email profile", roles_claim: "nested.roles" },
    });
  }, 120_000);
  afterAll(async () => {
    await server?.stop();
    await ofFirst?.stop();
    await ofSecond?.stop();
  });

  const self = async (token: string) => (await server.api("/api/v1/auth/session", { key: token })).body;
  const hasRoles = (token: string, roles: string[]) =>
    until(async () => isDeepStrictEqual((await self(token)).roles, roles), { about: `roles ${roles}` });
  const usersOf = async (key: string): Promise<{ id: string; email: string; roles: string[] }[]> =>
    (await server.api("/api/v1/users", { key })).body;

  test("the first sign-in makes a user with the mapped roles, the next one finds it and maps anew", async () => {
    const one = await signInAt(server, first, "ada", { returnTo: "/dashboard/runs?x=1" });
    expect(one).toMatchObject({ status: 302, location: "/dashboard/runs?x=1" });
    expect(await self(one.token!)).toMatchObject({
      ...{ kind: "user", email: "ada@first.example", org_id: "org_default", roles: ["role_developer"] },
    });
    ofFirst.accounts.ada!.groups = ["ops", "unknown", 7];
    const two = await signInAt(server, first, "ada");
    expect(two).toMatchObject({ status: 302, location: "/dashboard/" });
    const { id } = await self(one.token!);
    expect(await self(two.token!)).toMatchObject({ id, roles: ["role_admin"] });
    expect(two.token).not.toBe(one.token);
    // A change of roles reaches the sessions that there are.
    await hasRoles(one.token!, ["role_admin"]);
    ofFirst.accounts.ada!.groups = ["eng"];
    const { body } = await server.api("/api/v1/auth/sessions", { key: two.token! });
    expect(body.sessions.map((session: { issuer_id: string }) => session.issuer_id)).toEqual([
      first.id,
      first.id,
    ]);
    expect((await usersOf(orgs.first.key)).find((user) => user.id === id)).toMatchObject({
      email: "ada@first.example",
    });
  });

  test("one name at two issuers is two people, and each stays in its org", async () => {
    const { token } = await signInAt(server, second, "ada");
    const who = await self(token!);
    expect(who).toMatchObject({
      email: "ada@second.example",
      org_id: orgs.second.org,
      roles: ["role_viewer"],
    });
    expect((await usersOf(orgs.first.key)).some(({ id }) => id === who.id)).toBe(false);
    expect((await usersOf(orgs.second.key)).some(({ id }) => id === who.id)).toBe(true);
  });

  test("who has no role is refused: nobody is made, and who was there loses the roles", async () => {
    const eve = await signInAt(server, first, "eve");
    expect(eve).toMatchObject({ status: 403, error: { error: "NO_ROLE" }, token: undefined });
    expect((await usersOf(orgs.first.key)).some(({ email }) => email === "eve@first.example")).toBe(false);
    const bob = await signInAt(server, first, "bob");
    expect((await self(bob.token!)).roles).toEqual(["role_admin"]);
    ofFirst.accounts.bob!.groups = { ops: true };
    expect((await signInAt(server, first, "bob")).status).toBe(403);
    await hasRoles(bob.token!, []);
    ofFirst.accounts.bob!.groups = "ops";
  });

  test("an address that is missing, of another type or unverified makes nobody", async () => {
    for (const sub of ["gus", "hal"]) expect((await signInAt(server, first, sub)).status).toBe(403);
    ofFirst.accounts.gus!.email = ["gus@first.example"];
    expect((await signInAt(server, first, "gus")).status).toBe(403);
    ofFirst.accounts.gus!.email = "no address";
    expect((await signInAt(server, first, "gus")).status).toBe(400);
  });

  test("a present user is joined by itself alone, signed in, and never by its address", async () => {
    const login = { email: "taken@first.example", password };
    const made = await server.api("/api/v1/users", { body: { ...login, roles: ["viewer"] } });
    const refused = await signInAt(server, first, "fay");
    expect(refused).toMatchObject({ status: 409, token: undefined });
    // The same person of another org's issuer is refused as well.
    ofSecond.accounts.fay!.email = login.email;
    expect((await signInAt(server, second, "fay")).status).toBe(409);

    const browser = new TestBrowser();
    const { body } = await server.api("/api/v1/auth/login", { key: null, body: login });
    browser.cookies(server.url).set("svc_dashboard_token", body.token);
    const link = async (path = `/api/v1/auth/oidc/${first.id}/link`) => {
      const answer = await server.api(path, {
        method: "POST",
        key: body.token,
        body: { return_to: "/dashboard/" },
      });
      const cookie = /^(svc_sign_in)=([^;]+)/.exec(answer.headers.get("set-cookie") ?? "");
      if (cookie) browser.cookies(server.url).set(cookie[1]!, cookie[2]!);
      return answer.body.url as string;
    };
    const back = await browser.signIn(await link(), "fay", (url) => url.startsWith(first.callback));
    // Another session than the one that began it joins nobody.
    const other = new TestBrowser();
    for (const [name, value] of browser.cookies(server.url)) other.cookies(server.url).set(name, value);
    other.cookies(server.url).set("svc_dashboard_token", (await signInAt(server, first, "ada")).token!);
    expect((await other.go(back)).status).toBe(400);
    expect((await browser.go(back)).status).toBe(302);
    const joined = await signInAt(server, first, "fay");
    expect(await self(joined.token!)).toMatchObject({ id: made.body.id, email: login.email });
    // Nobody is joined to a person who is another's, and no key is.
    browser.cookies(ofFirst.issuer).clear();
    const taken = await browser.signIn(await link(), "ada", (url) => url.startsWith(first.callback));
    expect((await browser.go(taken)).status).toBe(409);
    const byKey = await server.api(`/api/v1/auth/oidc/${first.id}/link`, { method: "POST", body: {} });
    expect(byKey.status).toBe(409);
    // An issuer of another org looks like none.
    expect(await link(`/api/v1/auth/oidc/${second.id}/link`)).toBeUndefined();
  });

  test("a callback counts once, in the browser that began it, and leads to no other site", async () => {
    const browser = new TestBrowser();
    const back = await browser.signIn(first.start, "ada", (url) => url.startsWith(first.callback));
    // Login CSRF: a browser that did not begin it.
    const stranger = new TestBrowser();
    expect((await stranger.go(back)).status).toBe(400);
    // Nor one that began another, nor at another issuer's callback.
    await stranger.go(first.start);
    expect((await stranger.go(back)).status).toBe(400);
    expect((await browser.go(back.replace(first.id, second.id))).status).toBe(400);
    const kept = new Map(browser.cookies(server.url));
    expect((await browser.go(back)).status).toBe(302);
    for (const [name, value] of kept) browser.cookies(server.url).set(name, value);
    expect((await browser.go(back)).status).toBe(400);

    for (const place of [
      "//evil.example/",
      "/\\evil.example",
      "https://evil.example/",
      "javascript:alert(1)",
      "/%0d%0aSet-Cookie: a=b\r\n",
      "dashboard",
      `/${"x".repeat(1_000)}`,
      "/x/..//evil.example",
    ]) {
      const { status } = await browser.go(`${first.start}?return_to=${encodeURIComponent(place)}`);
      expect(`${place.slice(0, 40)}: ${status}`).toBe(`${place.slice(0, 40)}: 400`);
    }
    // A cookie that somebody else has written leads nowhere else either.
    await browser.go(first.start);
    const [secret, at] = browser.cookies(server.url).get("svc_sign_in")!.split(".");
    const place = Buffer.from("https://evil.example/").toString("base64url");
    browser.cookies(server.url).set("svc_sign_in", `${secret}.${at}.0.${place}`);
    expect((await browser.go(`${first.callback}?code=x&state=x`)).status).toBe(400);
  });

  test("a refusal of the provider is told by its word alone", async () => {
    const browser = new TestBrowser();
    const { headers } = await browser.go(first.start);
    const state = new URL(headers.get("location")!).searchParams.get("state")!;
    const answer = await browser.go(
      `${first.callback}?error=access_denied&error_description=%3Cb%3E&state=${state}`,
    );
    expect(answer.status).toBe(403);
    expect(await answer.text()).toContain("the provider refuses the sign-in: access_denied");
  });

  test("the session's cookie is a script's to read nowhere, and a session before it stays another", async () => {
    const browser = new TestBrowser();
    const { body } = await server.api("/api/v1/users", {
      body: { email: "old@first.example", password, roles: ["viewer"] },
    });
    const old = await server.api("/api/v1/auth/login", {
      key: null,
      body: { email: "old@first.example", password },
    });
    browser.cookies(server.url).set("svc_dashboard_token", old.body.token);
    const back = await browser.signIn(first.start, "ada", (url) => url.startsWith(first.callback));
    const answer = await browser.go(back);
    expect(answer.headers.get("set-cookie")).toMatch(
      /^svc_dashboard_token=[^;]+; Path=\/; HttpOnly; SameSite=Lax/,
    );
    expect(answer.headers.get("cache-control")).toBe("no-store");
    expect((await self(old.body.token)).id).toBe(body.id);
    expect((await self(browser.cookies(server.url).get("svc_dashboard_token")!)).email).toBe(
      "ada@first.example",
    );
  });

  test("the provider's logout ends its session here and leaves others", async () => {
    const ada = await signInAt(server, first, "ada");
    const elsewhere = await signInAt(server, first, "ada");
    const page = await ada.browser.signIn(`${ofFirst.issuer}/session/end`, "ada", (url) =>
      url.startsWith("form "),
    );
    const fields = Object.fromEntries(
      [...page.matchAll(/name="(\w+)" value="([^"]*)"/g)].map(([, name, value]) => [name!, value!]),
    );
    await ada.browser.go(`${ofFirst.issuer}/session/end/confirm`, { ...fields, logout: "yes" });
    await whenEnded(server, ada.token!);
    expect((await self(elsewhere.token!)).email).toBe("ada@first.example");
  });

  test("a sign-in is audited with its user and without a secret", async () => {
    // From now on requests are captured.
    await server.api("/api/v1/debug/requests");
    const ada = await signInAt(server, first, "ada");
    const { id } = await self(ada.token!);
    await server.running.tick("audit.flush");
    const { body } = await server.api(`/api/v1/audit/auth?actor_id=${id}&limit=50`);
    const text = JSON.stringify(body);
    const rows = await server.running.domain.store.all<{ payload: string | null }>(
      sql`SELECT payload FROM auth_audit WHERE operation = 'auth.oidc.callback' AND caller_id = ${id}`,
    );
    expect(rows.length).toBeGreaterThan(0);
    const captured = JSON.stringify((await server.api("/api/v1/debug/requests")).body);
    expect(captured).toContain("auth.oidc.callback");
    const query = new URL(ada.back).searchParams;
    for (const secret of [query.get("code")!, query.get("state")!, ada.token!])
      expect(text + captured + JSON.stringify(rows)).not.toContain(secret);
  });

  test("the platform's issuer signs in users of the platform, and its last admin stays", async () => {
    const provider = await startProvider({ max: { email: "max@platform.example", groups: ["root"] } });
    provider.accounts.pia = {};
    const issuer = await addIssuer(server, provider, {
      ...{ key: orgs.platform, path: "/api/v1/platform/issuers" },
      roles: [{ value: "root", role: "platform_admin" }],
    });
    const max = await signInAt(server, issuer, "max");
    expect(await self(max.token!)).toMatchObject({
      kind: "platform",
      org_id: "org_platform",
      roles: ["role_platform_admin"],
    });
    const { body } = await server.api("/api/v1/platform/audit", { key: orgs.platform });
    const types = body.events.map(({ event_type }: { event_type: string }) => event_type);
    expect(types).toContain("platform.issuer.changed");
    expect(types).toContain("platform.user.created");

    // Passwords off: a user of the platform whose password stays is needed first.
    const passwords = (on: boolean, key = orgs.platform, path = "/api/v1/platform/sign-in") =>
      server.api(path, { method: "PATCH", key, body: { passwords: on } });
    expect((await passwords(false)).status).toBe(409);
    const users = (await server.api("/api/v1/platform/users", { key: orgs.platform })).body;
    const root = users.find(({ email }: { email: string }) => email === platformLogin.email);
    const change = (body: object, key = max.token!) =>
      server.api(`/api/v1/platform/users/${root.id}`, { method: "PATCH", key, body });
    expect((await change({ break_glass: true })).body.break_glass).toBe(true);
    const other = {
      email: "pat@platform.example",
      password,
      name: "Pat",
      role_ids: ["role_platform_viewer"],
    };
    await server.api("/api/v1/platform/users", { key: orgs.platform, body: other });
    expect(await passwords(false)).toMatchObject({ status: 200, body: { passwords: false } });
    for (const one of [{ break_glass: false }, { is_active: false }, { role_ids: [] }])
      expect((await change(one)).status).toBe(409);
    const login = (body: object) => server.api("/api/v1/platform/auth/login", { key: null, body });
    // Nor does a mapping.
    const { token } = (await login(platformLogin)).body;
    const browser = new TestBrowser();
    browser.cookies(server.url).set("svc_dashboard_token", token);
    const begun = await server.api(`/api/v1/auth/oidc/${issuer.id}/link`, { key: token, body: {} });
    const [, value] = /=([^;]+)/.exec(begun.headers.get("set-cookie")!)!;
    browser.cookies(server.url).set("svc_sign_in", value!);
    const back = await browser.signIn(begun.body.url, "pia", (url) => url.startsWith(issuer.callback));
    expect((await browser.go(back)).status).toBe(302);
    expect((await signInAt(server, issuer, "pia")).status).toBe(409);
    expect((await self(token)).roles).toEqual(["role_platform_admin"]);
    expect(await login({ email: other.email, password })).toMatchObject({
      status: 403,
      body: { error: "PASSWORDS_OFF" },
    });
    expect((await login({ email: other.email, password: "wrong password" })).status).toBe(401);
    expect((await login(platformLogin)).status).toBe(200);
    const trail = (
      await server.api("/api/v1/platform/audit?event_type=platform.break_glass", { key: orgs.platform })
    ).body;
    expect(JSON.stringify(trail)).toContain(root.id);
    expect((await passwords(true)).status).toBe(200);
    await provider.stop();
  });

  test("passwords are off an org, while its sessions and keys go on", async () => {
    const { key } = orgs.second;
    const login = { email: "pw@second.example", password };
    await server.api("/api/v1/users", { key, body: { ...login, roles: ["viewer"] } });
    const enter = () => server.api("/api/v1/auth/login", { key: null, body: login });
    const { token } = (await enter()).body;
    const passwords = (on: boolean) =>
      server.api("/api/v1/sign-in", { method: "PATCH", key, body: { passwords: on } });
    expect((await passwords(false)).status).toBe(200);
    expect(await enter()).toMatchObject({ status: 403, body: { error: "PASSWORDS_OFF" } });
    expect((await self(token)).email).toBe(login.email);
    // The only issuer stays, in use.
    const path = `/api/v1/issuers/${second.id}`;
    expect((await server.api(path, { method: "DELETE", key })).status).toBe(409);
    expect((await server.api(path, { method: "PATCH", key, body: { is_enabled: false } })).status).toBe(409);
    expect((await server.api("/api/v1/sign-in", { key })).body).toEqual({ passwords: false });
    expect((await server.api("/api/v1/sign-in")).body).toEqual({ passwords: true });
    expect((await passwords(true)).status).toBe(200);
    expect((await enter()).status).toBe(200);
  });

  test("a secret that was sealed under another master key still opens", async () => {
    const rotated = await server.api("/api/v1/cluster/rotate-token", {
      key: orgs.platform,
      body: { kind: "master_key", new_value: "ab".repeat(32) },
    });
    expect(rotated.status).toBe(200);
    expect((await signInAt(server, first, "ada")).status).toBe(302);
  });

  test("who has no password signs in by none, and changes none", async () => {
    const ada = await signInAt(server, first, "ada");
    for (const guess of ["", "belongs to no account", password]) {
      const body = { email: "ada@first.example", password: guess };
      expect((await server.api("/api/v1/auth/login", { key: null, body })).status).toBe(401);
    }
    const { id } = await self(ada.token!);
    const body = { current_password: "", new_password: password };
    const changed = await server.api(`/api/v1/users/${id}/password`, {
      method: "PATCH",
      key: ada.token!,
      body,
    });
    expect(changed.status).toBe(403);
  });

  test("a user who was deleted is a new one at the next sign-in, and a deleted issuer signs nobody in", async () => {
    const before = await self((await signInAt(server, first, "ida")).token!);
    expect((await server.api(`/api/v1/users/${before.id}`, { method: "DELETE" })).status).toBe(204);
    const after = await self((await signInAt(server, first, "ida")).token!);
    expect(after.id).not.toBe(before.id);

    const provider = await startProvider({ ida: { email: "ida@third.example" } });
    const wanted = { key: orgs.first.key, roles: [{ value: "*", role: "viewer" }] };
    const gone = await addIssuer(server, provider, wanted);
    const ida = await signInAt(server, gone, "ida");
    const browser = new TestBrowser();
    const back = await browser.signIn(gone.start, "ida", (url) => url.startsWith(gone.callback));
    await server.api(`/api/v1/issuers/${gone.id}`, { method: "DELETE" });
    expect((await browser.go(back)).status).toBe(404);
    expect((await browser.go(gone.start)).status).toBe(404);
    expect((await self(ida.token!)).email).toBe("ida@third.example");
    // Made again, it knows its people.
    const again = await addIssuer(server, provider, wanted);
    const { id } = await self((await signInAt(server, again, "ida")).token!);
    expect(id).toBe((await self(ida.token!)).id);
    // A provider that is away ends no session and keeps nobody waiting.
    await provider.stop();
    expect((await self(ida.token!)).id).toBe(id);
  });
});
