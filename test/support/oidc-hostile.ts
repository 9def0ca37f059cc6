import { exportJWK, exportSPKI, generateKeyPair, type JWTPayload, SignJWT } from "jose";

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
