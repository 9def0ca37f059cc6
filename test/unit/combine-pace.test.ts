import { expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { combine, type ItemOutcome } from "../../src/kit/combine.ts";

const paceMs = 8;
const awaitedMs = 6;
const flushMs = 4;
const crowd = 30;

/** Items of 1,000 and more are awaited. */
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
    pace: { clock, ms: paceMs, awaitedMs, isAwaited: (item) => item >= 1_000 },
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
  const come = async (count: number, from = 0) => {
    for (let item = 0; item < count; item++) void combiner.submit(from + item);
    await settle();
  };
  /** A crowd that comes again with each answer, until its flushes are waited for. */
  const makeBusy = async () => {
    for (let round = 0; round < 10; round++) {
      await come(crowd);
      await clock.advance(flushMs);
      await finish();
    }
  };
  return { clock, combiner, flushes, settle, finish, come, makeBusy };
}

test("a caller that comes alone never waits", async () => {
  const { clock, combiner, flushes, settle, finish } = paced();
  for (let item = 0; item < 5; item++) {
    const done = combiner.submit(item);
    await settle();
    await clock.advance(flushMs);
    await finish();
    expect(await done).toBe(item);
  }
  expect(flushes.map(({ at, items }) => [at, ...items])).toEqual(
    [0, 1, 2, 3, 4].map((item) => [item * flushMs, item]),
  );
});

test("callers that came together are waited for: until all are back, or the pace is over", async () => {
  const { clock, flushes, settle, finish, come, makeBusy } = paced();
  await makeBusy();
  await come(crowd - 1);
  expect(flushes).toHaveLength(10);
  // The last one is back: at once.
  await come(1);
  const at = clock.elapsed();
  expect(flushes.at(-1)).toMatchObject({ at, items: { length: crowd } });
  await clock.advance(flushMs);
  await finish();
  // One stays away: when the pace is over.
  await come(crowd - 1);
  await clock.advance(paceMs - flushMs);
  await settle();
  expect(flushes.at(-1)).toMatchObject({ at: at + paceMs, items: { length: crowd - 1 } });
  await finish();
});

test("after a quiet moment the first goes at once", async () => {
  const { clock, flushes, finish, come, makeBusy } = paced();
  await makeBusy();
  await clock.advance(paceMs + 1);
  await come(1);
  expect(flushes.at(-1)).toEqual({ at: clock.elapsed(), items: [0] });
  await finish();
});

test("what waits for the pace is drained with the rest", async () => {
  const { clock, combiner, settle, finish, come, makeBusy } = paced();
  await makeBusy();
  await come(1);
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

test("an item that is awaited shortens the pause, also one that is under way", async () => {
  const { clock, flushes, settle, finish, come, makeBusy } = paced();
  await makeBusy();
  const beganAt = clock.elapsed() - flushMs;
  await come(2);
  await clock.advance(1);
  await come(1, 1_000);
  expect(flushes).toHaveLength(10);
  await clock.advance(awaitedMs - flushMs - 1);
  await settle();
  expect(flushes.at(-1)).toEqual({ at: beganAt + awaitedMs, items: [0, 1, 1_000] });
  await finish();
  // The pause that was replaced begins no flush of its own.
  await come(1);
  await clock.advance(paceMs);
  expect(flushes).toHaveLength(12);
});
