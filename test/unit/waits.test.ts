import { describe, expect, test } from "bun:test";
import { statusOf, storedStatuses } from "../../src/domain/engine/runs/rules.ts";
import {
  anyPath,
  celPath,
  hashAt,
  hashOfValue,
  holds,
  type Match,
  readMatch,
  storedMatch,
  valueAt,
} from "../../src/domain/engine/waits/rules.ts";
import { CelError } from "../../src/kit/cel/cel.ts";

describe("match", () => {
  test.each<[string | undefined, Match]>([
    [undefined, { kind: "any" }],
    ["  ", { kind: "any" }],
    ["orderId", { kind: "trigger", path: "orderId" }],
    ["data.orderId", { kind: "trigger", path: "orderId" }],
    ["event.data.order.id", { kind: "trigger", path: "order.id" }],
    ["$.data.items.0.id", { kind: "trigger", path: "items.0.id" }],
    ["$.order-id", { kind: "trigger", path: "order-id" }],
    ["data", { kind: "trigger", path: "data" }],
    ["data.data.x", { kind: "trigger", path: "data.x" }],
    ['data.x == "a b"', { kind: "literal", path: "x", value: "a b" }],
    ["event.data.x.y=='c'", { kind: "literal", path: "x.y", value: "c" }],
    ["data.n == -4.5", { kind: "literal", path: "n", value: -4.5 }],
    ["data.n == 007", { kind: "literal", path: "n", value: 7 }],
    ["data.n == null", { kind: "literal", path: "n", value: null }],
    ['data.x == "a\\"b"', { kind: "cel", expression: 'data.x == "a\\"b"' }],
    ['data.x == "a" && data.y == 1', { kind: "cel", expression: 'data.x == "a" && data.y == 1' }],
    ['event.name == "e"', { kind: "cel", expression: 'event.name == "e"' }],
  ])("%p", (text, match) => expect(readMatch(text)).toEqual(match));

  test("a value stands instead of the triggering event's", () => {
    expect(readMatch("data.a.b", { value: 4 })).toEqual({ kind: "literal", path: "a.b", value: 4 });
    expect(() => readMatch("data.a > 1", { value: 4 })).toThrow(CelError);
    expect(() => readMatch("", { value: 4 })).toThrow(CelError);
  });

  test.each([
    "data.x ==",
    "orderId == 'a'",
    "a b",
    "1 + 1",
    "data..x",
    "x\0y",
    "p".repeat(513),
    `data.${"p".repeat(513)} == 1`,
  ])("%p is refused", (text) => {
    expect(() => readMatch(text)).toThrow(CelError);
  });

  test("the triggering event's value is looked up once, or there is none", () => {
    expect(storedMatch(readMatch("a.b"), { a: { b: [1] } })).toEqual({
      path: "a.b",
      valueHash: hashOfValue([1]),
      expression: null,
    });
    for (const data of [{}, null, undefined, { a: 1 }, { a: { b: undefined } }, "text"])
      expect(storedMatch(readMatch("a.b"), data)).toBeUndefined();
    expect(storedMatch(readMatch("toString"), {})).toBeUndefined();
    expect(storedMatch(readMatch("a"), { a: null })?.valueHash).toBe(hashOfValue(null));
    expect(storedMatch(readMatch(""), {})).toEqual({ path: anyPath, valueHash: "", expression: null });
    expect(storedMatch(readMatch("data.x > 1"), {})?.path).toBe(celPath);
  });

  test("equal JSON has equal hashes, whatever the order of its keys; types count", () => {
    expect(hashOfValue({ a: 1, b: { c: 2, d: 3 } })).toBe(hashOfValue({ b: { d: 3, c: 2 }, a: 1 }));
    const different = [1, "1", true, "true", null, "null", [], {}, "", 0, false, [1, 2], [2, 1]];
    expect(new Set(different.map(hashOfValue)).size).toBe(different.length);
    expect(hashAt({ x: 4.0 }, "x")).toBe(hashOfValue(4));
    expect(hashAt({}, "x")).toBeUndefined();
    expect(valueAt({ x: ["a", "b"] }, "x.1")).toBe("b");
    expect(valueAt({ x: "text" }, "x.0")).toBeUndefined();
  });

  test("an expression that fails holds for nothing", () => {
    const event = { id: "e", name: "n", metadata: null, version: 1, source: "api", timestamp: 0 };
    expect(holds("data.x > 1", { ...event, data: { x: 2 } })).toBe(true);
    expect(holds("data.x > 1", { ...event, data: { x: 1 } })).toBe(false);
    expect(holds("data.x > 1", { ...event, data: {} })).toBe(false);
    expect(holds("data.x >", { ...event, data: { x: 2 } })).toBe(false);
  });
});

test("every state reads as a status, and every status finds its states", () => {
  expect(statusOf("active", "waiting")).toEqual({ status: "paused", pauseReason: "wait_event" });
  expect(statusOf("active", "invoking")).toEqual({ status: "paused", pauseReason: "invoke" });
  expect(statusOf("active", "held")).toEqual({ status: "paused", pauseReason: "injection" });
  const { states, ended } = storedStatuses(["paused", "failed"]);
  expect(ended).toEqual(["failed"]);
  for (const state of states) expect(statusOf("active", state).status).toBe("paused");
});
