import { createHash } from "node:crypto";
import { sleepMsMax } from "../../../kit/limits.ts";

/** A longer value is replaced by its hash. */
const debounceKeyBytesMax = 512;

/** The key of events without a value at the key's path, and of functions without a key. */
export const sharedKey = "__global__";

/** Stored when there is no `maxWaitMs`: an entry that is armed again and again then never fires. */
export const noMaxWaitMs = 100 * sleepMsMax;

/**
 * The value at a path of the event's data, as text: `userId`, `data.userId`, `items.0.id`. Objects are
 * written as JSON; a value that is too long for a key is replaced by its hash.
 */
export function debounceKey(path: string | undefined, data: unknown): string {
  if (path === undefined) return sharedKey;
  let value = data;
  for (const part of path.replace(/^(\$\.|event\.)?(data\.)?/, "").split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, part)) return sharedKey;
    value = (value as Record<string, unknown>)[part];
  }
  if (value === null || value === undefined || value === "") return sharedKey;
  const text =
    typeof value === "string" ? value.toWellFormed().replaceAll("\0", "\uFFFD") : JSON.stringify(value);
  return Buffer.byteLength(text) <= debounceKeyBytesMax ? text : `sha256:${hashOf(text)}`;
}

/** Id of the entry of a function and key: one column, so that both engines find it by the primary key. */
export const entryIdOf = (environmentId: string, functionId: string, key: string): string =>
  hashOf(`${environmentId}\n${functionId}\n${key}`);

const hashOf = (text: string): string => createHash("sha256").update(text).digest("hex");
