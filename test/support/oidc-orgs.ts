import { TestBrowser, type TestProvider } from "./oidc.ts";
import { startTestServer, type TestServer, type TestServerOptions } from "./server.ts";
import { until } from "./until.ts";

export const platformLogin = { email: "root@platform.example", password: "correct horse battery" };

/** A server that may call loopback, with a platform admin and a second org. */
export async function startOrgs(options: TestServerOptions) {
  const server = await startTestServer({
    ...options,
    settings: { pushAllowPrivate: ["127.0.0.0/8"], ...options.settings },
  });
  await server.api("/api/v1/platform/bootstrap", { body: { ...platformLogin, name: "Root" } });
  const { body } = await server.api("/api/v1/platform/auth/login", { key: null, body: platformLogin });
  const platform: string = body.token;
  const provisioned = await server.api("/api/v1/tenants/provision", {
    ...{ key: platform, headers: { "x-svc-org": "org_default" } },
    body: { org_name: "Second" },
  });
  return {
    server,
    platform,
    first: { org: "org_default", key: server.adminKey },
    second: { org: provisioned.body.org.id as string, key: provisioned.body.api_key.key as string },
  };
}

export interface MadeIssuer {
  id: string;
  callback: string;
  start: string;
}

export interface IssuerWanted {
  key: string;
  /** `/api/v1/issuers` of the key's org when left out. */
  path?: string;
  roles?: { value: string; role: string }[];
  more?: object;
}

/** An issuer of the org of this key, registered at the provider. */
export async function addIssuer(
  server: TestServer,
  provider: TestProvider,
  { key, path = "/api/v1/issuers", roles = [], more = {} }: IssuerWanted,
): Promise<MadeIssuer> {
  const { client, issuer } = provider;
  const { status, body } = await server.api(path, {
    key,
    body: { name: "Login", issuer, client_id: client.id, client_secret: client.secret, roles, ...more },
  });
  if (status !== 201) throw new Error(`no issuer: ${status} ${JSON.stringify(body)}`);
  provider.register(`${server.url}${body.callback_path}`, `${server.url}${body.logout_path}`);
  return {
    id: body.id,
    callback: `${server.url}${body.callback_path}`,
    start: `${server.url}/api/v1/auth/oidc/${body.id}/start`,
  };
}

/** Signs in as this person and comes back to the server; the browser then has a session, or the answer says why not. */
export async function signInAt(
  server: TestServer,
  issuer: MadeIssuer,
  sub: string,
  { browser = new TestBrowser(), returnTo = "" } = {},
) {
  const from = `${issuer.start}${returnTo && `?return_to=${encodeURIComponent(returnTo)}`}`;
  const back = await browser.signIn(from, sub, (url) => url.startsWith(issuer.callback));
  const response = await browser.go(back);
  const text = await response.text();
  return {
    ...{ browser, back, status: response.status, location: response.headers.get("location") },
    error: text.startsWith("{") ? (JSON.parse(text) as { error: string; message: string }) : undefined,
    token: browser.cookies(server.url).get("svc_dashboard_token"),
  };
}

/** Waits until the session is believed no more. */
export const whenEnded = (server: TestServer, token: string): Promise<unknown> =>
  until(async () => (await server.api("/api/v1/auth/session", { key: token })).status === 401, {
    about: "the session is over",
  });
