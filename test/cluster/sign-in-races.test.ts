import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { randomUUID } from "node:crypto";
import { sql } from "../../src/kit/sql.ts";
import { isNight } from "../support/night.ts";
import { TestBrowser } from "../support/oidc.ts";
import { type HostileProvider, startHostileProvider } from "../support/oidc-hostile.ts";
import { startTestCluster, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const rounds = isNight ? 40 : 5;

describe("sign-ins at two nodes, beside what takes them away", () => {
  let cluster: Awaited<ReturnType<typeof startTestCluster>>;
  let nodes: readonly [TestServer, TestServer];
  let provider: HostileProvider;
  let issuer = "";
  beforeAll(async () => {
    const settings = { pushAllowPrivate: ["127.0.0.1/32"], trustProxy: true };
    cluster = await startTestCluster({ engine: "postgres", settings }, 2);
    nodes = cluster.nodes as unknown as typeof nodes;
    provider = await startHostileProvider();
    provider.answers.token = (form) => codes.get(form.get("code")!)?.();
    const body = { name: "Login", issuer: provider.issuer, client_id: "svc" };
    const roles = [{ value: "eng", role: "developer" }];
    issuer = (await cluster.api("/api/v1/issuers", { body: { ...body, roles } })).body.id;
  }, 120_000);
  afterAll(async () => {
    await cluster?.stop();
    provider?.stop();
  });

  const codes = new Map<string, () => Promise<object>>();
  let address = 0;
  /** Begins at one node and comes back to the other. Answers the status, and the session. */
  async function signIn(sub: string, at: number) {
    const browser = new TestBrowser();
    const [begins, ends] = [nodes[at % 2]!, nodes[(at + 1) % 2]!];
    const begun = await browser.go(`${begins.url}/api/v1/auth/oidc/${issuer}/start`);
    const sent = new URL(begun.headers.get("location")!).searchParams;
    const now = Math.floor(Date.now() / 1_000);
    const code = randomUUID();
    codes.set(code, async () => ({
      id_token: await provider.sign({
        ...{ iss: provider.issuer, aud: "svc", sub, nonce: sent.get("nonce")!, iat: now, exp: now + 300 },
        ...{ email: `${sub}@races.example`, groups: ["eng"], sid: `sid-${sub}` },
      }),
    }));
    const cookie = [...browser.cookies(begins.url)].map(([name, value]) => `${name}=${value}`).join("; ");
    const path = `/api/v1/auth/oidc/${issuer}/callback?code=${code}&state=${sent.get("state")}`;
    const headers = { cookie, "x-forwarded-for": `10.2.${address >> 8}.${address++ & 255}` };
    const { status, headers: answered } = await fetch(`${ends.url}${path}`, { redirect: "manual", headers });
    return { status, token: /svc_dashboard_token=([^;]+)/.exec(answered.get("set-cookie") ?? "")?.[1] };
  }
  const several = (sub: string) => Promise.all([0, 1, 2, 3].map((at) => signIn(sub, at)));
  const userOf = async (token: string): Promise<string> =>
    (await cluster.api("/api/v1/auth/session", { key: token })).body.id;
  const all = (query: ReturnType<typeof sql>) => cluster.running.domain.store.all(query);
  const write = (query: ReturnType<typeof sql>) =>
    cluster.running.domain.store.write((session) => session.run(query));

  /** What must hold whatever was faster. */
  async function hold() {
    const lone = await all(sql`SELECT subject FROM identities WHERE user_id NOT IN (SELECT id FROM users)`);
    const ofNobody = await all(
      sql`SELECT id FROM sessions WHERE kind = 'user' AND subject_id NOT IN (SELECT id FROM users)`,
    );
    const parted = await all(sql`SELECT id FROM sessions WHERE issuer_id IS NOT NULL
      AND subject_id NOT IN (SELECT user_id FROM identities)`);
    expect({ lone, ofNobody, parted }).toEqual({ lone: [], ofNobody: [], parted: [] });
  }
  const oneOf = (statuses: readonly number[], answers: readonly { status: number }[]) => {
    for (const { status } of answers) expect(statuses).toContain(status);
  };

  test("a person that is parted, and a user that is deleted, keep no session", async () => {
    for (let round = 0; round < rounds; round++) {
      const sub = `parted-${round}`;
      const id = await userOf((await signIn(sub, round)).token!);
      await write(sql`UPDATE users SET password_hash = 'any' WHERE id = ${id}`);
      const path = `/api/v1/users/${id}`;
      const { identities } = (await cluster.api(`${path}/identities`)).body;
      const [answers] = await Promise.all([
        several(sub),
        cluster.api(`${path}/identities/${identities[0].id}`, { method: "DELETE" }),
      ]);
      // Who is parted is a stranger with the address of a user.
      oneOf([302, 409], answers);
      await hold();
      const gone = `gone-${round}`;
      const { token } = await signIn(gone, round);
      const [again] = await Promise.all([
        several(gone),
        cluster.api(`/api/v1/users/${await userOf(token!)}`, { method: "DELETE" }),
      ]);
      oneOf([302], again);
      await hold();
    }
  }, 300_000);

  test("a role that is deleted is nobody's afterwards", async () => {
    for (let round = 0; round < rounds; round++) {
      const wanted = { name: `role-${round}`, base: "viewer" };
      const { body: role } = await cluster.api("/api/v1/roles", { body: wanted });
      const map = (roles: object[]) =>
        cluster.api(`/api/v1/issuers/${issuer}`, { method: "PATCH", body: { roles } });
      expect((await map([{ value: "eng", role: role.id }])).status).toBe(200);
      const sub = `mapped-${round}`;
      const [answers, removed] = await Promise.all([
        several(sub),
        cluster.api(`/api/v1/roles/${role.id}?force=true`, { method: "DELETE" }),
      ]);
      oneOf([302, 403], answers);
      expect([200, 204]).toContain(removed.status);
      const users = (await cluster.api("/api/v1/users")).body as { role_ids?: string[]; roles: string[] }[];
      expect(JSON.stringify(users)).not.toContain(role.id);
      expect(users.some(({ roles }) => roles.includes(wanted.name))).toBe(false);
      await map([{ value: "eng", role: "developer" }]);
      await hold();
    }
  }, 300_000);

  test("a logout token that comes to both nodes at once counts once, and at both", async () => {
    for (let round = 0; round < rounds; round++) {
      const sub = `out-${round}`;
      const tokens = (await several(sub)).map(({ token }) => token!);
      const logout = await provider.sign({
        ...{ iss: provider.issuer, aud: "svc", iat: Math.floor(Date.now() / 1_000), jti: randomUUID() },
        ...{ sid: `sid-${sub}`, events: { "http://schemas.openid.net/event/backchannel-logout": {} } },
      });
      const send = async (node: TestServer) => {
        const body = new URLSearchParams({ logout_token: logout });
        return (await fetch(`${node.url}/api/v1/auth/oidc/${issuer}/logout`, { method: "POST", body }))
          .status;
      };
      const sent = await Promise.all([nodes[0], nodes[1], nodes[0], nodes[1]].map(send));
      expect(sent.sort()).toEqual([200, 400, 400, 400]);
      for (const node of nodes)
        for (const key of tokens)
          await until(async () => (await node.api("/api/v1/auth/session", { key })).status === 401, {
            ...{ about: "the session to be over", deadlineMs: 5_000 },
          });
      await hold();
    }
  }, 300_000);
});
