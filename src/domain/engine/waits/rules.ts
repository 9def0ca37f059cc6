import { createHash } from "node:crypto";
import { CelError, compileCel } from "../../../kit/cel/cel.ts";
import { invalid } from "../../../kit/fault.ts";
import type { SeenEvent } from "../../../kit/stored-event.ts";

/** A path is part of an index. */
export const matchPathBytesMax = 512;
/** A signal's name is part of two. */
export const signalNameBytesMax = 200;

/** Which events of a name are meant. */
export type Match =
  | { kind: "any" }
  /** The value at the path equals the triggering event's. */
  | { kind: "trigger"; path: string }
  | { kind: "literal"; path: string; value: unknown }
  | { kind: "cel"; expression: string };

/** The form that is stored and looked up: `path` is '' for any event, `celPath` for an expression. */
export interface StoredMatch {
  path: string;
  valueHash: string;
  expression: string | null;
}

/** No path: paths hold no blank. */
export const celPath = " cel";
export const anyPath = "";

const prefix = /^(?:\$\.|event\.)?data\.(?=.)|^\$\.(?=.)/;
const barePath = /^[\p{L}\p{N}_$-]+(?:\.[\p{L}\p{N}_$-]+)*$/u;
/** Whether a text is a path of names and places, and no expression. */
export const isPath = (text: string): boolean => barePath.test(text);
/** Only what CEL reads as the same comparison: one path of identifiers, one literal without escapes. */
const equality =
  /^\s*((?:\$\.|event\.)?data(?:\.[A-Za-z_]\w*)+)\s*==\s*("[^"\\\r\n]*"|'[^'\\\r\n]*'|-?\d{1,15}(?:\.\d{1,15})?|true|false|null)\s*$/;
const variables = ["event", "data"];

/**
 * Reads a `match`: nothing, a path with or without `data.`, `event.data.`, `$.data.` or `$.`, an equality, or
 * any other CEL expression over `data` and `event`. `literal` is what the value at a path shall be instead of
 * the triggering event's. Throws CelError that says what is wrong.
 */
export function readMatch(text: string | undefined, literal?: { value: unknown }): Match {
  const match = text?.trim() ?? "";
  if (match === "") {
    if (literal) throw new CelError("a value to match needs a path");
    return { kind: "any" };
  }
  if (match.includes("\0")) throw new CelError("must not contain NUL");
  const [, left, right] = equality.exec(match) ?? [];
  const path = (left ?? match).replace(prefix, "");
  const isBare = isPath(match);
  if ((isBare || left !== undefined) && Buffer.byteLength(path) > matchPathBytesMax)
    throw new CelError(`a path has at most ${matchPathBytesMax} bytes`);
  if (isBare) {
    return literal ? { kind: "literal", path, value: literal.value } : { kind: "trigger", path };
  }
  if (literal) throw new CelError("a value to match needs a path, not an expression");
  if (right !== undefined) return { kind: "literal", path, value: literalOf(right) };
  compileCel(match, { variables, result: "bool" });
  return { kind: "cel", expression: match };
}

function literalOf(text: string): unknown {
  if (/^["']/.test(text)) return text.slice(1, -1);
  return /\d/.test(text) ? Number(text) : JSON.parse(text);
}

/** What is looked up for this match; undefined when the triggering event has nothing at the path. */
export function storedMatch(match: Match, triggerData: unknown): StoredMatch | undefined {
  switch (match.kind) {
    case "any":
      return { path: anyPath, valueHash: "", expression: null };
    case "cel":
      return { path: celPath, valueHash: "", expression: match.expression };
    case "literal":
      return { path: match.path, valueHash: hashOfValue(match.value), expression: null };
    case "trigger": {
      const value = valueAt(triggerData, match.path);
      return value === undefined
        ? undefined
        : { path: match.path, valueHash: hashOfValue(value), expression: null };
    }
  }
}

/** The value at a path of own keys and places in lists; undefined when there is none. */
export function valueAt(data: unknown, path: string): unknown {
  let value = data;
  for (const key of path.split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}

/** Equal JSON values have equal hashes, whatever the order of their keys. */
export const hashOfValue = (value: unknown): string =>
  createHash("sha256").update(JSON.stringify(value, sorted)).digest("hex").slice(0, 32);

function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)));
}

/** The hash to look up under a path for an event; undefined when the event has nothing there. */
export function hashAt(data: unknown, path: string): string | undefined {
  if (path === anyPath) return "";
  const value = valueAt(data, path);
  return value === undefined ? undefined : hashOfValue(value);
}

/** Whether an expression holds for an event; one that fails does not. */
export function holds(expression: string, event: SeenEvent): boolean {
  try {
    const program = compileCel(expression, { variables, result: "bool" });
    return (
      program.run({ event: { ...event, timestamp: new Date(event.timestamp) }, data: event.data }) === true
    );
  } catch {
    return false;
  }
}

/** What must be true of an entity (`reaches`), of a run (`ends`), of a key, or of a signal (`sent`). */
export type StateTest = "reaches" | "ends" | "changed" | "equals" | "exists" | "absent" | "sent";

/** A condition on what stands somewhere, and not on an event. */
export interface StateCondition {
  /** `stream`, `run`, `signal`, or that of a bucket. */
  place: string;
  /** The entity, the run, the name of the signal or the key. */
  subject: string;
  test: StateTest;
  /** The version to reach, or the revision after which the key changes. */
  bound: number | null;
  /** The value to equal, in base64. */
  wanted: string | null;
}

export const streamPlace = "stream";
export const runPlace = "run";
/** What was sent to the run that waits. */
export const signalPlace = "signal";
const keyPrefix = "key:";
export const placeOfBucket = (bucket: string): string => keyPrefix + bucket;
/** Undefined of a place that is no bucket's. */
export const bucketOf = (place: string): string | undefined =>
  place.startsWith(keyPrefix) ? place.slice(keyPrefix.length) : undefined;

/** As history and errors name it; the blank tells it from the name of an event. */
export function nameOfState({ place, subject }: Pick<StateCondition, "place" | "subject">): string {
  const bucket = bucketOf(place);
  return bucket === undefined ? `${place} ${subject}` : `key ${bucket}/${subject}`;
}

/** Throws the fault that names the field. */
export function requireSignalName(field: string, name: string): void {
  if (name === "") throw invalid(field, "is required");
  if (Buffer.byteLength(name) > signalNameBytesMax)
    throw invalid(field, `at most ${signalNameBytesMax} bytes`);
  if (/\p{Cc}/u.test(name) || !name.isWellFormed())
    throw invalid(field, "must not contain control characters");
}
