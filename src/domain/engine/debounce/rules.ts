import { createHash } from "node:crypto";
import { debounceKeyBytesMax, sleepMsMax } from "../../../kit/limits.ts";

/** The lane of events in which the key's path leads nowhere, and of functions without one. */
export const sharedKey = "__global__";

/** Stands for no `maxWaitMs`: an entry that is armed again and again fires never. */
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

/** Where the entry of a function and key stands: one column that both engines find it by. */
export const entryIdOf = (environmentId: string, functionId: string, key: string): string =>
  hashOf(`${environmentId}\n${functionId}\n${key}`);

const hashOf = (text: string): string => createHash("sha256").update(text).digest("hex");
