import { randomUUID } from "node:crypto";
import { exportJWK, exportSPKI, generateKeyPair, type JWTPayload, SignJWT } from "jose";
import { TestBrowser } from "./oidc.ts";

/** What a provider that lies or fails answers; each may be replaced. */
export interface Answers {
  discovery: () => unknown;
  keys: () => unknown;
  /** Of the token endpoint, with the form that was sent. */
  token: (form: URLSearchParams) => unknown;
  userinfo: () => unknown;
}

export type HostileProvider = Awaited<ReturnType<typeof startHostileProvider>>;

const kid = "one";

/** Answers of a provider as a test wants them: a value is JSON with status 200, a Response goes as it is. */
export async function startHostileProvider() {
  const algorithm = "RS256";
  const { publicKey, privateKey } = await generateKeyPair(algorithm, { extractable: true });
  const stranger = await generateKeyPair(algorithm);
  const publicText = await exportSPKI(publicKey);
  const jwk = { ...(await exportJWK(publicKey)), kid, alg: algorithm, use: "sig" };
  const strangersJwk = await exportJWK(stranger.publicKey);
  const asked: string[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const { pathname } = new URL(request.url);
      asked.push(pathname);
      const answer =
        pathname === "/.well-known/openid-configuration"
          ? answers.discovery()
          : pathname === "/keys"
            ? answers.keys()
            : pathname === "/token"
              ? answers.token(new URLSearchParams(await request.text()))
              : pathname === "/me"
                ? answers.userinfo()
                : new Response("none", { status: 404 });
      const made = await answer;
      return made instanceof Response ? made : Response.json(made);
    },
  });
  const issuer = `http://127.0.0.1:${server.port}`;
  const discovery = {
    issuer,
    authorization_endpoint: `${issuer}/authorize`,
    token_endpoint: `${issuer}/token`,
    userinfo_endpoint: `${issuer}/me`,
    jwks_uri: `${issuer}/keys`,
  };
  const honest: Answers = {
    discovery: () => discovery,
    keys: () => ({ keys: [jwk] }),
    token: () => ({ error: "invalid_grant" }),
    userinfo: () => ({}),
  };
  const answers: Answers = { ...honest };

  /** Signed by the provider's key unless told otherwise. */
  const sign = (
    claims: JWTPayload,
    { key = privateKey as CryptoKey | Uint8Array, alg = algorithm, of = kid } = {},
  ) => new SignJWT(claims).setProtectedHeader({ alg, kid: of }).sign(key);
  const plain = (part: object) => Buffer.from(JSON.stringify(part)).toString("base64url");
  return {
    ...{ issuer, discovery, honest, answers, asked, jwk, sign, strangersKey: stranger.privateKey },
    /** `alg: none`. */
    unsigned: (claims: object) => `${plain({ alg: "none", kid })}.${plain(claims)}.`,
    /** HS256 with what everybody knows as the secret. */
    signedByPublicKey: (claims: JWTPayload) =>
      sign(claims, { key: new TextEncoder().encode(publicText), alg: "HS256" }),
    /** Signed by a stranger, whose key is in the token. */
    withItsKey: (claims: JWTPayload) =>
      new SignJWT(claims).setProtectedHeader({ alg: algorithm, jwk: strangersJwk }).sign(stranger.privateKey),
    behave: () => void Object.assign(answers, honest),
    stop: () => server.stop(true),
  };
}

/** Makes the ID token of a sign-in of what an honest one would say. */
export type TokenMade = (claims: JWTPayload) => unknown;
export type SignIns = ReturnType<typeof openSignIns>;

/** Sign-ins at the server's page `start` that come back with a code. */
export function openSignIns(provider: HostileProvider, clientId: string) {
  let caller = 0;
  const codes = new Map<string, () => Promise<object>>();
  return async (token: TokenMade, start: string) => {
    const browser = new TestBrowser();
    const begun = await browser.go(start);
    const sent = new URL(begun.headers.get("location")!).searchParams;
    const now = Math.floor(Date.now() / 1_000);
    const claims = {
      ...{ iss: provider.issuer, aud: clientId, sub: "ada", nonce: sent.get("nonce")! },
      ...{ iat: now, exp: now + 300, email: "ada@first.example", groups: ["eng"] },
    };
    const code = randomUUID();
    codes.set(code, async () => ({ id_token: await token(claims), access_token: "access" }));
    provider.answers.token = (form) => codes.get(form.get("code")!)?.();
    const callback = `${start.replace(/start$/, "callback")}?code=${code}&state=${sent.get("state")}`;
    // Each from an address of its own: guesses are limited.
    const cookie = [...browser.cookies(start)].map(([name, value]) => `${name}=${value}`).join("; ");
    const headers = { cookie, "x-forwarded-for": `10.0.${caller >> 8}.${caller++ & 255}` };
    /** Comes back to the server, each time that it is called. */
    return async () => {
      const response = await fetch(callback, { redirect: "manual", headers });
      const text = await response.text();
      const session = /svc_dashboard_token=([^;]+)/.exec(response.headers.get("set-cookie") ?? "")?.[1];
      return { status: response.status, text, session };
    };
  };
}

export const logoutEvent = "http://schemas.openid.net/event/backchannel-logout";

/** The claims of a logout token that names these. */
export const logoutOf = ({ issuer }: HostileProvider, clientId: string, names: object) => ({
  ...{ iss: issuer, aud: clientId, iat: Math.floor(Date.now() / 1_000), jti: randomUUID() },
  ...{ events: { [logoutEvent]: {} }, ...names },
});

/** Sends it to the issuer with this page `start`; answers the status. */
export async function sendLogout(start: string, token: unknown): Promise<number> {
  const body = new URLSearchParams({ logout_token: String(token) });
  return (await fetch(start.replace(/start$/, "logout"), { method: "POST", body })).status;
}
