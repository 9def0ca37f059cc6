import { expect, test } from "bun:test";
import { SliceSize } from "../../src/kit/slice-size.ts";

test("a slice of rows is followed by a rest as long as it took, at least a breath and at most a second", async () => {
  let now = 0;
  const rests: number[] = [];
  const size = new SliceSize({
    elapsed: () => now,
    sleep: async (ms) => void rests.push(ms),
  });
  const takes = (ms: number) =>
    size.timed(async () => {
      now += ms;
      return 1;
    });
  for (const ms of [12, 0.2, 30_000]) {
    await takes(ms);
    await size.rest();
  }
  // A slice in which nothing had to be deleted.
  await size.rest();
  expect(rests).toEqual([12, 1, 1_000, 1]);
});
