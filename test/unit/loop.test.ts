import { describe, expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { type LoopOptions, loop } from "../../src/kit/loop.ts";

function started(tick: LoopOptions["tick"], more: Partial<LoopOptions> = {}) {
  const clock = testClock(0);
  const errors: unknown[] = [];
  const made = loop(
    { clock, onError: (_, error) => errors.push(error) },
    { name: "test", about: "Tested.", everyMs: 1_000, tick, ...more },
  );
  made.start();
  return { clock, errors, loop: made };
}

const settle = async () => {
  for (let round = 0; round < 10; round++) await Promise.resolve();
};

describe("loop", () => {
  test("ticks at once, then every so often, and sooner when a tick asks for it", async () => {
    const at: number[] = [];
    const { clock, loop: l } = started(async () => {
      at.push(clock.now());
      return at.length === 2 ? { againInMs: 10 } : undefined;
    });
    for (let round = 0; round < 250; round++) {
      await clock.advance(10);
      await settle();
    }
    expect(at).toEqual([0, 1_000, 1_010, 2_010]);
    expect(l.progressAt()).toBe(at[3] as number);
    await l.stop();
  });

  test("what failed in a row is told until a round is good, without the values that the error quotes", async () => {
    let error: Error | undefined = Object.assign(new Error('recursive query "found" has\na value'), {
      code: "42P21",
    });
    const { clock, loop: l } = started(async () => {
      if (error) throw error;
    });
    await settle();
    await clock.advance(100);
    await settle();
    expect(l.failing()).toEqual({ rounds: 2, error: "42P21 recursive query … has" });
    error = undefined;
    await clock.advance(200);
    await settle();
    expect([l.failing(), l.failures()]).toEqual([undefined, 2]);
    await l.stop();
  });

  test("a tick that took long is followed by a longer rest, but where somebody asks", async () => {
    const at: number[] = [];
    let finish = () => {};
    const { clock, loop: l } = started(
      () => {
        at.push(clock.now());
        return new Promise<void>((resolve) => {
          finish = resolve;
        });
      },
      { shareMax: 0.1 },
    );
    const takes = async (ms: number) => {
      await clock.advance(ms);
      finish();
      await settle();
    };
    await clock.advance(0);
    await takes(300);
    await clock.advance(2_999);
    expect(at).toEqual([0]);
    await clock.advance(1);
    await takes(20);
    await clock.advance(1_000);
    await takes(300);
    l.wake();
    expect(at).toEqual([0, 3_300, 4_320, 4_620]);
    finish();
    await l.stop();
  });

  test("a tick knows whether it was asked for by name", async () => {
    const asked: (boolean | undefined)[] = [];
    const { clock, loop: l } = started(async (isAsked) => void asked.push(isAsked));
    await clock.advance(0);
    await settle();
    await l.tick();
    l.wake();
    await settle();
    expect(asked).toEqual([false, true, false]);
    await l.stop();
  });

  test("asks during a tick make one more", async () => {
    let ticks = 0;
    let finish = () => {};
    const { clock, loop: l } = started(() => {
      ticks++;
      return new Promise<void>((resolve) => {
        finish = resolve;
      });
    });
    await clock.advance(0);
    for (let round = 0; round < 5; round++) l.wake();
    expect(ticks).toBe(1);
    finish();
    await settle();
    expect(ticks).toBe(2);
    finish();
    await settle();
    expect(ticks).toBe(2);
    await l.stop();
  });

  test("what a tick besides the loop's own throws is its asker's, and the loop goes on", async () => {
    let broken = false;
    let ticks = 0;
    const {
      clock,
      loop: l,
      errors,
    } = started(async () => {
      ticks++;
      if (broken) throw new Error("down");
    });
    await clock.advance(0);
    await settle();
    broken = true;
    await expect(l.tick()).rejects.toThrow("down");
    broken = false;
    await clock.advance(1_000);
    await settle();
    expect([ticks, errors]).toEqual([3, []]);
    await l.stop();
  });

  test("an error is survived, counted, and tried again ever later; asks do not hurry it", async () => {
    let broken = true;
    let ticks = 0;
    const {
      clock,
      loop: l,
      errors,
    } = started(async () => {
      ticks++;
      if (broken) throw new Error("down");
    });
    await clock.advance(0);
    await settle();
    for (let round = 0; round < 100; round++) l.wake();
    expect(ticks).toBe(1);
    for (let round = 0; round < 30; round++) {
      await clock.advance(100);
      await settle();
    }
    expect(ticks).toBeLessThan(8);
    expect(l.failures()).toBe(errors.length);
    expect(l.progressAt()).toBeUndefined();
    broken = false;
    await clock.advance(5_000);
    await settle();
    expect(l.progressAt()).toBeDefined();
    await l.stop();
  });

  test("stop waits for the tick under way, and nothing follows", async () => {
    let ticks = 0;
    let finish = () => {};
    const { clock, loop: l } = started(() => {
      ticks++;
      return new Promise<void>((resolve) => {
        finish = resolve;
      });
    });
    await clock.advance(0);
    l.wake();
    let stopped = false;
    const stopping = l.stop().then(() => {
      stopped = true;
    });
    await settle();
    expect(stopped).toBe(false);
    finish();
    await stopping;
    await clock.advance(60_000);
    expect(ticks).toBe(1);
  });

  test("a tick beside the plan is alone: behind the one under way, before the next", async () => {
    const said: string[] = [];
    let finish = () => {};
    let count = 0;
    const { clock, loop: l } = started(async () => {
      const name = `tick ${++count}`;
      said.push(`${name} begins`);
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      said.push(`${name} ends`);
    });
    await clock.advance(0);
    const asked = l.tick().then(() => said.push("answered"));
    await settle();
    expect(said).toEqual(["tick 1 begins"]);
    finish();
    await settle();
    // Due meanwhile, and asked for: neither begins beside it.
    await clock.advance(5_000);
    l.wake();
    await settle();
    expect(said).toEqual(["tick 1 begins", "tick 1 ends", "tick 2 begins"]);
    finish();
    await asked;
    await settle();
    expect(said.slice(3)).toEqual(["tick 2 ends", "tick 3 begins", "answered"]);
    finish();
    await settle();
    await clock.advance(1_000);
    await settle();
    expect(said.at(-1)).toBe("tick 4 begins");
    finish();
    await l.stop();
  });
});
