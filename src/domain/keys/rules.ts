import { hash } from "node:crypto";

export const tenantKeyPrefix = "ifkey_";
/** Random bytes of a key, after its prefix, as hex. */
export const keyBytes = 16;
/** Longer texts are no keys; they are not even hashed. */
export const keyTextBytesMax = 256;

export const keyHash = (key: string): string => hash("sha256", key, "hex");

/** What lists show of a key: its prefix and the first 8 digits. A key of another form shows its first 4 characters. */
export const keyPrefixOf = (key: string): string =>
  key.slice(0, key.startsWith(tenantKeyPrefix) ? tenantKeyPrefix.length + 8 : 4);
