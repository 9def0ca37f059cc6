import { errors, jwtVerify, SignJWT } from "jose";
import type { Instant } from "../../kit/clock.ts";
import type { Keyring } from "../keyring/service.ts";

/** Whose session a token is. Roles are not in it: they are looked up, so that a change of them is obeyed. */
export interface Claims {
  kind: "user" | "platform" | "desktop";
  /** User id; of a desktop session the id of the key it was made with. */
  subject: string;
  issuedAt: Instant;
  expiresAt: Instant;
}

export interface Tokens {
  issue(kind: Claims["kind"], subject: string): Promise<{ token: string; expiresAt: Instant }>;
  /** Undefined for anything that is no valid token of ours, for whatever reason. */
  read(token: string): Promise<Claims | undefined>;
}

const issuer = "svc";
const algorithm = "HS256";
const kinds: readonly string[] = ["user", "platform", "desktop"];
const tokenCharsMax = 2_048;

/** Three dotted base64url parts: what may be a token, before anything is computed. */
export const looksLikeToken = (text: string): boolean =>
  text.length <= tokenCharsMax && /^eyJ[\w-]+\.[\w-]+\.[\w-]+$/.test(text);

export function openTokens(deps: {
  keyring: Pick<Keyring, "current" | "find">;
  now: () => Instant;
  /** How long a session lasts. */
  ttlMs: number;
}): Tokens {
  const { keyring, now, ttlMs } = deps;
  const encoder = new TextEncoder();
  return {
    async issue(kind, subject) {
      const { id, secret } = keyring.current("jwt_secret");
      const at = now();
      const issuedAt = Math.floor(at / 1_000);
      const expiresAt = issuedAt + Math.floor(ttlMs / 1_000);
      const token = await new SignJWT({ kind, at })
        .setProtectedHeader({ alg: algorithm, kid: id, typ: "JWT" })
        .setIssuer(issuer)
        .setSubject(subject)
        .setIssuedAt(issuedAt)
        .setExpirationTime(expiresAt)
        .sign(encoder.encode(secret));
      return { token, expiresAt: expiresAt * 1_000 };
    },

    async read(token) {
      if (!looksLikeToken(token)) return undefined;
      try {
        const { payload } = await jwtVerify(
          token,
          ({ kid }) => {
            const secret = kid === undefined ? undefined : keyring.find("jwt_secret", kid);
            if (secret === undefined) throw new errors.JWKSNoMatchingKey();
            return encoder.encode(secret);
          },
          {
            algorithms: [algorithm],
            issuer,
            currentDate: new Date(now()),
            requiredClaims: ["sub", "iat", "exp", "kind", "at"],
          },
        );
        const { kind, at, sub, exp } = payload;
        if (typeof kind !== "string" || !kinds.includes(kind) || typeof at !== "number") return undefined;
        return {
          kind: kind as Claims["kind"],
          subject: sub!,
          issuedAt: at,
          expiresAt: exp! * 1_000,
        };
      } catch {
        return undefined;
      }
    },
  };
}
