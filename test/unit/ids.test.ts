import { describe, expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";

describe("ids", () => {
  test("carry their kind and 26 characters", () => {
    const ids = systemIds(testClock());
    for (const kind of ["evt", "run", "prole"] as const)
      expect(ids.next(kind)).toMatch(new RegExp(`^${kind}_[0-9a-hjkmnp-tv-z]{26}$`));
    expect(ids.uuid()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(ids.secret(24)).toMatch(/^[0-9a-f]{48}$/);
  });

  test("sort by creation, within a millisecond and when the clock steps back", async () => {
    let now = 1_700_000_000_000;
    const ids = systemIds({ now: () => now });
    const made: string[] = [];
    for (let round = 0; round < 20_000; round++) {
      if (round % 4_000 === 3_999) now += round % 8_000 === 7_999 ? -5 : 1;
      made.push(ids.next("run"));
    }
    expect(made).toEqual([...made].sort());
    expect(new Set(made).size).toBe(made.length);
  });

  test("of two processes in the same millisecond differ", () => {
    const one = systemIds(testClock(5));
    const other = systemIds(testClock(5));
    const made = Array.from({ length: 1_000 }, () => [one.next("run"), other.next("run")]).flat();
    expect(new Set(made).size).toBe(2_000);
  });
});
