import { describe, expect, test } from "bun:test";
import type { Changed } from "../../src/domain/state/kv/changes.ts";
import {
  type HeldBucket,
  type KeyState,
  type ValueChange,
  ValueChanges,
} from "../../src/domain/state/kv/changes.ts";
import { markerKeptMs } from "../../src/domain/state/kv/limits.ts";
import { keyFilter, requireBucketName, requireKey, unexpected } from "../../src/domain/state/kv/rules.ts";
import type { ItemOutcome } from "../../src/kit/combine.ts";
import { expectedOf } from "../../src/kit/expected.ts";
import { Fault } from "../../src/kit/fault.ts";

const refusalOf = (act: () => unknown): string => {
  try {
    act();
  } catch (error) {
    if (error instanceof Fault) return `${error.kind} ${error.message}`;
    throw error;
  }
  return "";
};

describe("names", () => {
  test.each(["orders", "a-b_C9", "x".repeat(64)])("%s is a bucket's", (name) => requireBucketName(name));
  test.each(["", "a.b", "a b", "é", "x".repeat(65), "a/b", "SYS_config_x"])("%p is no bucket's", (name) => {
    expect(refusalOf(() => requireBucketName(name))).toStartWith("invalid_argument name: must");
  });

  test.each(["a", "users/42.name", "a//b", "%2F", "a b:c-d_e", "...", "é".repeat(256), "*", "__proto__"])(
    "%p is a key",
    requireKey,
  );
  test.each([
    ["", "key: must not be empty"],
    ["x".repeat(513), "key: at most 512 bytes"],
    ["é".repeat(257), "key: at most 512 bytes"],
    ["a\0b", "key: must not contain control characters"],
    ["a\nb", "key: must not contain control characters"],
    ["\ud800", "key: must be well-formed Unicode"],
    ["../a", "key: must not have . or .. between slashes"],
    ["a/./b", "key: must not have . or .. between slashes"],
  ])("%p is no key", (key, rule) => {
    expect(refusalOf(() => requireKey(key))).toBe(`invalid_argument ${rule}`);
  });
});

describe("what a caller expects of a key", () => {
  test("is read from the headers", () => {
    expect(expectedOf(undefined, undefined)).toBeUndefined();
    expect(expectedOf("7", undefined)).toBe(7);
    expect(expectedOf('"7"', undefined)).toBe(7);
    expect(expectedOf(undefined, "*")).toBe("absent");
  });

  test.each([
    ["seven", undefined, "If-Match: must be a revision"],
    ["", undefined, "If-Match: must be a revision"],
    ["-1", undefined, "If-Match: must be a revision"],
    ['"7', undefined, "If-Match: must be a revision"],
    ["9".repeat(16), undefined, "If-Match: must be a revision"],
    ["*", undefined, "If-Match: must be a revision"],
    [undefined, "7", "If-None-Match: must be *"],
    ["7", "*", "If-Match: contradicts If-None-Match"],
  ])("%p and %p are refused", (ifMatch, ifNoneMatch, rule) => {
    expect(refusalOf(() => expectedOf(ifMatch, ifNoneMatch))).toBe(`invalid_argument ${rule}`);
  });

  test("and what was found are named", () => {
    expect(unexpected("absent", "key k", undefined)).toBeUndefined();
    expect(unexpected(7, "key k", 7)).toBeUndefined();
    expect(unexpected("absent", "key k", 3)).toMatchObject({
      kind: "precondition_failed",
      message: "key k exists at revision 3",
      field: "If-None-Match",
    });
    expect(unexpected(7, "key k", 3)?.message).toBe("key k is at revision 3, not at revision 7");
    expect(unexpected(7, "key k", undefined)).toMatchObject({
      message: "key k does not exist",
      field: "If-Match",
    });
  });
});

describe("filters of keys", () => {
  const shown = (filter: string | undefined, prefix: string | undefined, keys: string[]) => {
    const wanted = keyFilter(filter, prefix);
    return keys.filter((key) => wanted !== undefined && key.startsWith(wanted.start) && wanted.matches(key));
  };
  const keys = ["a", "a.b", "a.b.c", "user-1", "user-1.name", "user:1/x", "users/a.txt"];

  test.each([
    [undefined, undefined, keys],
    ["", "", keys],
    [">", undefined, keys],
    ["*", undefined, ["a", "user-1", "user:1/x"]],
    ["a.*", undefined, ["a.b"]],
    ["a.>", undefined, ["a.b", "a.b.c"]],
    ["*.b", undefined, ["a.b"]],
    ["*.*.c", undefined, ["a.b.c"]],
    ["user-*", undefined, ["user-1"]],
    ["user-*.>", undefined, ["user-1.name"]],
    ["user:*", undefined, ["user:1/x"]],
    ["a", undefined, ["a"]],
    [undefined, "user", ["user-1", "user-1.name", "user:1/x", "users/a.txt"]],
    ["user*", "users/", []],
    ["user*.*", "users/", ["users/a.txt"]],
    ["a.>", "b", []],
    ["a.>", "a", ["a.b", "a.b.c"]],
  ])("%p and prefix %p", (filter, prefix, wanted) => {
    expect(shown(filter, prefix, keys)).toEqual(wanted);
  });

  test("say what they cannot mean", () => {
    expect(refusalOf(() => keyFilter(">.a"))).toBe("invalid_argument filter: > must be the last segment");
    expect(refusalOf(() => keyFilter("a\0"))).toContain("filter: must not contain control characters");
    expect(refusalOf(() => keyFilter(undefined, "x".repeat(600)))).toContain("prefix: at most 512 bytes");
  });
});

