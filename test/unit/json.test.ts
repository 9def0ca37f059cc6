import { describe, expect, test } from "bun:test";
import type { DescMessage } from "@bufbuild/protobuf";
import { services } from "../../src/edge/services.ts";
import {
  isNested,
  jsonText,
  parseJson,
  parseJsonBytes,
  payloadLevelsMax,
  storedJson,
} from "../../src/kit/payload-json.ts";

const lists = (levels: number) => "[".repeat(levels) + "]".repeat(levels);
const free = new Set(["google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"]);

/** Messages around the deepest free value in this one. */
function around(message: DescMessage, seen: readonly DescMessage[] = []): number {
  if (free.has(message.typeName)) return 0;
  if (seen.includes(message)) return Number.NEGATIVE_INFINITY;
  const inner = message.fields.flatMap(({ message: held, fieldKind }) =>
    held ? [around(held, [...seen, message]) + (fieldKind === "map" ? 2 : 1)] : [],
  );
  return Math.max(Number.NEGATIVE_INFINITY, ...inner);
}

describe("a payload of the most levels", () => {
  // Java, C++, Python and protobuf-es stop at 100 messages inside each other; some count the outermost.
  const readersMax = 100;
  const messagesOfALevel = 3;

  test("fits into every message that carries one, for readers of every language", () => {
    let deepest = 0;
    for (const { methods } of services)
      for (const { input, output } of methods)
        for (const message of [input, output]) deepest = Math.max(deepest, around(message));
    // The value's own first message is counted with its levels.
    expect(1 + (deepest - 1) + payloadLevelsMax * messagesOfALevel).toBeLessThanOrEqual(readersMax);
    expect(1 + deepest + (payloadLevelsMax + 1) * messagesOfALevel).toBeGreaterThan(readersMax);
  });
});

test("levels are counted without parsing, and texts are none", () => {
  for (const [text, levels] of [
    [lists(50), 50],
    [`${'{"a":['.repeat(25)}1${"]}".repeat(25)}`, 50],
    [JSON.stringify({ text: `${"[".repeat(200)}"\\`, more: ["\\", '"', '[\\"['] }), 2],
    [`[${`${lists(2)},`.repeat(200)}1]`, 3],
    [`["${"x".repeat(300)}\\\\","[",${lists(3)}]`, 4],
  ] as const) {
    expect([text.slice(0, 20), isNested(text, levels)]).toEqual([text.slice(0, 20), false]);
    if (text.length > 2 * levels)
      expect([text.slice(0, 20), isNested(text, levels - 1)]).toEqual([text.slice(0, 20), true]);
  }
});

test.each([
  [{ amount: Number.POSITIVE_INFINITY }, "data.amount: number is out of range"],
  [[1, { list: [0, Number.NaN] }], "data[1].list[1]: number is out of range"],
  [{ a: { b: "x\ud800" } }, "data.a.b: must not hold half a surrogate"],
  [{ "\udc00": 1 }, "data.\ufffd: must not hold half a surrogate"],
  [JSON.parse(lists(33)), "data: nested deeper than 32 levels"],
])("what no protocol can carry is refused by its path: %j", (value, message) => {
  expect(() => jsonText("data", value)).toThrow(message);
});

test("a path is told in its beginning", () => {
  const deep = Array.from({ length: 30 }).reduce<unknown>(
    (inner) => ({ ["k".repeat(200)]: inner }),
    Number.NaN,
  );
  let said = "";
  try {
    jsonText("data", deep);
  } catch (error) {
    said = (error as Error).message;
  }
  expect(said).toContain("out of range");
  expect(said.length).toBeLessThan(300);
});

test("what JSON can hold comes back as it was", () => {
  const value = JSON.parse(
    '{"__proto__":{"a":1},"constructor":[],"":null,"\\u0000":"a\\u0000b","x":[1e308,"\\ud83d\\ude00"]}',
  );
  expect(JSON.parse(jsonText("data", value))).toEqual(value);
  expect(jsonText("data", undefined)).toBe("null");
  expect(() => jsonText("data", "xxx", 4)).toThrow("data: at most 4 bytes of JSON");
});

test("text is refused before it is parsed, half a surrogate anywhere in it", () => {
  expect(() => parseJson(lists(2_000_000))).toThrow("malformed JSON: nested deeper than 32 levels");
  expect(() => parseJson("{")).toThrow("malformed JSON:");
  expect(() => parseJson("{", "newOutput")).toThrow("newOutput: must be JSON text:");
  expect(() => parseJson('{"id":"a\\ud800"}')).toThrow("id: must not hold half a surrogate");
  expect(() => parseJsonBytes(new Uint8Array([0x22, 0xff, 0x22]))).toThrow("not UTF-8");
  expect(parseJson(lists(40))).toEqual(JSON.parse(lists(40)));
});

test("what is stored is shown, or said to be too deep to be", () => {
  expect(storedJson(lists(1_000))).toEqual(JSON.parse(lists(1_000)));
  expect(storedJson(lists(1_001))).toBe("(nested deeper than 1000 levels)");
});
