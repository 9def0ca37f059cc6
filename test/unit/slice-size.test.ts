import { expect, test } from "bun:test";
import { expireSliceMax } from "../../src/kit/limits.ts";
import { SliceSize } from "../../src/kit/slice-size.ts";

/** A store that takes `rowMs` for a row, and `commitMs` for the way to it and the commit. */
function storeOf({ rowMs, commitMs, flushesMs }: { rowMs: number; commitMs: number; flushesMs?: number }) {
  let now = 0;
  const rests: number[] = [];
  const clock = {
    elapsed: () => now,
    sleep: async (ms: number) => {
      rests.push(ms);
      now += ms;
    },
  };
  const size = new SliceSize(clock, {
    flushCount: () => (flushesMs ? Math.floor(now / flushesMs) : 0),
  });
  const write = async <T>(work: (session: string) => Promise<T>): Promise<T> => {
    now += commitMs / 2;
    const done = await work("session");
    now += commitMs / 2;
    return done;
  };
  const slice = () =>
    size.delete(write, async () => {
      const { rows } = size;
      now += rows * rowMs;
      return rows;
    });
  return { size, rests, slice };
}

test("a slice of rows is followed by a rest as long as it took, its commit included, at least a breath and at most a second", async () => {
  for (const [commitMs, restMs] of [
    [12, 12],
    [0.2, 1],
    [30_000, 1_000],
  ] as const) {
    const { size, rests, slice } = storeOf({ rowMs: 0, commitMs });
    await slice();
    await size.rest();
    // A slice in which nothing had to be deleted.
    await size.rest();
    expect(rests).toEqual([restMs, 1]);
  }
});

test("a slice that fails is half as large when it is tried again, down to the least, wherever it failed", async () => {
  for (const failsAt of ["deletion", "commit"] as const) {
    const size = new SliceSize({ elapsed: () => 0, sleep: async () => {} });
    const sizes: number[] = [];
    const write = async <T>(work: (session: string) => Promise<T>): Promise<T> => {
      const done = await work("session");
      if (failsAt === "commit") throw new Error("the statement took too long");
      return done;
    };
    for (let tried = 0; tried < 8; tried++) {
      sizes.push(size.rows);
      const deletion = async () => {
        if (failsAt === "deletion") throw new Error("the statement took too long");
        return 1;
      };
      await expect(size.delete(write, deletion)).rejects.toThrow("too long");
    }
    expect(sizes).toEqual([200, 100, 50, 25, 12, 10, 10, 10]);
  }
});

test("a slow commit makes no slice smaller: a slice is as large as its deletion lets it", async () => {
  for (const [rowMs, least, most] of [
    [0.01, expireSliceMax, expireSliceMax],
    [0.2, 25, 50],
    [4, 10, 10],
  ] as const)
    for (const commitMs of [0, 15, 300]) {
      const { size, slice } = storeOf({ rowMs, commitMs });
      for (let turn = 0; turn < 10; turn++) await slice();
      for (let turn = 0; turn < 10; turn++) {
        expect(size.rows).toBeGreaterThanOrEqual(least);
        expect(size.rows).toBeLessThanOrEqual(most);
        await slice();
      }
    }
});

test("beside flushes of others a slice is half as large, and rests up to six times as long as it took", async () => {
  const rested: number[] = [];
  const sizes: number[] = [];
  // None, ten a second, a hundred a second.
  for (const flushesMs of [undefined, 100, 10]) {
    const { size, rests, slice } = storeOf({ rowMs: 0.125, commitMs: 0, ...(flushesMs && { flushesMs }) });
    for (let turn = 0; turn < 50; turn++) {
      sizes[rested.length] = await slice();
      await size.rest();
    }
    rested.push(rests.at(-1)! / (sizes.at(-1)! * 0.125));
  }
  expect(sizes).toEqual([50, 50, 25]);
  expect([rested[0], rested[2]]).toEqual([1, 6]);
  expect(rested[1]).toBeGreaterThanOrEqual(3);
  expect(rested[1]).toBeLessThanOrEqual(4);
});
