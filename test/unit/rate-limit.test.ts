import { expect, test } from "bun:test";
import { rateLimit } from "../../src/edge/publish-pace.ts";
import type { Caller } from "../../src/kit/caller.ts";
import { testClock } from "../../src/kit/clock.ts";

const caller = (id: string): Caller => ({ kind: "key", id, orgId: "org_a", roles: [] });

test("a key may burst, then keeps to its rate; others are not touched, and time gives it back", async () => {
  const clock = testClock();
  const limit = rateLimit({ clock, perSecond: 2, burst: 4 });
  const passes = (id: string) => {
    try {
      limit(caller(id));
      return true;
    } catch {
      return false;
    }
  };
  expect([1, 2, 3, 4, 5].map(() => passes("ak_a"))).toEqual([true, true, true, true, false]);
  expect(passes("ak_b")).toBe(true);
  await clock.advance(500);
  expect([passes("ak_a"), passes("ak_a")]).toEqual([true, false]);
  await clock.advance(3_600_000);
  expect([1, 2, 3, 4, 5].map(() => passes("ak_a"))).toEqual([true, true, true, true, false]);
  for (let n = 0; n < 20; n++) limit(caller(""));
});
