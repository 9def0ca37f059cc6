import { expect, test } from "bun:test";
import { RE2JS } from "@bufbuild/re2";
import { patternSize } from "../../src/kit/re2.ts";

const instructions = (pattern: string): number =>
  (RE2JS.compile(pattern) as unknown as { re2Input: { prog: { inst: unknown[] } } }).re2Input.prog.inst
    .length;

test.each([
  "a",
  "^orders\\.(created|paid)$",
  "[a-z]+[^\\]0-9]*x?",
  "a{3}b{2,5}c{4,}",
  "(a{1,10}){1,10}",
  "((x?a?b?){20})$",
  "(?i)hello|(?:wor(ld)?)*",
  "[]a]{7}",
  "[[:alpha:]]{9}",
  "\\{3}a\\d{2}",
  ".{50}",
])("%s takes about as many instructions as it is said to", (pattern) => {
  const real = instructions(pattern);
  const told = patternSize(pattern);
  // It is to be bounded, and no more than that: twice too few or thrice too many are near enough.
  expect([pattern, told * 2 >= real && told <= real * 3 + 8, told, real]).toEqual([
    pattern,
    true,
    told,
    real,
  ]);
});

test("counts what is repeated as often as it may come, however deep", () => {
  expect(patternSize("((a{1,100}){1,100}){1,100}")).toBeGreaterThan(1_000_000);
  expect(patternSize("a{1,1000}".repeat(10))).toBeGreaterThanOrEqual(10_000);
  expect(patternSize("(x?a?b?){300}$")).toBeGreaterThan(1_500);
});

test("reads whatever comes, and ends", () => {
  for (const text of [
    "(",
    ")",
    "[",
    "[]",
    "[^",
    "\\",
    "a{",
    "a{,5}",
    "a{2,",
    "((((",
    "))))a",
    "[[:",
    "*+?",
    "{3}{3}",
  ])
    expect(patternSize(text)).toBeGreaterThanOrEqual(2);
});
