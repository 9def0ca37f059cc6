import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { requireEventName } from "../../src/kit/event-names.ts";
import type { Fault } from "../../src/kit/fault.ts";

const ruleOf = (name: string): string | undefined => {
  try {
    requireEventName("events[3].event", name);
    return undefined;
  } catch (error) {
    expect(error).toMatchObject({ kind: "invalid_argument", field: "events[3].event" });
    return (error as Fault).message.replace("events[3].event: ", "");
  }
};

describe("event names", () => {
  test.each([
    "order.placed",
    "a",
    "user/created",
    "größe.geändert",
    "注文.作成",
    "🚀",
    "a-b_c:d",
    "$system",
    "x".repeat(248),
    "é".repeat(124),
  ])("%s may be emitted", (name) => {
    expect(ruleOf(name)).toBeUndefined();
  });

  test.each([
    ["", "must not be empty"],
    ["x".repeat(249), "at most 248 bytes"],
    ["é".repeat(125), "at most 248 bytes"],
    ["order.*", "must not contain * or >"],
    ["order.>", "must not contain * or >"],
    ["order placed", "must not contain whitespace or control characters"],
    ["order\u00a0placed", "must not contain whitespace or control characters"],
    ["order\nplaced", "must not contain whitespace or control characters"],
    ["order\u0000", "must not contain whitespace or control characters"],
    ["order\u007f", "must not contain whitespace or control characters"],
    ["a..b", "must not contain an empty segment between dots"],
    [".a", "must not contain an empty segment between dots"],
    ["a.", "must not contain an empty segment between dots"],
    [".", "must not contain an empty segment between dots"],
    ["\ud800", "must be well-formed Unicode"],
  ])("%j may not", (name, rule) => {
    expect(ruleOf(name)).toBe(rule);
  });

  test("the rule is about each segment and the whole, whatever they are made of", () => {
    const segment = fc
      .string({ unit: "grapheme", minLength: 1, maxLength: 4 })
      .filter((text) => !/[.*>\s\p{Cc}]/u.test(text));
    fc.assert(
      fc.property(fc.array(segment, { minLength: 1, maxLength: 3 }), (segments) => {
        expect(ruleOf(segments.join("."))).toBeUndefined();
        expect(ruleOf([...segments, ""].join("."))).toBeDefined();
        expect(ruleOf(["", ...segments].join("."))).toBeDefined();
      }),
    );
  });
});
