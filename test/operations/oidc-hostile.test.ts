import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { randomUUID } from "node:crypto";
import type { JWTPayload } from "jose";
import { keysAgainMs, providerFailedMs, providerTimeoutMs } from "../../src/domain/access/issuers/limits.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import { TestBrowser } from "../support/oidc.ts";
import {
  type HostileProvider,
  logoutEvent,
  logoutOf,
  openSignIns,
  type SignIns,
  sendLogout,
  startHostileProvider,
  type TokenMade,
} from "../support/oidc-hostile.ts";
import { startOrgs } from "../support/oidc-orgs.ts";
import { engines, type TestServer } from "../support/server.ts";

const clientId = "svc";

// A server of its own: it may call one loopback address alone, and is not patient.
describe.each(engines)("a provider that lies or fails, on %s", (engine) => {
  let server: TestServer;
  let orgs: Awaited<ReturnType<typeof startOrgs>>;
  let provider: HostileProvider;
  let id = "";
  let skippedMs = 0;
  beforeAll(async () => {
    const base = systemClock();
    const after: typeof base.after = (ms, work) => base.after(ms === providerTimeoutMs ? 500 : ms, work);
    orgs = await startOrgs({
      ...{ engine, clock: { ...base, after, elapsed: () => base.elapsed() + skippedMs } },
      settings: { pushAllowPrivate: ["127.0.0.1/32"], trustProxy: true },
    });
    server = orgs.server;
    provider = await startHostileProvider();
    signIns = openSignIns(provider, clientId);
    id = await issuerAt(provider.issuer);
  }, 120_000);
  beforeEach(() => provider.behave());
  afterAll(async () => {
    await server?.stop();
    provider?.stop();
  });

  const issuerAt = async (issuer: string, more: object = {}): Promise<string> => {
    const roles = [{ value: "eng", role: "developer" }];
    const body = { name: "Login", issuer, client_id: clientId, roles, ...more };
    const answer = await server.api("/api/v1/issuers", { body });
    if (answer.status !== 201) throw new Error(JSON.stringify(answer.body));
    return answer.body.id;
  };
  const start = (of = id) => `${server.url}/api/v1/auth/oidc/${of}/start`;

  let signIns: SignIns;
  const comeBack = (token: TokenMade, of = id) => signIns(token, start(of));
  const signIn = async (token: TokenMade, of = id) => (await comeBack(token, of))();
  const good = (claims: JWTPayload) => provider.sign(claims);

  test("a token that is not the provider's, for us, of this sign-in and of now signs nobody in", async () => {
    expect((await signIn(good)).status).toBe(302);
    const long = "x".repeat(256);
    const bad: Record<string, (claims: JWTPayload) => unknown> = {
      "another issuer": (claims) => good({ ...claims, iss: "http://127.0.0.1:1" }),
      "no issuer": ({ iss: _, ...claims }) => good(claims),
      "another client": (claims) => good({ ...claims, aud: "other" }),
      "no client": ({ aud: _, ...claims }) => good(claims),
      "several clients": (claims) => good({ ...claims, aud: [clientId, "other"] }),
      "made for another": (claims) => good({ ...claims, azp: "other" }),
      "another sign-in": (claims) => good({ ...claims, nonce: "other" }),
      "no nonce": ({ nonce: _, ...claims }) => good(claims),
      "a nonce of another type": (claims) => good({ ...claims, nonce: [claims.nonce] }),
      over: (claims) => good({ ...claims, iat: 1, exp: 2 }),
      "without an end": ({ exp: _, ...claims }) => good(claims),
      "without a begin": ({ iat: _, ...claims }) => good(claims),
      "an end of another type": (claims) => good({ ...claims, exp: "soon" as unknown as number }),
      "not yet": (claims) => good({ ...claims, nbf: claims.exp! }),
      unsigned: (claims) => provider.unsigned(claims),
      "by the public key": (claims) => provider.signedByPublicKey(claims),
      "by a stranger": (claims) => provider.sign(claims, { key: provider.strangersKey }),
      "by a key that is none": (claims) => provider.sign(claims, { key: provider.strangersKey, of: "two" }),
      "by a key that it brings": (claims) => provider.withItsKey(claims),
      "several issuers": (claims) => good({ ...claims, iss: [provider.issuer] as unknown as string }),
      "a client of another type": (claims) => good({ ...claims, aud: { svc: true } as unknown as string }),
      "a logout token": ({ nonce: _, ...claims }) => good({ ...claims, events: { [logoutEvent]: {} } }),
      changed: async (claims) => {
        const [head, , signature] = (await good(claims)).split(".");
        return `${head}.${Buffer.from(JSON.stringify({ ...claims, sub: "eve" })).toString("base64url")}.${signature}`;
      },
      nobody: ({ sub: _, ...claims }) => good(claims),
      "an empty person": (claims) => good({ ...claims, sub: "" }),
      "a person of another type": (claims) => good({ ...claims, sub: 7 as unknown as string }),
      "a person too long": (claims) => good({ ...claims, sub: long }),
      "a person that no store takes": (claims) => good({ ...claims, sub: "a\u0000b" }),
      "half a character": (claims) => good({ ...claims, sub: "a\ud800" }),
      "no token": () => undefined,
      "a number": () => 7,
      "a text": () => "x.y.z",
    };
    for (const [name, token] of Object.entries(bad)) {
      const { status, session } = await signIn(token);
      expect([name, status, session]).toEqual([name, 401, undefined]);
    }
    const { body } = await server.api("/api/v1/users");
    expect(body.filter(({ email }: { email: string }) => email.endsWith("@first.example"))).toHaveLength(1);
  }, 60_000);

  test("claims of other types count as missing", async () => {
    provider.answers.userinfo = () => ({ sub: "new" });
    for (const groups of [undefined, null, 7, {}, [["eng"]], [{ eng: true }], "ENG", Array(2_000).fill("x")])
      expect([groups, (await signIn((claims) => good({ ...claims, sub: "new", groups }))).status]).toEqual([
        groups,
        403,
      ]);
    for (const email of [undefined, null, 7, ["a@b.example"], ""])
      expect((await signIn((claims) => good({ ...claims, sub: "new", email }))).status).toBe(403);
    for (const email_verified of [false, "false", "False", "no", 0, 1, {}, []])
      expect([
        email_verified,
        (await signIn((claims) => good({ ...claims, sub: "new", email_verified }))).status,
      ]).toEqual([email_verified, 403]);
    for (const email of ["x", "a b@c", `${"x".repeat(300)}@y`])
      expect((await signIn((claims) => good({ ...claims, sub: "new", email }))).status).toBe(400);
    const odd = { sub: "odd", email: "odd@first.example", name: `\u0000O\ud800dd${"d".repeat(500)}` };
    expect((await signIn((claims) => good({ ...claims, ...odd }))).status).toBe(302);
    expect((await signIn((claims) => good({ ...claims, sid: "a\u0000" }))).status).toBe(302);
    // What the token lacks is asked for, of the same person alone.
    provider.answers.userinfo = () => ({ sub: "far", email: "far@first.example", groups: "eng" });
    const bare = (sub: string) => (claims: JWTPayload) =>
      good({ ...claims, sub, email: undefined, groups: undefined });
    expect((await signIn(bare("far"))).status).toBe(302);
    expect((await signIn(bare("near"))).status).toBe(401);
  }, 60_000);

  test("what it answers in place of tokens is told, never waited for, stored or followed", async () => {
    const hits: string[] = [];
    const trap = Bun.serve({
      hostname: "127.0.0.2",
      port: 0,
      fetch(request) {
        hits.push(request.url);
        return Response.json({});
      },
    });
    const large = new Uint8Array(10 * 1024 * 1024).fill(0x20);
    const zipped = { headers: { "content-encoding": "gzip" } };
    const answers: [string, () => unknown, number][] = [
      ["a refusal", () => Response.json({ error: "invalid_grant" }, { status: 400 }), 401],
      ["an error of its own words", () => ({ error: "<script>" }), 401],
      ["a failure", () => new Response("<html>", { status: 500 }), 503],
      ["a page", () => new Response("<html>"), 503],
      ["a list", () => [], 503],
      ["10 MiB", () => new Response(large), 503],
      ["a redirect", () => Response.redirect(`http://127.0.0.2:${trap.port}/`, 307), 503],
      ["nothing", () => new Promise(() => {}), 503],
      ["compressed", () => new Response(Bun.gzipSync("{}"), zipped), 503],
    ];
    for (const [name, answer, expected] of answers) {
      const browser = new TestBrowser();
      const begun = await browser.go(start());
      const state = new URL(begun.headers.get("location")!).searchParams.get("state");
      provider.answers.token = answer;
      const response = await browser.go(
        `${server.url}/api/v1/auth/oidc/${id}/callback?code=any&state=${state}`,
      );
      const text = await response.text();
      expect([name, response.status]).toEqual([name, expected]);
      expect(text).not.toContain("script");
    }
    // Its endpoints are no way into a network of ours either.
    const odd: [string, object][] = [
      ["token endpoint of another machine", { token_endpoint: `http://127.0.0.2:${trap.port}/token` }],
      ["keys of another machine", { jwks_uri: `http://127.0.0.2:${trap.port}/keys` }],
    ];
    for (const [name, change] of odd) {
      const { provider: other, id: of } = await another();
      other.answers.discovery = () => ({ ...other.discovery, ...change });
      other.answers.token = () => ({ id_token: "eyJhbGciOiJSUzI1NiJ9.e30.AA" });
      const browser = new TestBrowser();
      const begun = await browser.go(start(of));
      const state = new URL(begun.headers.get("location")!).searchParams.get("state");
      const answer = await browser.go(
        `${server.url}/api/v1/auth/oidc/${of}/callback?code=any&state=${state}`,
      );
      expect([name, answer.status]).toEqual([name, 503]);
      await gone(other, of);
    }
    expect(hits).toEqual([]);
    trap.stop(true);
  }, 60_000);

  const another = async () => {
    const made = await startHostileProvider();
    return { provider: made, id: await issuerAt(made.issuer) };
  };
  const gone = async (other: HostileProvider, of: string) => {
    await server.api(`/api/v1/issuers/${of}`, { method: "DELETE" });
    other.stop();
  };

  test("a discovery that is another's, incomplete or leads to no TLS begins no sign-in", async () => {
    const { provider: other, id: of } = await another();
    const { discovery } = other;
    const bad: [string, unknown][] = [
      ["of another", { ...discovery, issuer: provider.issuer }],
      ["of nobody", { ...discovery, issuer: undefined }],
      ["without keys", { ...discovery, jwks_uri: undefined }],
      ["without TLS", { ...discovery, token_endpoint: "http://provider.example/token" }],
      ["to a script", { ...discovery, authorization_endpoint: "javascript:alert(1)" }],
      ["with credentials", { ...discovery, authorization_endpoint: "https://a:b@provider.example/" }],
      ["an endpoint that is a number", { ...discovery, userinfo_endpoint: 7 }],
      ["a list", [discovery]],
      ["missing", new Response("", { status: 404 })],
      ["elsewhere", Response.redirect(`${provider.issuer}/.well-known/openid-configuration`, 302)],
    ];
    for (const [name, answer] of bad) {
      other.answers.discovery = () => answer;
      skippedMs += providerFailedMs;
      other.asked.length = 0;
      // Who comes a moment later is told at once.
      for (let time = 0; time < 2; time++)
        expect([name, (await new TestBrowser().go(start(of))).status]).toEqual([name, 503]);
      expect([name, other.asked.length]).toEqual([name, 1]);
    }
    other.behave();
    skippedMs += providerFailedMs;
    expect((await new TestBrowser().go(start(of))).status).toBe(302);
    await gone(other, of);
  });

  const logoutClaims = (names: object) => logoutOf(provider, clientId, names);
  const send = (token: unknown, of = id) => sendLogout(start(of), token);

  test("a logout token ends sessions once, and anything else ends none", async () => {
    const sid = randomUUID();
    const begun = await signIn((claims) => good({ ...claims, sid }));
    const other = await signIn((claims) => good({ ...claims, sid: "other" }));
    const nameless = await signIn(good);
    const stranger = { sub: "odd", email: "odd@first.example" };
    const strangers = await signIn((claims) => good({ ...claims, ...stranger }));
    const isIn = async (key: string) => (await server.api("/api/v1/auth/session", { key })).status === 200;
    const now = Math.floor(Date.now() / 1_000);
    const claims = logoutClaims({ sid });
    const { events: _, ...noEvents } = claims;
    const bad: [string, unknown][] = [
      ["with a nonce", good({ ...claims, nonce: "x" })],
      ["an ID token", good(noEvents)],
      ["of another event", good({ ...claims, events: { other: {} } })],
      ["without a person", good({ ...claims, sid: undefined })],
      ["without a name", good({ ...claims, jti: "" })],
      ["of another client", good({ ...claims, aud: "other" })],
      ["of another provider", good({ ...claims, iss: "http://127.0.0.1:1" })],
      ["old", good({ ...claims, iat: now - 3_600 })],
      ["unsigned", provider.unsigned(claims)],
      ["by the public key", provider.signedByPublicKey(claims)],
      ["nothing", ""],
    ];
    for (const [name, token] of bad) expect([name, await send(await token)]).toEqual([name, 400]);
    expect(await isIn(begun.session!)).toBe(true);
    expect(await send(await good(claims), "iss_none")).toBe(404);
    const token = await good(claims);
    expect(await send(token)).toBe(200);
    expect(await isIn(begun.session!)).toBe(false);
    expect(await isIn(other.session!)).toBe(true);
    expect(await isIn(nameless.session!)).toBe(true);
    // A session of which the provider said no name is its person's, whichever it was there.
    const both = await good({ ...claims, sub: "ada", jti: randomUUID() });
    expect(await send(both)).toBe(200);
    expect(await isIn(nameless.session!)).toBe(false);
    expect([await isIn(other.session!), await isIn(strangers.session!)]).toEqual([true, true]);
    expect(await send(token)).toBe(400);
    // An issuer that signs nobody in any more still ends what came from there. Without a session of its own, all of the person's that came from there.
    const all = await good({ ...claims, sid: undefined, sub: "ada", jti: randomUUID() });
    const enable = (is_enabled: boolean) =>
      server.api(`/api/v1/issuers/${id}`, { method: "PATCH", body: { is_enabled } });
    await enable(false);
    expect((await new TestBrowser().go(start())).status).toBe(404);
    expect(await send(all)).toBe(200);
    await enable(true);
    expect(await isIn(other.session!)).toBe(false);
    const unknown = await good({ ...claims, sid: undefined, sub: "nobody", jti: randomUUID() });
    expect(await send(unknown)).toBe(200);
  }, 60_000);

  test("a sign-in during which the provider ends its session begins none, and the next one does", async () => {
    for (const [sid, names] of [
      ["ends-1", { sid: "ends-1" }],
      ["ends-2", { sub: "ada" }],
      [undefined, { sub: "ada" }],
      [undefined, { sid: "of-others", sub: "ada" }],
    ] as const) {
      const during = await signIn(async (claims) => {
        expect(await send(await good(logoutClaims(names)))).toBe(200);
        return good({ ...claims, ...(sid && { sid }) });
      });
      expect([names, during.status, during.session]).toEqual([names, 401, undefined]);
      expect((await signIn((claims) => good({ ...claims, sid: randomUUID() }))).status).toBe(302);
    }
    // At whatever moment it comes.
    for (let round = 0; round < 8; round++) {
      const sid = randomUUID();
      const back = await comeBack((claims) => good({ ...claims, sid }));
      const [, ended] = await Promise.all([back(), send(await good(logoutClaims({ sid })))]);
      expect(ended).toBe(200);
      const left = sql`SELECT id FROM sessions WHERE provider_sid = ${sid}`;
      expect(await server.running.domain.store.all(left)).toEqual([]);
    }
  }, 60_000);

  test("a sign-in to which another site leads is begun at the sign-in page", async () => {
    const led = async (site: string | undefined, accept = "*/*") => {
      const headers = { accept, ...(site !== undefined && { "sec-fetch-site": site }) };
      const answer = await fetch(start(), { redirect: "manual", headers });
      return [answer.status, answer.headers.get("location") ?? "", answer.headers.get("set-cookie")];
    };
    for (const site of ["cross-site", "same-site", "elsewhere"]) {
      expect(await led(site)).toEqual([400, "", null]);
      expect(await led(site, "text/html,*/*;q=0.8")).toEqual([
        ...[302, "/dashboard/sign-in?refused=begun_elsewhere", null],
      ]);
    }
    for (const site of [undefined, "none", "same-origin"]) {
      const [status, location] = await led(site);
      expect([status, `${location}`.startsWith(provider.issuer)]).toEqual([302, true]);
    }
  });

  test("a device code without a form is none, and its times have bounds", async () => {
    const { provider: other, id: of } = await another();
    other.answers.discovery = () => ({
      ...other.discovery,
      device_authorization_endpoint: `${other.issuer}/token`,
    });
    const code = { device_code: "d", user_code: "AB-CD", verification_uri: "https://provider.example/d" };
    let devices = 0;
    const begin = async (answer: object) => {
      other.answers.token = () => answer;
      const headers = { "x-forwarded-for": `10.1.0.${devices++}` };
      return server.api(`/api/v1/auth/oidc/${of}/device`, { key: null, body: {}, headers });
    };
    for (const odd of [
      ...[{ user_code: 7 }, { user_code: "A\u001b[2J" }, { user_code: "x".repeat(101) }, { device_code: "" }],
      ...[{ device_code: "x".repeat(4_001) }, { verification_uri: "javascript:alert(1)" }],
      ...[{ verification_uri: "https://a\u001b" }, { verification_uri: undefined }],
    ])
      expect([odd, (await begin({ ...code, ...odd })).status]).toEqual([odd, 503]);
    const far = { expires_in: 1e12, interval: 1e9, verification_uri_complete: "data:text/html,x" };
    const { status, body } = await begin({ ...code, ...far });
    expect([status, body]).toEqual([200, { ...code, expires_in: 3_600, interval: 60 }]);
    expect((await begin({ ...code, expires_in: "soon", interval: -1 })).body).toEqual({
      ...{ ...code, expires_in: 600, interval: 7 },
    });
    await gone(other, of);
  });

  test("first sign-ins of one person at once make one user, whatever is deleted meanwhile", async () => {
    const { store } = server.running.domain;
    const twins = (sub: string) => (claims: JWTPayload) =>
      good({ ...claims, sub, email: `${sub}@first.example` });
    const usersOf = async (sub: string) =>
      (await server.api("/api/v1/users")).body.filter(
        ({ email }: { email: string }) => email === `${sub}@first.example`,
      );
    for (const sub of ["twin", "triplet"]) {
      const statuses = await Promise.all(
        Array.from({ length: 6 }, async () => (await signIn(twins(sub))).status),
      );
      expect(new Set(statuses)).toEqual(new Set([302]));
      expect(await usersOf(sub)).toHaveLength(1);
    }
    // A user who is deleted beside its sign-ins leaves no identity of nobody, and no session.
    const [{ id: userId }] = await usersOf("twin");
    await Promise.all([
      ...Array.from({ length: 4 }, () => signIn(twins("twin"))),
      server.api(`/api/v1/users/${userId}`, { method: "DELETE" }),
    ]);
    const lone = await store.all(sql`SELECT 1 FROM identities WHERE user_id NOT IN (SELECT id FROM users)`);
    const over = await store.all(sql`SELECT 1 FROM sessions WHERE subject_id = ${userId}`);
    expect([lone, over]).toEqual([[], []]);
    expect((await signIn(twins("twin"))).status).toBe(302);
    // One callback that comes twice at once counts once.
    const back = await comeBack(good);
    const statuses = await Promise.all([back(), back(), back(), back()]);
    expect(statuses.map(({ status }) => status).sort()).toEqual([302, 400, 400, 400]);
  }, 60_000);

  test("a key that the provider made new is believed, and strangers' tokens ask for none", async () => {
    const asked = () => provider.asked.filter((path) => path === "/keys").length;
    const before = asked();
    for (let at = 0; at < 5; at++)
      await signIn((claims) => provider.sign(claims, { key: provider.strangersKey, of: `new-${at}` }));
    expect(asked() - before).toBeLessThanOrEqual(1);
    const renewed = { ...provider.jwk, kid: "renewed" };
    provider.answers.keys = () => ({ keys: [renewed] });
    skippedMs += keysAgainMs;
    expect((await signIn((claims) => provider.sign(claims, { of: "renewed" }))).status).toBe(302);
  });
});
