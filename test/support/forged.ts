import { decodeJwt, decodeProtectedHeader, SignJWT } from "jose";

/** What a genuine token says. */
export const claimsOf = (token: string) => decodeJwt(token);
export const keyIdOf = (token: string): string => decodeProtectedHeader(token).kid ?? "";

/** A token as the server would sign it, by whoever knows the secret. */
export function forged(
  secret: string,
  keyId: string,
  { sub, ...claims }: { sub: string; kind: string; sid?: string },
): Promise<string> {
  const at = Date.now();
  const seconds = Math.floor(at / 1_000);
  return new SignJWT({ at, ...claims })
    .setProtectedHeader({ alg: "HS256", kid: keyId, typ: "JWT" })
    .setIssuer("svc")
    .setSubject(sub)
    .setIssuedAt(seconds)
    .setExpirationTime(seconds + 3_600)
    .sign(new TextEncoder().encode(secret));
}
