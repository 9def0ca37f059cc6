import { expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { combine, type ItemOutcome } from "../../src/kit/combine.ts";

const paceMs = 8;

function paced() {
  const clock = testClock();
  const flushes: { at: number; items: readonly number[] }[] = [];
  let end = () => {};
  const combiner = combine<number, number>({
    name: "test",
    lanes: 1,
    laneOf: () => 0,
    itemsMax: 100,
    waitingMax: 1000,
    isOfItem: () => false,
    pace: { clock, ms: paceMs },
    flush: async (items) => {
      flushes.push({ at: clock.elapsed(), items });
      await new Promise<void>((done) => {
        end = done;
      });
      return items.map((value): ItemOutcome<number> => ({ value }));
    },
  });
  const settle = async () => {
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  };
  const finish = async () => {
    end();
    await settle();
  };
  return { clock, combiner, flushes, settle, finish };
}

test("a caller that comes alone never waits", async () => {
  const { combiner, flushes, settle, finish } = paced();
  for (let item = 0; item < 5; item++) {
    const done = combiner.submit(item);
    await settle();
    await finish();
    expect(await done).toBe(item);
  }
  expect(flushes.map(({ at, items }) => [at, ...items])).toEqual([0, 1, 2, 3, 4].map((item) => [0, item]));
});

test("callers that came together are waited for: until all are back, or the pace is over", async () => {
  const { clock, combiner, flushes, settle, finish } = paced();
  for (const item of [1, 2, 3]) void combiner.submit(item);
  await settle();
  await finish();
  // All three are back: at once.
  for (const item of [4, 5]) void combiner.submit(item);
  await settle();
  expect(flushes).toHaveLength(1);
  void combiner.submit(6);
  await settle();
  expect(flushes.at(-1)).toEqual({ at: 0, items: [4, 5, 6] });
  await finish();
  // One stays away: when the pace is over.
  for (const item of [7, 8]) void combiner.submit(item);
  await settle();
  expect(flushes).toHaveLength(2);
  await clock.advance(paceMs);
  await settle();
  expect(flushes.at(-1)).toEqual({ at: paceMs, items: [7, 8] });
  await finish();
});

test("after a quiet moment the first goes at once", async () => {
  const { clock, combiner, flushes, settle, finish } = paced();
  for (const item of [1, 2, 3]) void combiner.submit(item);
  await settle();
  await finish();
  await clock.advance(paceMs + 1);
  void combiner.submit(4);
  await settle();
  expect(flushes.at(-1)).toEqual({ at: paceMs + 1, items: [4] });
  await finish();
});

test("what waits for the pace is drained with the rest", async () => {
  const { clock, combiner, settle, finish } = paced();
  for (const item of [1, 2]) void combiner.submit(item);
  await settle();
  await finish();
  void combiner.submit(3);
  let drained = false;
  const all = combiner.drain().then(() => {
    drained = true;
  });
  await settle();
  expect(drained).toBe(false);
  await clock.advance(paceMs);
  await settle();
  await finish();
  await all;
});
