import { expect, test } from "bun:test";
import { ComparedUntil } from "../../src/domain/engine/runs/waits/compared-until.ts";

test("a pass that comes to the head it saw has compared all until it began", () => {
  const until = new ComparedUntil();
  expect(until.of("env")).toBeUndefined();
  until.reached("env", { head: 10, at: 100 }, 10);
  expect(until.of("env")).toBe(100);
  expect(until.of("other")).toBeUndefined();
});

test("a log that grows as fast as it is read is compared up to where it ended before", () => {
  const until = new ComparedUntil();
  const known: (number | undefined)[] = [];
  // Each pass reads 500 events, and 500 are logged meanwhile.
  for (let pass = 0; pass < 6; pass++) {
    const seen = { head: 1_200 + 500 * pass, at: 100 * pass };
    until.reached("env", seen, 500 * pass);
    until.reached("env", seen, 500 * (pass + 1));
    known.push(until.of("env"));
  }
  expect(known).toEqual([undefined, undefined, 0, 0, 200, 200]);
});

test("what another node read counts", () => {
  const until = new ComparedUntil();
  until.reached("env", { head: 900, at: 1 }, 500);
  until.reached("env", { head: 2_000, at: 2 }, 950);
  expect(until.of("env")).toBe(1);
});

test("environments without waits are forgotten", () => {
  const until = new ComparedUntil();
  until.reached("gone", { head: 1, at: 1 }, 1);
  until.reached("gone", { head: 9, at: 2 }, 3);
  until.keepOnly(new Set());
  expect(until.of("gone")).toBeUndefined();
  until.reached("gone", { head: 20, at: 5 }, 9);
  expect(until.of("gone")).toBeUndefined();
});
