import { part } from "../../../gate/resource.ts";
import type { Expected } from "../../../kit/expected.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { bucketNameCharsMax, keyBytesMax, ownPrefix } from "./limits.ts";

export const requireBucketName = (name: string): void => requireBucketNameAt("name", name);

export function requireBucketNameAt(field: string, name: string): void {
  if (!/^[A-Za-z0-9_-]+$/.test(name) || name.length > bucketNameCharsMax)
    throw invalid(field, `must be 1 to ${bucketNameCharsMax} characters of A-Z, a-z, 0-9, _ and -`);
  if (name.startsWith(ownPrefix)) throw invalid(field, `must not begin with ${ownPrefix}`);
}

export const requireKey = (key: string): void => requireKeyAt("key", key);

export function requireKeyAt(field: string, key: string): void {
  if (key === "") throw invalid(field, "must not be empty");
  requireKeyText(field, key);
  // HTTP clients resolve such a path away before they send it, so that it would name another key.
  if (key.split("/").some((segment) => segment === "." || segment === ".."))
    throw invalid(field, "must not have . or .. between slashes");
}

function requireKeyText(field: string, text: string): void {
  if (Buffer.byteLength(text) > keyBytesMax) throw invalid(field, `at most ${keyBytesMax} bytes`);
  if (!text.isWellFormed()) throw invalid(field, "must be well-formed Unicode");
  if (/\p{Cc}/u.test(text)) throw invalid(field, "must not contain control characters");
}

/** Undefined when it is as expected; `revision` is undefined of a key that does not exist. */
export function unexpected(
  expected: Expected,
  named: string,
  revision: number | undefined,
): Fault | undefined {
  if (expected === undefined) return undefined;
  if (expected === "absent") {
    if (revision === undefined) return undefined;
    return new Fault("precondition_failed", `${named} exists at revision ${revision}`, {
      field: "If-None-Match",
    });
  }
  if (revision === expected) return undefined;
  const found =
    revision === undefined ? "does not exist" : `is at revision ${revision}, not at revision ${expected}`;
  return new Fault("precondition_failed", `${named} ${found}`, { field: "If-Match" });
}

/** Which keys a list shows. */
export interface KeyFilter {
  /** The only key that it shows, where it has no wildcard. */
  exact?: string;
  /** What every such key begins with. */
  start: string;
  matches: (key: string) => boolean;
}

/**
 * Dots cut keys into segments. `*` stands for any characters inside one segment, a last segment `>` for one
 * segment or more.
 */
export function segmentFilter(field: string, text: string): KeyFilter {
  requireKeyText(field, text);
  const segments = text.split(".");
  const isOpen = segments.at(-1) === ">";
  const wanted = isOpen ? segments.slice(0, -1) : segments;
  if (wanted.includes(">")) throw invalid(field, "> must be the last segment");
  const tests = wanted.map(part);
  const literal = isOpen ? text.slice(0, -1) : text;
  const star = literal.indexOf("*");
  return {
    ...(star < 0 && !isOpen && { exact: text }),
    start: star < 0 ? literal : literal.slice(0, star),
    matches(key) {
      const given = key.split(".");
      if (isOpen ? given.length <= tests.length : given.length !== tests.length) return false;
      return tests.every((test, at) => test(given[at]!));
    },
  };
}

/** Undefined when no key can match both. */
export function keyFilter(filter: string | undefined, prefix = ""): KeyFilter | undefined {
  requireKeyText("prefix", prefix);
  const segments = segmentFilter("filter", filter || ">");
  const [longer, shorter] =
    prefix.length > segments.start.length ? [prefix, segments.start] : [segments.start, prefix];
  return longer.startsWith(shorter) ? { start: longer, matches: segments.matches } : undefined;
}
