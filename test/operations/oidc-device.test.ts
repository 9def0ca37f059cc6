import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { makeCli } from "../support/cli.ts";
import { startProvider, TestBrowser, type TestProvider } from "../support/oidc.ts";
import { addIssuer, type MadeIssuer, startOrgs } from "../support/oidc-orgs.ts";
import { engines, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

// A server of its own: it may call loopback.
describe.each(engines)("sign-in by a device code on %s", (engine) => {
  let server: TestServer;
  let orgs: Awaited<ReturnType<typeof startOrgs>>;
  let provider: TestProvider;
  let first: MadeIssuer;
  let second: MadeIssuer;
  beforeAll(async () => {
    orgs = await startOrgs({ engine });
    server = orgs.server;
    provider = await startProvider({ ada: { email: "ada@first.example", groups: ["eng"] } });
    const roles = [{ value: "eng", role: "developer" }];
    first = await addIssuer(server, provider, { key: orgs.first.key, roles });
    second = await addIssuer(server, provider, { key: orgs.second.key, roles });
  }, 120_000);
  afterAll(async () => {
    await server?.stop();
    await provider?.stop();
  });

  const self = async (token: string) => (await server.api("/api/v1/auth/session", { key: token })).body;
  /** The last page says that the device may go on, and has no form. */
  const confirm = (url: string) =>
    new TestBrowser()
      .signIn(url, "ada", () => false)
      .catch((error: Error) => expect(error.message).toContain("Sign-in Success"));

  test("it signs in once, after the person said yes", async () => {
    const path = `/api/v1/auth/oidc/${first.id}`;
    const begun = (await server.api(`${path}/device`, { key: null, body: {} })).body;
    expect(begun).toMatchObject({ user_code: expect.any(String), interval: 7 });
    const ask = (device_code: string = begun.device_code) =>
      server.api(`${path}/device-token`, { key: null, body: { device_code } });
    expect(await ask()).toMatchObject({ status: 409, body: { error: "AUTHORIZATION_PENDING" } });
    await confirm(begun.verification_uri_complete);
    const answer = await until(
      async () => {
        const { status, body } = await ask();
        return status === 200 && (body as { token: string });
      },
      { about: "the device signs in" },
    );
    expect(await self(answer.token)).toMatchObject({ email: "ada@first.example", roles: ["role_developer"] });
    expect((await ask()).status).toBe(401);
    expect((await ask("none")).status).toBe(401);
    expect((await server.api("/api/v1/auth/oidc/iss_none/device", { key: null, body: {} })).status).toBe(404);
  });

  test("svc login keeps the session in a profile, when the person has confirmed", async () => {
    const cli = makeCli({ SVC_SERVER_URL: server.url });
    try {
      let confirmed: Promise<unknown> = Promise.resolve();
      const onNote = (text: string) => {
        const url = /^open (\S+) and confirm/.exec(text)?.[1];
        if (url) confirmed = confirm(url);
      };
      // The waits between two questions last until the person has said yes.
      const clock = { ...systemClock(), sleep: async () => void (await confirmed) };
      const said = await cli.run(["login"], { clock, onNote });
      expect(said).toMatchObject({ code: 0, out: "" });
      expect(said.err).not.toContain("eyJ");
      expect((await cli.run(["runs"])).code).toBe(0);
      expect((await cli.run(["user", "list"])).code).toBe(1);
    } finally {
      cli.remove();
    }
  }, 60_000);

  test("svc login says which issuers there are", async () => {
    const cli = makeCli({ SVC_SERVER_URL: server.url });
    try {
      const body = { name: "Other", issuer: "https://other.example", client_id: "x" };
      const { id } = (await server.api("/api/v1/issuers", { body })).body;
      expect(await cli.run(["login"])).toMatchObject({
        code: 2,
        err: expect.stringContaining(`${id} (Other)`),
      });
      expect((await cli.run(["platform", "login"])).code).toBe(2);
      expect((await cli.run(["login", "--email", "a@b.example", "--issuer", id])).code).toBe(2);
      await server.api(`/api/v1/issuers/${id}`, { method: "DELETE" });
    } finally {
      cli.remove();
    }
  });

  test("who wants to sign in sees the issuers of one org, by name alone", async () => {
    const offered = async (query = "") =>
      (await server.api(`/api/v1/auth/issuers${query}`, { key: null })).body.issuers;
    expect(await offered(`?org=${orgs.second.org}`)).toEqual([
      { id: second.id, name: "Login", is_platform: false },
    ]);
    expect(JSON.stringify(await offered())).not.toContain(second.id);
    expect(await offered("?org=org_none")).toEqual([]);
  });
});
