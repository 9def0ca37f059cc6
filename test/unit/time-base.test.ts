import { expect, test } from "bun:test";
import { timeBase } from "../../src/cluster/time-base.ts";
import { systemClock } from "../../src/kit/clock.ts";

const hour = 3_600_000;
const near = (at: number, wanted: number) => expect(Math.abs(at - wanted)).toBeLessThan(1_000);

test.each([hour, -hour, 0])("a machine %d ms off takes the database's time, and keeps it", async (offMs) => {
  const clock = systemClock();
  // Something asks for the time before the database was asked.
  clock.now();
  const base = timeBase({ engine: "postgres", now: async () => clock.local() - offMs }, clock);
  for (let round = 0; round < 3; round++) {
    expect(await base.sample()).toBeLessThan(1_000);
    near(clock.now(), clock.local() - offMs);
    near(clock.offset(), -offMs);
  }
});

test("later corrections never turn time back", async () => {
  const clock = systemClock();
  let offMs = 0;
  const base = timeBase({ engine: "postgres", now: async () => clock.local() - offMs }, clock);
  await base.sample();
  const before = clock.now();
  offMs = 5_000;
  await base.sample();
  expect(clock.now()).toBeGreaterThanOrEqual(before);
});

test("a file has this machine's time", async () => {
  const clock = systemClock();
  const base = timeBase({ engine: "libsql", now: () => Promise.reject(new Error("nobody asks")) }, clock);
  expect(await base.sample()).toBe(0);
  expect(clock.offset()).toBe(0);
});

test("a sample that was held up is taken again soon, one in time at the usual time", async () => {
  let elapsed = 0;
  let tripMs = 600;
  const clock = { ...systemClock(), elapsed: () => elapsed };
  const now = async () => {
    elapsed += tripMs;
    return clock.local();
  };
  const base = timeBase({ engine: "postgres", now }, clock);
  expect(await base.sampleOnce()).toEqual({ againInMs: 100 });
  expect(base.uncertaintyMs()).toBe(300);
  tripMs = 10;
  expect(await base.sampleOnce()).toEqual({});
  expect(base.uncertaintyMs()).toBe(5);
});
