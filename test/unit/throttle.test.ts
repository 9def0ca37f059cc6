import { describe, expect, test } from "bun:test";
import { openThrottle } from "../../src/domain/sessions/throttle.ts";
import { testClock } from "../../src/kit/clock.ts";
import type { Fault } from "../../src/kit/fault.ts";

function throttleOf() {
  const clock = testClock();
  const throttle = openThrottle({ clock, attemptsMax: 3, addressAttemptsMax: 5 });
  const letsIn = (account: string, address: string): boolean => {
    try {
      throttle.attempt(account, address);
      return true;
    } catch (error) {
      expect((error as Fault).kind).toBe("resource_exhausted");
      expect(Number((error as Fault).headers?.["Retry-After"])).toBeGreaterThan(0);
      return false;
    }
  };
  const tries = (address: () => string, count: number, account = "ada") =>
    Array.from({ length: count }, () => letsIn(account, address())).filter(Boolean).length;
  return { clock, throttle, tries, letsIn };
}

describe("attempts to log in", () => {
  test("are counted for an account and an address, and for an address as a whole, for a minute", async () => {
    const { clock, tries, letsIn } = throttleOf();
    expect(tries(() => "192.0.2.1", 10)).toBe(3);
    expect(letsIn("ada", "192.0.2.2")).toBe(true);
    expect(letsIn("grace", "192.0.2.1")).toBe(false);
    await clock.advance(60_000);
    expect(letsIn("ada", "192.0.2.1")).toBe(true);
  });

  test("that succeed are no guesses", () => {
    const { throttle, letsIn } = throttleOf();
    for (let turn = 0; turn < 20; turn++) {
      expect(letsIn("ada", "192.0.2.1")).toBe(true);
      throttle.succeeded("ada", "192.0.2.1");
    }
  });

  test("from all of one IPv6 network are one place's", () => {
    const { tries, letsIn } = throttleOf();
    let host = 0;
    expect(tries(() => `2001:db8:0:7::${(++host).toString(16)}`, 10)).toBe(3);
    expect(letsIn("ada", "2001:0DB8::7:1:2:3:4")).toBe(false);
    expect(letsIn("ada", "2001:db8:0:8::1")).toBe(true);
    // The old addresses in new clothes are as many as they were.
    expect(letsIn("ada", "::ffff:192.0.2.1")).toBe(true);
    expect(letsIn("ada", "::ffff:192.0.2.2")).toBe(true);
    expect(letsIn("ada", "::1")).toBe(true);
  });
});
