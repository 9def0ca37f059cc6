import { expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { timeBase } from "../../src/nodes/time-base.ts";

const hour = 3_600_000;
const near = (at: number, wanted: number) => expect(Math.abs(at - wanted)).toBeLessThan(1_000);

test.each([hour, -hour, 0])("a machine %d ms off takes the database's time, and keeps it", async (offMs) => {
  const clock = systemClock();
  // Something asks for the time before the database was asked.
  clock.now();
  const base = timeBase({ isShared: true, now: async () => clock.local() - offMs }, clock);
  for (let round = 0; round < 3; round++) {
    expect(await base.sample()).toBeLessThan(1_000);
    near(clock.now(), clock.local() - offMs);
    near(clock.offset(), -offMs);
  }
});

test("later corrections never turn time back", async () => {
  const clock = systemClock();
  let offMs = 0;
  const base = timeBase({ isShared: true, now: async () => clock.local() - offMs }, clock);
  await base.sample();
  const before = clock.now();
  offMs = 5_000;
  await base.sample();
  expect(clock.now()).toBeGreaterThanOrEqual(before);
});

test("a file has this machine's time", async () => {
  const clock = systemClock();
  const base = timeBase({ isShared: false, now: () => Promise.reject(new Error("nobody asks")) }, clock);
  expect(await base.sample()).toBe(0);
  expect(clock.offset()).toBe(0);
});

test.each([60_000, -60_000])(
  "a file's time follows a wall clock that is set by %d ms, and never jumps",
  async (setMs) => {
    const world = { elapsed: 0, setMs: 0 };
    const real = systemClock();
    const clock = { ...real, elapsed: () => world.elapsed, local: () => world.elapsed };
    const base = timeBase(
      { isShared: false, now: () => Promise.reject(new Error("nobody asks")) },
      { ...clock, wall: () => world.elapsed + world.setMs },
    );
    expect(await base.sampleOnce()).toBeUndefined();
    expect(base.warnings()).toEqual([]);
    world.setMs = setMs;
    expect(base.warnings()[0]).toContain(setMs > 0 ? "60 s behind" : "60 s ahead of");
    let before = clock.offset();
    for (let ticks = 0; ticks < 500; ticks++) {
      world.elapsed += ticks === 0 ? 5_000 : 250;
      const isFollowing = (await base.sampleOnce()) !== undefined;
      expect(Math.abs(clock.offset() - before)).toBeLessThanOrEqual(125);
      before = clock.offset();
      if (!isFollowing) break;
    }
    expect(clock.offset()).toBe(setMs);
    expect(base.warnings()).toEqual([]);
  },
);

test.each([
  ["a day", 24 * hour],
  ["56 years", 56 * 365 * 24 * hour],
])("a wall clock that is set forward by %s is followed at once", async (_, setMs) => {
  const world = { elapsed: 0, setMs: 0 };
  const clock = { ...systemClock(), elapsed: () => world.elapsed, local: () => world.elapsed };
  const base = timeBase(
    { isShared: false, now: () => Promise.reject(new Error("nobody asks")) },
    { ...clock, wall: () => world.elapsed + world.setMs },
  );
  await base.sampleOnce();
  world.setMs = setMs;
  world.elapsed += 5_000;
  expect(await base.sampleOnce()).toBeUndefined();
  expect(clock.offset()).toBe(setMs);
  // Back again: slowly.
  world.setMs = 0;
  world.elapsed += 250;
  expect(await base.sampleOnce()).toEqual({ againInMs: 250 });
  expect(clock.offset()).toBe(setMs - 125);
});

/** A database `aheadMs` ahead of this machine that takes `tripMs` to answer; time passes in nothing else. */
function slowly() {
  const world = { elapsed: 1_000, aheadMs: 0, tripMs: 2 };
  const clock = { ...systemClock(), elapsed: () => world.elapsed, local: () => world.elapsed };
  const base = timeBase(
    {
      isShared: true,
      async now() {
        const at = world.elapsed + world.tripMs / 2 + world.aheadMs;
        world.elapsed += world.tripMs;
        return at;
      },
    },
    clock,
  );
  return { world, clock, base };
}

test("one slow answer takes nothing away from what is known", async () => {
  const { world, clock, base } = slowly();
  expect(await base.sampleOnce()).toBeUndefined();
  expect(base.uncertaintyMs()).toBe(1);
  Object.assign(world, { tripMs: 3_000, aheadMs: 5 });
  expect(await base.sampleOnce()).toBeUndefined();
  expect(base.uncertaintyMs()).toBeCloseTo(1.6);
  expect(clock.offset()).toBe(0);
  world.tripMs = 2;
  await base.sample();
  expect(base.uncertaintyMs()).toBe(1);
  expect(clock.offset()).toBe(5);
});

test("a slow answer that contradicts what is known is believed, and another is asked for soon", async () => {
  const { world, clock, base } = slowly();
  await base.sample();
  Object.assign(world, { tripMs: 3_000, aheadMs: 10_000 });
  expect(await base.sampleOnce()).toEqual({ againInMs: 250 });
  expect(base.uncertaintyMs()).toBe(1_500);
  expect(clock.offset()).toBe(10_000);
});

test("whoever starts with a slow answer asks again soon", async () => {
  const { world, base } = slowly();
  expect(base.uncertaintyMs()).toBe(Number.POSITIVE_INFINITY);
  world.tripMs = 600;
  expect(await base.sampleOnce()).toEqual({ againInMs: 250 });
  expect(base.uncertaintyMs()).toBe(300);
});
