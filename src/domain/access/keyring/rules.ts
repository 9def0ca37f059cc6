import { createCipheriv, createDecipheriv, hash, hkdfSync } from "node:crypto";
import { type Fault, invalid, tryAgain } from "../../../kit/fault.ts";

/** Secrets of the whole installation that can be rotated while it runs. */
export type RingKind = "jwt_secret" | "platform_jwt_secret" | "signing_key" | "audit_key";
export const ringKinds: readonly RingKind[] = [
  "jwt_secret",
  "platform_jwt_secret",
  "signing_key",
  "audit_key",
];

/**
 * Nodes of the previous release do not know these kinds, and leave them sealed under the old master key when
 * they rotate it. A secret that cannot be opened is replaced, which ends the platform's sessions and nothing
 * else.
 */
export const replaceableKinds: readonly RingKind[] = ["platform_jwt_secret"];

/** Never purged: their signatures are checked for as long as the signed rows are kept. */
export const lastingKinds: readonly RingKind[] = ["audit_key"];

/** A master key as settings and callers write it: 32 bytes in hex. */
export const masterKeyPattern = /^[0-9a-fA-F]{64}$/;

export const nonceBytes = 12;
const tagBytes = 16;

/** Identifies a secret without revealing it: secrets are random and have 32 bytes or more. */
export const fingerprintOf = (secret: string): string =>
  hash("sha256", `svc keyring ${secret}`, "hex").slice(0, 16);

const cipherKey = (masterKey: string): Buffer =>
  Buffer.from(hkdfSync("sha256", Buffer.from(masterKey, "hex"), "", "svc sealed values", 32));

/**
 * AES-256-GCM under a key derived from the master key: `{version}.{nonce}.{ciphertext and tag}`, base64url.
 * `place` is authenticated with it, so that a sealed value cannot be moved to another row.
 */
export function seal(
  masterKey: string,
  version: number,
  place: string,
  text: string,
  nonce: Uint8Array,
): string {
  const cipher = createCipheriv("aes-256-gcm", cipherKey(masterKey), nonce);
  cipher.setAAD(Buffer.from(place));
  const sealed = Buffer.concat([cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]);
  return `${version}.${Buffer.from(nonce).toString("base64url")}.${sealed.toString("base64url")}`;
}

/** Version of the master key that a value is sealed under. */
export const sealVersion = (sealed: string): number => Number(/^(\d+)\./.exec(sealed)?.[1] ?? Number.NaN);

/** Undefined when the key is another one, or the value was changed or moved. */
export function unseal(masterKey: string, place: string, sealed: string): string | undefined {
  const [, nonceText = "", bodyText = ""] = sealed.split(".");
  const nonce = Buffer.from(nonceText, "base64url");
  const body = Buffer.from(bodyText, "base64url");
  if (nonce.length !== nonceBytes || body.length < tagBytes) return undefined;
  const decipher = createDecipheriv("aes-256-gcm", cipherKey(masterKey), nonce);
  decipher.setAAD(Buffer.from(place));
  decipher.setAuthTag(body.subarray(-tagBytes));
  try {
    return Buffer.concat([decipher.update(body.subarray(0, -tagBytes)), decipher.final()]).toString("utf8");
  } catch {
    return undefined;
  }
}

export function requireMasterKey(field: string, text: string): string {
  if (!masterKeyPattern.test(text)) throw invalid(field, "a master key is 32 bytes in hex, 64 characters");
  return text.toLowerCase();
}

export function requireRingSecret(field: string, text: string): string {
  if (!/^[\x21-\x7e]{32,512}$/.test(text))
    throw invalid(field, "must be 32 to 512 printable characters without spaces");
  return text;
}

export const sealedElsewhere = (): Fault =>
  tryAgain("unavailable", "the installation's secrets are being re-sealed, try again");