describe("changes, decided one after the other", () => {
  const now = 1_700_000_000_000;
  const bucket = (changes: Partial<HeldBucket> = {}): HeldBucket => ({
    environmentId: "env",
    id: "id",
    name: "b",
    ttlMs: null,
    valueBytesMax: 10,
    bytesMax: null,
    historyMax: 3,
    revision: 5,
    valueCount: 1,
    bytes: 4,
    ...changes,
  });
  const stored = (changes: Partial<KeyState> = {}): KeyState => ({
    environmentId: "env",
    bucketId: "id",
    key: "k",
    revision: 5,
    operation: "put",
    bytes: 4,
    createdAt: now - 1,
    expiresAt: null,
    ...changes,
  });
  const of = (key: string, more: Partial<ValueChange> = {}): ValueChange => ({
    environmentId: "env",
    bucket: "b",
    key,
    expected: undefined,
    ...more,
  });
  const put = (key: string, bytes: number, more: Partial<ValueChange> = {}): ValueChange =>
    of(key, { put: { value: "v", bytes, ttlMs: undefined }, ...more });
  const errorOf = (outcome: ItemOutcome<Changed>) =>
    "error" in outcome ? (outcome.error as Fault).kind : { value: outcome.value?.revision };

  test("of many that expect one revision, one wins", () => {
    const changes = new ValueChanges(now, [bucket()], [stored()]);
    const outcomes = [1, 2, 3].map(() => changes.apply(put("k", 1, { expected: 5 })));
    expect(outcomes.map(errorOf)).toEqual([{ value: 6 }, "precondition_failed", "precondition_failed"]);
    expect(changes.written).toMatchObject([{ key: "k", revision: 6 }]);
    expect([...changes.replaced.values()]).toMatchObject([{ key: "k" }]);
  });

  test("revisions have no gaps, and the counts are those of the rows", () => {
    const held = bucket();
    const changes = new ValueChanges(now, [held], [stored()]);
    const wanted = [put("k", 2), put("l", 3), of("none"), of("k"), put("l", 1), put("l", 11)];
    expect(wanted.map((change) => errorOf(changes.apply(change)))).toEqual([
      { value: 6 },
      { value: 7 },
      { value: undefined },
      { value: 8 },
      { value: 9 },
      "payload_too_large",
    ]);
    expect(held).toMatchObject({ revision: 9, valueCount: 1, bytes: 1 });
    expect(changes.written.map(({ key, operation, expiresAt }) => [key, operation, expiresAt])).toEqual([
      ["k", "delete", now + markerKeptMs],
      ["l", "put", null],
    ]);
    // What was stored, and what was put and replaced here, goes to the history.
    expect([...changes.replaced.keys()]).toHaveLength(1);
    expect(changes.passed.map(({ key, revision }) => [key, revision])).toEqual([
      ["k", 6],
      ["l", 7],
    ]);
    expect(changes.lengthened.map(({ key, kept }) => [key, kept])).toEqual([
      ["k", 2],
      ["l", 2],
    ]);
  });

  test("an expired value is not there, and its row is still counted", () => {
    const held = bucket();
    const changes = new ValueChanges(now, [held], [stored({ expiresAt: now })]);
    expect(errorOf(changes.apply(of("k", { expected: 5 })))).toBe("precondition_failed");
    expect(errorOf(changes.apply(put("k", 1, { expected: "absent" })))).toEqual({ value: 6 });
    expect(held).toMatchObject({ valueCount: 1, bytes: 1 });
    expect(changes.replaced.size).toBe(0);
  });

  test("a purge leaves nothing of the key, whatever came before it", () => {
    const changes = new ValueChanges(now, [bucket()], [stored()]);
    changes.apply(put("k", 1));
    changes.apply(put("k", 2));
    expect(errorOf(changes.apply(of("k", { dropsHistory: true })))).toEqual({ value: 8 });
    expect([changes.replaced.size, changes.passed.length, changes.dropped.size]).toEqual([0, 0, 1]);
    changes.apply(put("k", 3));
    changes.apply(put("k", 4));
    expect(changes.passed.map(({ revision }) => revision)).toEqual([9]);
    expect(changes.written).toMatchObject([{ revision: 10, value: "v" }]);
  });

  test("a full bucket says so, and a smaller value fits", () => {
    const held = bucket({ bytesMax: 6 });
    const changes = new ValueChanges(now, [held], [stored()]);
    const refused = changes.apply(put("l", 3)) as { error: Fault };
    expect(refused.error.message).toBe("value: bucket b holds at most 6 bytes, and has 4");
    expect([...changes.full]).toEqual([held]);
    expect(errorOf(changes.apply(put("l", 2)))).toEqual({ value: 6 });
    expect(errorOf(changes.apply(put("k", 4)))).toEqual({ value: 7 });
  });

  test("a time to live of the key comes before the bucket's", () => {
    const changes = new ValueChanges(now, [bucket({ ttlMs: 1_000 })], []);
    changes.apply(put("k", 1));
    changes.apply(put("l", 1, { put: { value: "v", bytes: 1, ttlMs: 5_000 } }));
    expect(changes.written.map(({ expiresAt }) => expiresAt)).toEqual([now + 1_000, now + 5_000]);
  });

  test("a bucket that is not there is named", () => {
    const changes = new ValueChanges(now, [], []);
    expect((changes.apply(put("k", 1)) as { error: Fault }).error.message).toBe("bucket b not found");
  });
});
