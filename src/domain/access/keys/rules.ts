import { hash } from "node:crypto";
import { Fault, invalid } from "../../../kit/fault.ts";

export const tenantKeyPrefix = "ifkey_";
export const platformKeyPrefix = "ifplatform_";
/** Random bytes of a key, after its prefix, as hex. */
export const keyBytes = 16;
/** Longer texts are no keys; they are not even hashed. */
export const keyTextBytesMax = 256;

export const keyHash = (key: string): string => hash("sha256", key, "hex");

/**
 * What lists show of a key: its prefix and the first 8 digits. A key of another form shows its first 4
 * characters.
 */
export function keyPrefixOf(key: string): string {
  const prefix = [tenantKeyPrefix, platformKeyPrefix].find((one) => key.startsWith(one));
  return key.slice(0, prefix === undefined ? 4 : prefix.length + 8);
}

/** `720h`, `30m`, `90s`, `7d` in milliseconds, or compounds such as `1h30m`. */
export function readDuration(field: string, text: string): number {
  const units: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)];
  if (parts.length === 0 || parts.map(([part]) => part).join("") !== text)
    throw invalid(field, "must be a duration such as 720h");
  const ms = parts.reduce((sum, [, amount, unit]) => sum + Number(amount) * units[unit!]!, 0);
  if (ms <= 0 || ms > durationMsMax) throw invalid(field, "must be above zero and at most 100 years");
  return Math.round(ms);
}

const durationMsMax = 100 * 366 * 86_400_000;

/** Texts that callers choose must be as hard to guess as ours. */
export function requireKeyText(field: string, text: string): void {
  if (!/^[\x21-\x7e]{24,200}$/.test(text))
    throw invalid(field, "must be 24 to 200 printable characters without spaces");
}

export const keyTextTaken = (field: string): Fault =>
  new Fault("already_exists", `${field}: already used by another key`, { field });
