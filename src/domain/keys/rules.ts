import { hash } from "node:crypto";
import { Fault, invalid } from "../../kit/fault.ts";

export const tenantKeyPrefix = "ifkey_";
export const platformKeyPrefix = "ifplatform_";
/** Random bytes of a key, after its prefix, as hex. */
export const keyBytes = 16;
/** Longer texts are no keys; they are not even hashed. */
export const keyTextBytesMax = 256;

export const keyHash = (key: string): string => hash("sha256", key, "hex");

const prefixes = [tenantKeyPrefix, platformKeyPrefix];

/** What lists show of a key: its prefix and the first 8 digits. A key of another form shows its first 4 characters. */
export const keyPrefixOf = (key: string): string =>
  key.slice(0, (prefixes.find((prefix) => key.startsWith(prefix))?.length ?? -4) + 8);

/** Texts that callers choose must be as hard to guess as ours. */
export function requireKeyText(field: string, text: string): void {
  if (!/^[\x21-\x7e]{24,200}$/.test(text))
    throw invalid(field, "must be 24 to 200 printable characters without spaces");
}

export const keyTextTaken = (field: string): Fault =>
  new Fault("already_exists", `${field}: is the text of another key`, { field });
