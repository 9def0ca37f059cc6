import { expect, test } from "bun:test";
import { createReopening } from "../../src/sdk/worker/reopening.ts";

const half = () => 0.5;

function opened(chance = half) {
  let nowMs = 0;
  const reopening = createReopening(chance, () => nowMs);
  return {
    /** A stream that lives so long; answers the pause after it. */
    lived(ms: number): number {
      reopening.opened();
      nowMs += ms;
      return reopening.delayMs();
    },
    refused: () => reopening.delayMs(),
  };
}

test("streams that end as soon as they are open are opened more and more rarely", () => {
  const { lived } = opened();
  expect(Array.from({ length: 8 }, () => lived(1))).toEqual([0, 150, 300, 600, 1_200, 2_400, 3_750, 3_750]);
});

test("one that lived for a while is followed at once", () => {
  const { lived, refused } = opened();
  for (let times = 0; times < 5; times++) lived(10);
  expect(lived(5_000)).toBe(0);
  expect(refused()).toBe(150);
  expect(lived(4_999)).toBe(300);
});

test("half of a pause is left to chance", () => {
  for (const [chance, ms] of [
    [0, 100],
    [0.999, 199.9],
  ] as const) {
    const { refused } = opened(() => chance);
    refused();
    expect(refused()).toBeCloseTo(ms);
  }
});
