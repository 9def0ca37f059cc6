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

test("a slice that fails is half as large when it is tried again, down to the least", async () => {
  const size = new SliceSize({ elapsed: () => 0, sleep: async () => {} });
  const sizes: number[] = [];
  for (let tried = 0; tried < 8; tried++) {
    sizes.push(size.rows);
    const work = async () => {
      throw new Error("the statement took too long");
    };
    await expect(size.timed(work)).rejects.toThrow("too long");
  }
  expect(sizes).toEqual([200, 100, 50, 25, 12, 10, 10, 10]);
});
