import { expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { closeMsMax, closePartMsMax, closing } from "../../src/kit/closing.ts";
import { silentLog } from "../../src/kit/log.ts";

const stepMs = 100;
const never = () => new Promise<void>(() => {});

/** Lets time pass until the promise is settled; how long that took, and what it failed with. */
async function timed(clock: ReturnType<typeof testClock>, work: Promise<void>) {
  let state: { failures: string[] } | undefined;
  work.then(
    () => {
      state = { failures: [] };
    },
    (error: AggregateError) => {
      state = { failures: error.errors.map(String) };
    },
  );
  for (;;) {
    await new Promise((turn) => setImmediate(turn));
    if (state) return { ...state, tookMs: clock.elapsed() };
    await clock.advance(stepMs);
  }
}

test("parts are closed in the reverse order, one after the other, also behind one that fails", async () => {
  const clock = testClock();
  const closed: string[] = [];
  const all = closing({ clock, log: silentLog });
  for (const name of ["store", "bus", "loops"])
    all.push(name, async () => {
      await clock.sleep(500);
      closed.push(name);
      if (name === "bus") throw new Error("gone");
    });
  const { failures, tookMs } = await timed(clock, all.close());
  expect({ closed, failures }).toEqual({ closed: ["loops", "bus", "store"], failures: ["Error: gone"] });
  expect(tookMs).toBe(1_500);
});

test("a part that never ends is passed over, and named", async () => {
  const clock = testClock();
  const closed: string[] = [];
  const all = closing({ clock, log: silentLog });
  all.push("store", async () => void closed.push("store"));
  all.push("loops", never);
  all.push("edge", () => clock.sleep(20_000), 20_000);
  const { failures, tookMs } = await timed(clock, all.close());
  expect(closed).toEqual(["store"]);
  expect(failures).toEqual([`Error: loops was not closed within ${closePartMsMax} ms`]);
  expect(tookMs).toBe(20_000 + closePartMsMax);
});

test("all together have an end too, and each is begun", async () => {
  const clock = testClock();
  let begun = 0;
  const all = closing({ clock, log: silentLog });
  for (let number = 0; number < 20; number++)
    all.push(`part ${number}`, () => {
      begun++;
      return never();
    });
  const { failures, tookMs } = await timed(clock, all.close());
  expect([begun, failures.length]).toEqual([20, 20]);
  // A step of this clock for each that is begun when the time is up.
  expect(tookMs).toBeGreaterThanOrEqual(closeMsMax);
  expect(tookMs).toBeLessThan(closeMsMax + 20 * stepMs);
});
