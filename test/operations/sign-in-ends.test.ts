import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { startProvider, TestBrowser, type TestProvider } from "../support/oidc.ts";
import { addIssuer, type MadeIssuer, signInAt, startOrgs, whenEnded } from "../support/oidc-orgs.ts";
import { engines, type TestServer } from "../support/server.ts";

const password = "correct horse battery";

// A server of its own: it may call loopback.
describe.each(engines)("the ends of sign-ins by providers on %s", (engine) => {
  let server: TestServer;
  let orgs: Awaited<ReturnType<typeof startOrgs>>;
  let provider: TestProvider;
  let platformProvider: TestProvider;
  let issuer: MadeIssuer;
  beforeAll(async () => {
    orgs = await startOrgs({ engine });
    server = orgs.server;
    provider = await startProvider({
      ada: { email: "ada@ends.example", groups: ["eng"] },
      eve: { email: "eve@ends.example" },
      fay: { email: "fay@ends.example", groups: ["eng"] },
    });
    platformProvider = await startProvider({ root: { email: "root@ends.example", groups: ["ops"] } });
    issuer = await addIssuer(server, provider, {
      key: orgs.first.key,
      roles: [{ value: "eng", role: "developer" }],
    });
  }, 120_000);
  afterAll(async () => {
    await server?.stop();
    await provider?.stop();
    await platformProvider?.stop();
  });

  const self = async (token: string) => (await server.api("/api/v1/auth/session", { key: token })).body;
  const identitiesOf = async (user: string, key?: string) =>
    server.api(`/api/v1/users/${user}/identities`, key === undefined ? {} : { key });
  const part = (user: string, identity: string, key?: string) =>
    server.api(`/api/v1/users/${user}/identities/${identity}`, {
      ...{ method: "DELETE" },
      ...(key !== undefined && { key }),
    });
  /** As a browser asks that shows what it is answered. */
  const shown = async (url: string, browser = new TestBrowser()) => {
    const cookie = [...browser.cookies(url)].map(([name, value]) => `${name}=${value}`).join("; ");
    const headers = { accept: "text/html,application/xhtml+xml,*/*;q=0.8", cookie };
    const answer = await fetch(url, { redirect: "manual", headers });
    return { status: answer.status, location: answer.headers.get("location"), text: await answer.text() };
  };

  test("a browser whose sign-in is refused is shown why on the page, and other callers get the fault", async () => {
    const page = (word: string) => ({
      status: 302,
      location: `/dashboard/sign-in?refused=${word}`,
      text: "",
    });
    const callback = `${issuer.callback}?code=a-secret-code&state=a-secret-state`;
    expect(await shown(callback)).toEqual(page("begun_elsewhere"));
    expect((await fetch(callback)).status).toBe(400);
    const browser = new TestBrowser();
    const back = await browser.signIn(issuer.start, "eve", (url) => url.startsWith(issuer.callback));
    expect(await shown(back, browser)).toEqual(page("no_role"));
    const begun = new TestBrowser();
    const { headers } = await begun.go(issuer.start);
    const state = new URL(headers.get("location")!).searchParams.get("state")!;
    const denied = `${issuer.callback}?error=access_denied&error_description=secret&state=${state}`;
    expect(await shown(denied, begun)).toEqual(page("refused"));
    const none = `${server.url}/api/v1/auth/oidc/iss_none/start`;
    expect(await shown(none)).toEqual(page("no_issuer"));
    await server.api("/api/v1/users", {
      body: { email: "fay@ends.example", password, roles: ["viewer"] },
    });
    const known = new TestBrowser();
    const backOfFay = await known.signIn(issuer.start, "fay", (url) => url.startsWith(issuer.callback));
    expect(await shown(backOfFay, known)).toEqual(page("known"));
  });

  test("a person is parted from a user, whose sessions from there end, unless it is the last way in", async () => {
    const login = { email: "both@ends.example", password };
    const user = (await server.api("/api/v1/users", { body: { ...login, roles: ["developer"] } })).body.id;
    const own = (await server.api("/api/v1/auth/login", { key: null, body: login })).body.token as string;
    const browser = new TestBrowser();
    browser.cookies(server.url).set("svc_dashboard_token", own);
    const link = await server.api(`/api/v1/auth/oidc/${issuer.id}/link`, {
      ...{ method: "POST", key: own, body: {} },
    });
    const [, name, value] = /^([^=]+)=([^;]+)/.exec(link.headers.get("set-cookie")!)!;
    browser.cookies(server.url).set(name!, value!);
    const back = await browser.signIn(link.body.url, "fay", (url) => url.startsWith(issuer.callback));
    expect((await browser.go(back)).status).toBe(302);
    const joined = await signInAt(server, issuer, "fay");
    expect((await self(joined.token!)).id).toBe(user);

    const listed = await identitiesOf(user);
    const [identity] = listed.body.identities;
    expect(identity).toMatchObject({ issuer: provider.issuer, issuer_id: issuer.id, subject: "fay" });
    // Who may not manage users, and another org, see nobody.
    expect((await identitiesOf(user, own)).status).toBe(403);
    expect((await part(user, identity.id, own)).status).toBe(403);
    const missing = await identitiesOf("usr_none", orgs.second.key);
    const foreign = await identitiesOf(user, orgs.second.key);
    expect(foreign.status).toBe(404);
    expect(JSON.stringify(foreign.body).replaceAll(user, "usr_none")).toBe(JSON.stringify(missing.body));
    expect((await part(user, identity.id, orgs.second.key)).status).toBe(404);
    expect((await part(user, "idn_none")).status).toBe(404);

    await server.api("/api/v1/sign-in", { method: "PATCH", body: { passwords: false } });
    const last = await part(user, identity.id);
    expect({ status: last.status, code: last.body.error }).toEqual({ status: 409, code: "LAST_WAY_IN" });
    await server.api("/api/v1/sign-in", { method: "PATCH", body: { passwords: true } });
    expect((await part(user, identity.id)).status).toBe(204);
    await whenEnded(server, joined.token!);
    expect((await self(own)).id).toBe(user);
    expect((await identitiesOf(user)).body.identities).toEqual([]);
    expect((await part(user, identity.id)).status).toBe(404);
    await server.running.tick("audit.flush");
    const { store } = server.running.domain;
    const audited = await store.all<{ resource: string; payload: string }>(
      sql`SELECT resource, payload FROM auth_audit WHERE operation = 'users.unlink' AND outcome = 'ok'`,
    );
    expect(JSON.stringify(audited)).toContain(identity.id);

    // Who was made by a provider has no password.
    const ada = await self((await signInAt(server, issuer, "ada")).token!);
    const [only] = (await identitiesOf(ada.id)).body.identities;
    expect((await part(ada.id, only.id)).status).toBe(409);
  });

  test("the same of users of the platform, in its audit", async () => {
    const path = "/api/v1/platform/issuers";
    const roles = [{ value: "ops", role: "platform_viewer" }];
    const of = await addIssuer(server, platformProvider, { key: orgs.platform, path, roles });
    const { token } = await signInAt(server, of, "root");
    const { id } = await self(token!);
    const users = "/api/v1/platform/users";
    const key = orgs.platform;
    const { identities } = (await server.api(`${users}/${id}/identities`, { key })).body;
    const away = `${users}/${id}/identities/${identities[0].id}`;
    expect((await server.api(away, { method: "DELETE", key })).status).toBe(409);
    await server.api(`${users}/${id}`, { method: "PATCH", key, body: { password } });
    expect((await server.api(away, { method: "DELETE", key })).status).toBe(204);
    const audit = await server.api("/api/v1/platform/audit?type=platform.user.updated", { key });
    expect(JSON.stringify(audit.body)).toContain(platformProvider.issuer);
  });

  test("signing out leads a browser to the provider's sign-out, where the issuer wants that", async () => {
    const out = (key: string) => server.api("/api/v1/auth/logout", { method: "POST", key });
    const before = await signInAt(server, issuer, "ada");
    expect((await out(before.token!)).status).toBe(204);
    const changed = await server.api(`/api/v1/issuers/${issuer.id}`, {
      ...{ method: "PATCH", body: { ends_at_provider: true } },
    });
    expect(changed.body.ends_at_provider).toBe(true);
    const ada = await signInAt(server, issuer, "ada");
    const left = await out(ada.token!);
    expect(left.status).toBe(200);
    await whenEnded(server, ada.token!);
    const url = new URL(left.body.url);
    expect(`${url.origin}${url.pathname}`).toStartWith(provider.issuer);
    expect(Object.fromEntries(url.searchParams)).toEqual({
      client_id: "svc",
      post_logout_redirect_uri: `${server.url}/dashboard/`,
    });
    // The provider knows the way back.
    const page = await (await ada.browser.go(url.href)).text();
    const fields = Object.fromEntries(
      [...page.matchAll(/name="(\w+)" value="([^"]*)"/g)].map(([, name, value]) => [name!, value!]),
    );
    const action = /<form[^>]*action="([^"]+)"/.exec(page)![1]!;
    const back = await ada.browser.go(new URL(action, url).href, { ...fields, logout: "yes" });
    expect(back.headers.get("location")).toStartWith(`${server.url}/dashboard/`);
    // A session of a password leads nowhere.
    const login = { email: "none@ends.example", password };
    await server.api("/api/v1/users", { body: { ...login, roles: ["viewer"] } });
    const { token } = (await server.api("/api/v1/auth/login", { key: null, body: login })).body;
    expect((await out(token)).status).toBe(204);
  });

  test("a person of an issuer that is there no more is parted with its sessions, from there and from before", async () => {
    provider.accounts.gil = { email: "gil@ends.example", groups: ["eng"] };
    const roles = [{ value: "eng", role: "developer" }];
    const path = `/api/v1/issuers/${issuer.id}`;
    const before = await signInAt(server, issuer, "gil");
    const { id } = await self(before.token!);
    // With a password it is not the last way in.
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE users SET password_hash = 'any' WHERE id = ${id}`),
    );
    expect((await server.api(path, { method: "DELETE" })).status).toBe(204);
    expect((await self(before.token!)).id).toBe(id);
    issuer = await addIssuer(server, provider, { key: orgs.first.key, roles });
    const after = await signInAt(server, issuer, "gil");
    expect((await self(after.token!)).id).toBe(id);
    const [identity] = (await identitiesOf(id)).body.identities;
    expect((await part(id, identity.id)).status).toBe(204);
    for (const { token } of [before, after])
      expect((await server.api("/api/v1/auth/session", { key: token! })).status).toBe(401);
  });

  test("a provider that is away holds up no sign-out", async () => {
    const ada = await signInAt(server, issuer, "ada");
    // What was read of it before is believed for ten minutes.
    const gone = await server.api("/api/v1/issuers", {
      body: { name: "Gone", issuer: "http://127.0.0.1:9/gone", client_id: "svc", ends_at_provider: true },
    });
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE sessions SET issuer_id = ${gone.body.id} WHERE issuer_id = ${issuer.id}`),
    );
    const left = await server.api("/api/v1/auth/logout", { method: "POST", key: ada.token! });
    expect(left.status).toBe(204);
    await whenEnded(server, ada.token!);
  });
});
