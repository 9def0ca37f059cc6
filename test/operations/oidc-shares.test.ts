import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { exchangesMax, exchangesOfAllMax, issuersMax } from "../../src/domain/access/issuers/limits.ts";
import { TestBrowser } from "../support/oidc.ts";
import { type HostileProvider, sendLogout, startHostileProvider } from "../support/oidc-hostile.ts";
import { startOrgs } from "../support/oidc-orgs.ts";
import { engines, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

// A server of its own: its places for sign-ins are all taken.
describe.each(engines)("sign-ins of several orgs on %s", (engine) => {
  let server: TestServer;
  let orgs: Awaited<ReturnType<typeof startOrgs>>;
  const providers: HostileProvider[] = [];
  beforeAll(async () => {
    orgs = await startOrgs({ engine });
    server = orgs.server;
  }, 120_000);
  afterAll(async () => {
    await server?.stop();
    for (const provider of providers) provider.stop();
  });

  const issuerOf = async (key: string) => {
    const provider = await startHostileProvider();
    providers.push(provider);
    const body = { name: "Login", issuer: provider.issuer, client_id: "svc" };
    const { id } = (await server.api("/api/v1/issuers", { key, body })).body;
    return { provider, start: `${server.url}/api/v1/auth/oidc/${id}/start` };
  };

  test("providers of one org that hang leave room for the sign-ins of others", async () => {
    const hanging = await Promise.all(Array.from({ length: issuersMax }, () => issuerOf(orgs.first.key)));
    const others = await issuerOf(orgs.second.key);
    const { promise: keys, resolve } = Promise.withResolvers<object>();
    for (const { provider } of hanging) provider.answers.keys = () => keys;
    const statuses: number[] = [];
    const asked = hanging.flatMap(({ start }) =>
      Array.from({ length: exchangesMax }, async () => statuses.push(await sendLogout(start, "x.y.z"))),
    );
    const most = (3 * exchangesOfAllMax) / 4;
    await until(() => statuses.length === asked.length - most, { about: "refusals" });
    expect(new Set(statuses)).toEqual(new Set([429]));
    expect((await new TestBrowser().go(others.start)).status).toBe(302);
    resolve({ keys: [] });
    await Promise.all(asked);
    expect(statuses.filter((status) => status === 400)).toHaveLength(most);
  }, 60_000);
});
