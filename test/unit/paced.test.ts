import { expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { paced, pacedAtOnce } from "../../src/kit/paced.ts";

test("what is noted often is told once a pace, the last of each key, and no more than fits", async () => {
  const clock = testClock(0);
  const told: number[][] = [];
  const note = paced<number>({ clock, everyMs: 100, itemsMax: 2, tell: (items) => void told.push(items) });
  for (let at = 0; at < 50; at++) note("a", at);
  note("b", 1);
  note("c", 2);
  expect(told).toEqual([]);
  await clock.advance(100);
  expect(told).toEqual([[49, 1]]);
  await clock.advance(1_000);
  expect(told.length).toBe(1);
  note("c", 3);
  await clock.advance(99);
  expect(told.length).toBe(1);
  await clock.advance(1);
  expect(told).toEqual([[49, 1], [3]]);
});

test("what is told at once is told again at the end of the pace, the last alone, and each key by itself", async () => {
  const clock = testClock(0);
  const told: number[] = [];
  const note = pacedAtOnce<number>({
    clock,
    everyMs: 100,
    itemsMax: 2,
    tell: (item) => void told.push(item),
  });
  note("a", 1);
  expect(told).toEqual([1]);
  for (let at = 2; at < 50; at++) note("a", at);
  note("b", 100);
  note("c", 1_000);
  expect(told).toEqual([1, 100]);
  await clock.advance(100);
  expect(told).toEqual([1, 100, 49]);
  note("a", 50);
  expect(told.length).toBe(3);
  await clock.advance(100);
  expect(told).toEqual([1, 100, 49, 50]);
  await clock.advance(100);
  note("a", 51);
  expect(told).toEqual([1, 100, 49, 50, 51]);
});
