import { createHash } from "node:crypto";
import { valueAt } from "../../../kit/data-path.ts";
import { sleepMsMax } from "../../../kit/limits.ts";

/** A longer value is replaced by its hash. */
const debounceKeyBytesMax = 512;

/** The key of events without a value at the key's path, and of functions without a key. */
export const sharedKey = "__global__";

/** Stored when there is no `maxWaitMs`: an entry that is armed again and again then never fires. */
export const noMaxWaitMs = 100 * sleepMsMax;

/** What the value was in its event: a text, another value, or none. */
export type KeyKind = "text" | "value" | "none";

const none = { key: sharedKey, kind: "none" } as const;

/**
 * The value at a path of the event's data, as text: `userId`, `data.userId`, `items.0.id`. Objects are
 * written as JSON; a value that is too long for a key is replaced by its hash. Where there is none at
 * `event.userId`, the path means `userId`.
 */
export function keyOf(path: string | undefined, data: unknown): { key: string; kind: KeyKind } {
  if (path === undefined) return none;
  const value = valueAt(data, path) ?? valueAt(data, path.replace(/^event\./, ""));
  if (value === undefined || value === "") return none;
  const isText = typeof value === "string";
  const text = isText ? (value as string).toWellFormed().replaceAll("\0", "\uFFFD") : JSON.stringify(value);
  const key = Buffer.byteLength(text) <= debounceKeyBytesMax ? text : `sha256:${hashOf(text)}`;
  return { key, kind: isText ? "text" : "value" };
}

export const debounceKey = (path: string | undefined, data: unknown): string => keyOf(path, data).key;

export interface EntryKey {
  environmentId: string;
  functionId: string;
  key: string;
}

/** Id of the entry of a function and key: one column, so that both engines find it by the primary key. */
export const entryIdOf = ({ environmentId, functionId, key }: EntryKey): string =>
  hashOf(`${environmentId}\n${functionId}\n${key}`);

/**
 * Id of the entry of a key that looks like that of another kind: of a value, and of the text that stands for
 * none. Null for others.
 */
export const apartIdOf = (entry: EntryKey, kind: KeyKind): string | null =>
  kind === "value" || (kind === "text" && entry.key === sharedKey)
    ? hashOf(`${entry.environmentId}\n${entry.functionId}\n${entry.key}\n${kind}`)
    : null;

/** The ids of all entries that are shown with a key. */
export const entryIdsOf = (entry: EntryKey): string[] => [
  entryIdOf(entry),
  ...(["value", "text"] as const).flatMap((kind) => apartIdOf(entry, kind) ?? []),
];

const hashOf = (text: string): string => createHash("sha256").update(text).digest("hex");
