import { bodyOf } from "../client/client-kv.ts";
import { requireKnown } from "../wire/known-options.ts";
import type { Condition, KeyCondition } from "../wire/wire.ts";

const equalBytesMax = 1_024;

/** What tells of each kind whether it is met. */
export const testsOf = {
  event: { match: true, matchValue: true },
  stream: { version: true, after: true },
  key: { bucket: true, after: true, equals: true, exists: true, deleted: true },
  run: {},
} as const;

/** The condition of a step as it is sent. Throws TypeError that names what is wrong; `at` says where. */
export function conditionOf(at: string, name: string, given: unknown): Condition {
  const one = (typeof given === "object" && given !== null ? given : {}) as Record<string, unknown>;
  const kind = onlyOf(at, one, ["event", "stream", "key", "run"]);
  // Types do not tell: a `match` that is misspelt would let any event of the name through.
  requireKnown(at, one, { [kind]: true, ...testsOf[kind] });
  switch (kind) {
    case "event":
      return {
        name,
        event: textOf(`${at}.event`, one.event),
        ...(one.match !== undefined && { match: one.match as string }),
        ...matchedValue(one.matchValue),
      };
    case "stream": {
      const state = onlyOf(at, one, ["version", "after"]);
      const number = countOf(`${at}.${state}`, one[state], state === "version" ? 1 : 0);
      return { name, stream: { entity_id: textOf(`${at}.stream`, one.stream), [state]: number } };
    }
    case "key":
      return { name, key: keyOf(at, one) };
    case "run":
      return { name, run: { run_id: textOf(`${at}.run`, one.run) } };
  }
}

/** Null is a value, and servers take it for none without a word of its own. */
export const matchedValue = (value: unknown) => ({
  ...(value !== undefined && { match_value: value }),
  ...(value === null && { has_match_value: true }),
});

function keyOf(at: string, one: Record<string, unknown>): KeyCondition {
  const key = { bucket: textOf(`${at}.bucket`, one.bucket), key: textOf(`${at}.key`, one.key) };
  const state = onlyOf(at, one, ["after", "equals", "exists", "deleted"]);
  if (state === "after") return { ...key, after: countOf(`${at}.after`, one.after, 0) };
  if (state === "equals") return { ...key, equals: encodedValue(`${at}.equals`, one.equals) };
  if (one[state] !== true) throw new TypeError(`${at}.${state} must be true`);
  return { ...key, [state]: true };
}

function onlyOf<Name extends string>(
  at: string,
  given: Record<string, unknown>,
  names: readonly Name[],
): Name {
  const [name, more] = names.filter((one) => given[one] !== undefined);
  if (name === undefined || more !== undefined) throw new TypeError(`${at} needs one of ${names.join(", ")}`);
  return name;
}

function textOf(field: string, value: unknown): string {
  if (typeof value !== "string" || value === "")
    throw new TypeError(`${field} must be a text that is not empty`);
  return value;
}

function countOf(field: string, value: unknown, least: number): number {
  if (!Number.isSafeInteger(value) || (value as number) < least)
    throw new TypeError(`${field} must be a whole number from ${least}`);
  return value as number;
}

/** A value in base64, as `kv.put` writes it. */
export function encodedValue(field: string, value: unknown): string {
  const { bytes, text } = bodyOf(value);
  const written = bytes ?? new TextEncoder().encode(text);
  if (written.length > equalBytesMax) throw new TypeError(`${field} has at most ${equalBytesMax} bytes`);
  return btoa(String.fromCharCode(...written));
}
