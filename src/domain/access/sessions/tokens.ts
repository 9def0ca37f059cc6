import type { Instant } from "../../../kit/clock.ts";
import type { Keyring } from "../keyring/service.ts";
import type { Issued, SessionKind } from "./register.ts";

/** What a token says. It has no roles: they are looked up, so that a change of roles takes effect at once. */
export interface TokenClaims {
  kind: SessionKind;
  /** User id; of a desktop session the id of the key it was made with. */
  subject: string;
  /** Names the session's row. */
  sid: string;
  expiresAt: Instant;
}

export type Tokens = ReturnType<typeof openTokens>;

const issuer = "svc";
const algorithm = "HS256";
const tokenCharsMax = 2_048;
/** Tokens whose signature was verified, at a node. */
const verifiedMax = 10_000;

/** Platform tokens have a secret of their own: a leaked tenant secret cannot sign them. */
const secretOf = { user: "jwt_secret", desktop: "jwt_secret", platform: "platform_jwt_secret" } as const;
const isKind = (kind: unknown): kind is SessionKind =>
  typeof kind === "string" && Object.hasOwn(secretOf, kind);

/** Three dotted base64url parts: what may be a token, before anything is computed. */
export const looksLikeToken = (text: string): boolean =>
  text.length <= tokenCharsMax && /^eyJ[\w-]+\.[\w-]+\.[\w-]+$/.test(text);

/** Loaded by the first login, or by the first token after a start. */
const jose = () => import("jose");

export function openTokens(deps: { keyring: Pick<Keyring, "current" | "find">; now: () => Instant }) {
  const { keyring, now } = deps;
  const encoder = new TextEncoder();
  /** What verified tokens say, with the secret that signed them: valid while the keyring has that secret. */
  const verified = new Map<string, { claims: TokenClaims; kid: string; secret: string }>();

  function ofVerified(token: string): TokenClaims | undefined {
    const known = verified.get(token);
    if (!known) return undefined;
    const { claims, kid, secret } = known;
    if (claims.expiresAt > now() && keyring.find(secretOf[claims.kind], kid) === secret) return claims;
    verified.delete(token);
    return undefined;
  }

  return {
    async sign({ kind, subjectId, sid, createdAt, expiresAt }: Issued) {
      const { id, secret } = keyring.current(secretOf[kind]);
      const { SignJWT } = await jose();
      const token = await new SignJWT({ kind, at: createdAt, sid })
        .setProtectedHeader({ alg: algorithm, kid: id, typ: "JWT" })
        .setIssuer(issuer)
        .setSubject(subjectId)
        .setIssuedAt(Math.floor(createdAt / 1_000))
        .setExpirationTime(Math.floor(expiresAt / 1_000))
        .sign(encoder.encode(secret));
      return { token, expiresAt };
    },

    /** Undefined for anything that is not a valid token of this installation. */
    async read(token: string): Promise<TokenClaims | undefined> {
      if (!looksLikeToken(token)) return undefined;
      const known = ofVerified(token);
      if (known) return known;
      const { decodeJwt, errors, jwtVerify } = await jose();
      try {
        // Not verified yet: the kind only selects the secret that must have signed it.
        const { kind } = decodeJwt(token);
        if (!isKind(kind)) return undefined;
        let signed: { kid: string; secret: string } | undefined;
        const { payload } = await jwtVerify(
          token,
          ({ kid }) => {
            const secret = kid === undefined ? undefined : keyring.find(secretOf[kind], kid);
            if (kid === undefined || secret === undefined) throw new errors.JWKSNoMatchingKey();
            signed = { kid, secret };
            return encoder.encode(secret);
          },
          {
            algorithms: [algorithm],
            issuer,
            currentDate: new Date(now()),
            requiredClaims: ["sub", "iat", "exp", "kind", "sid"],
          },
        );
        const { sid, sub, exp } = payload;
        if (payload.kind !== kind || typeof sid !== "string") return undefined;
        const claims = { kind, subject: sub!, sid, expiresAt: exp! * 1_000 };
        if (verified.size >= verifiedMax) verified.delete(verified.keys().next().value!);
        verified.set(token, { claims, ...signed! });
        return claims;
      } catch {
        return undefined;
      }
    },
  };
}
