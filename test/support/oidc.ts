import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { freePort } from "./process.ts";

/** As much of the package as tests use; it comes without types. */
interface PackagedProvider {
  callback(): (request: IncomingMessage, response: ServerResponse) => void;
}
const packageName: string = "oidc-provider";
const { default: Provider } = (await import(packageName)) as {
  default: new (issuer: string, configuration: object) => PackagedProvider;
};

/** What a provider says of one of its people; `sub` is the name that is typed at its sign-in page. */
export interface ProviderAccount {
  email?: unknown;
  email_verified?: unknown;
  name?: unknown;
  groups?: unknown;
}

export interface TestProvider {
  issuer: string;
  client: { id: string; secret: string };
  /** May be changed: what counts is what is said at the next sign-in. */
  accounts: Record<string, ProviderAccount>;
  /** Registers where the client may be sent back to. */
  register(redirectUri: string, logoutUri: string): void;
  stop(): Promise<void>;
}

/** `oidc-provider` of npm, with one client and the sign-in pages that it brings. */
export async function startProvider(accounts: Record<string, ProviderAccount>): Promise<TestProvider> {
  const port = await freePort();
  const issuer = `http://127.0.0.1:${port}`;
  const client = { id: "svc", secret: "a secret of the client & more" };
  const uris = { redirect: `${issuer}/none`, logout: undefined as string | undefined };
  let handle: ReturnType<PackagedProvider["callback"]> | undefined;
  const open = () => {
    const provider = new Provider(issuer, {
      clients: [
        {
          client_id: client.id,
          client_secret: client.secret,
          redirect_uris: [uris.redirect],
          post_logout_redirect_uris: [new URL("/dashboard/", uris.redirect).href],
          grant_types: ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"],
          ...(uris.logout && {
            backchannel_logout_uri: uris.logout,
            backchannel_logout_session_required: true,
          }),
        },
      ],
      cookies: { keys: ["a key of the provider"] },
      claims: {
        openid: ["sub"],
        email: ["email", "email_verified"],
        profile: ["name", "groups"],
      },
      features: { deviceFlow: { enabled: true }, backchannelLogout: { enabled: true } },
      pkce: { required: () => true },
      fetch: (url: string, options: object) => fetch(url, options),
      findAccount: (_: unknown, sub: string) =>
        Object.hasOwn(accounts, sub)
          ? { accountId: sub, claims: () => ({ sub, ...accounts[sub] }) }
          : undefined,
      ttl: {
        Session: 3_600,
        Grant: 3_600,
        Interaction: 3_600,
        IdToken: 3_600,
        AccessToken: 3_600,
        DeviceCode: 600,
      },
    });
    handle = provider.callback();
  };
  open();
  const server = createServer((request, response) => handle!(request, response));
  await new Promise<void>((listening) => server.listen(port, "127.0.0.1", listening));
  return {
    issuer,
    client,
    accounts,
    register(redirectUri, logoutUri) {
      uris.redirect = redirectUri;
      uris.logout = logoutUri;
      open();
    },
    stop: () =>
      new Promise((stopped) => {
        server.closeAllConnections();
        server.close(() => stopped());
      }),
  };
}

/** A browser that keeps cookies and follows redirects by itself, to see what each answer says. */
export class TestBrowser {
  readonly #jars = new Map<string, Map<string, string>>();

  cookies(url: string): Map<string, string> {
    const { origin } = new URL(url);
    const jar = this.#jars.get(origin) ?? new Map<string, string>();
    this.#jars.set(origin, jar);
    return jar;
  }

  async go(url: string, form?: Record<string, string>): Promise<Response> {
    const jar = this.cookies(url);
    const response = await fetch(url, {
      redirect: "manual",
      headers: { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join("; ") },
      ...(form && { method: "POST", body: new URLSearchParams(form) }),
    });
    for (const text of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(text)!;
      if (value === "" || /expires=Thu, 01 Jan 1970|Max-Age=0/i.test(text)) jar.delete(name!);
      else jar.set(name!, value!);
    }
    return response;
  }

  /** Follows redirects, types `sub` where the provider asks who it is and consents; ends where `isEnd` says. */
  async signIn(from: string, sub: string, isEnd: (url: string) => boolean): Promise<string> {
    let url = from;
    let response = await this.go(url);
    for (let steps = 0; steps < 30; steps++) {
      const location = response.headers.get("location");
      if (location !== null) {
        url = new URL(location, url).href;
        if (isEnd(url)) return url;
        response = await this.go(url);
        continue;
      }
      const page = await response.text();
      const action = /<form[^>]*action="([^"]+)"/.exec(page)?.[1];
      if (action === undefined)
        throw new Error(`no form at ${url}: ${response.status} ${page.slice(0, 500)}`);
      const hidden = [...page.matchAll(/<input type="hidden" name="(\w+)" value="([^"]*)"/g)];
      const fields = Object.fromEntries(hidden.map(([, name, value]) => [name!, value!]));
      if (/name="login"/.test(page)) Object.assign(fields, { login: sub, password: "any" });
      if (isEnd(`form ${Object.keys(fields).join(" ")}`)) return page;
      url = new URL(action, url).href;
      response = await this.go(url, fields);
    }
    throw new Error(`the sign-in does not end: ${url}`);
  }
}
