import { describe, expect, test } from "bun:test";
import { parseRfc3339, rfc3339, systemClock, testClock } from "../../src/kit/clock.ts";

describe("clock", () => {
  test("the system's follows the database, and never runs backwards", () => {
    const clock = systemClock();
    const before = clock.now();
    clock.setOffset(60_000);
    const ahead = clock.now();
    expect(ahead - before).toBeGreaterThanOrEqual(60_000);
    clock.setOffset(-60_000);
    expect(clock.now()).toBe(ahead);
    expect(clock.offset()).toBe(-60_000);
  });

  test("a sleep ends at once when it is aborted, before or during", async () => {
    const clock = testClock();
    const stop = new AbortController();
    const sleeping = clock.sleep(1_000, stop.signal);
    stop.abort();
    await sleeping;
    await clock.sleep(1_000, stop.signal);
    await systemClock().sleep(60_000, stop.signal);
  });

  test("a test's clock fires what is due, in order of time, and tells that time", async () => {
    const clock = testClock(0);
    const fired: string[] = [];
    const note = (name: string) => () => void fired.push(`${name}@${clock.now()}`);
    clock.after(30, note("c"));
    clock.after(10, () => {
      note("a")();
      clock.after(5, note("b"));
    });
    clock.after(99, note("late"));
    const cancel = clock.after(20, note("cancelled"));
    cancel();
    await clock.advance(50);
    expect(fired).toEqual(["a@10", "b@15", "c@30"]);
    expect(clock.now()).toBe(50);
  });

  test("RFC 3339 goes out in UTC and comes in from any offset", () => {
    expect(rfc3339(0)).toBe("1970-01-01T00:00:00.000Z");
    expect(parseRfc3339("1970-01-01T01:00:00+01:00")).toBe(0);
    expect(parseRfc3339("2024-02-29t12:00:00.5z")).toBe(Date.UTC(2024, 1, 29, 12, 0, 0, 500));
    expect(parseRfc3339("0004-02-29T23:59:59Z")).toBe(Date.parse("0004-02-29T23:59:59Z"));
    for (const wrong of [
      "",
      "2024-01-01",
      "yesterday",
      "2024-13-01T00:00:00Z",
      "2024-01-01 00:00:00Z",
      "2026-02-29T00:00:00Z",
      "2026-04-31T00:00:00Z",
      "2026-01-01T24:00:00Z",
      "2026-01-01T00:00:00+24:00",
    ])
      expect(parseRfc3339(wrong)).toBeUndefined();
  });
});
