import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { containsIgnoringCase, looksWithin, sql } from "../../src/kit/sql.ts";
import { renderLibsql } from "../../src/store/libsql-text.ts";

const database = new Database(":memory:");

function isIn(text: string, search: string): boolean {
  const query = renderLibsql(
    sql`SELECT 1 AS found FROM (SELECT ${text} AS name) WHERE ${containsIgnoringCase("name", search)}`,
  );
  return database.query(query.text).get(...(query.values as string[])) !== null;
}

test("a search takes its signs literally", () => {
  expect([isIn("50%_OF\\it", "%_of\\"), isIn("50 of it", "50%it"), isIn("50xof", "50_of")]).toEqual([
    true,
    false,
    false,
  ]);
});

test("of letters with many others the first ones are folded, and a look is that much shorter", () => {
  const letters = "αβγδεζηθικλμνξοπρστυφχψω";
  expect(isIn(letters.slice(0, 8).toUpperCase(), letters.slice(0, 8))).toBe(true);
  expect(isIn(letters, letters)).toBe(true);
  expect([looksWithin(1_700, "plain"), looksWithin(1_700, "日本"), looksWithin(1_700, letters)]).toEqual([
    1_700, 1_700, 100,
  ]);
});

test.each([
  ["Ärger.neu", "ärger.NEU"],
  ["ΟΔΟΣ", "οδος"],
  ["Straße", "STRAßE"],
  ["ЁЛКА", "ёлка"],
  ["plain", "PLAIN"],
  ["ǅ", "ǆ"],
])("%s is found by %s, and the other way round", (one, other) => {
  expect(isIn(`before ${one} behind`, other)).toBe(true);
  expect(isIn(`before ${other} behind`, one)).toBe(true);
});

test("letters that only look alike are told apart", () => {
  for (const [text, search] of [
    ["argern", "ärgern"],
    ["ärgern", "argern"],
    ["strasse", "straße"],
    ["e\u0301", "é"],
  ] as const)
    expect(isIn(text, search)).toBe(false);
});

test("a search that is longer than anything finds nothing", () => {
  expect(isIn("x", "x".repeat(60_000))).toBe(false);
  expect(isIn("Ä".repeat(100), "ä".repeat(100))).toBe(true);
});
