import { expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { paced } from "../../src/kit/paced.ts";

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
