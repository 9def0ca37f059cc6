import { expect, test } from "bun:test";
import { testClock, whenDue } from "../../src/kit/clock.ts";

const clock = testClock(1_000);

/** Work that is due at these times; what is held elsewhere stays due. */
const tickOf = (dueAt: number[], { isHeld = false } = {}) => {
  const asked = { reads: 0, moves: 0 };
  const tick = () =>
    whenDue(clock, {
      async nextAt() {
        asked.reads++;
        return dueAt[0];
      },
      async move() {
        asked.moves++;
        if (!isHeld) while (dueAt[0] !== undefined && dueAt[0] <= clock.now()) dueAt.shift();
      },
    });
  return { asked, tick };
};

test("nothing is moved before it is due, and the loop comes back then", async () => {
  for (const [dueAt, answer] of [
    [[], {}],
    [[1_500, 1_700], { againInMs: 500 }],
  ] as const) {
    const { asked, tick } = tickOf([...dueAt]);
    expect(await tick()).toEqual(answer);
    expect(asked).toEqual({ reads: 1, moves: 0 });
  }
});

test("what is due is moved, and the loop comes back for the next", async () => {
  const { asked, tick } = tickOf([400, 1_000, 1_001, 9_000]);
  // A loop does not spin for a millisecond.
  expect(await tick()).toEqual({ againInMs: 20 });
  clock.advance(1);
  expect(await tick()).toEqual({ againInMs: 7_999 });
  expect(asked).toEqual({ reads: 4, moves: 2 });
});

test("what is held elsewhere is tried again, and the loop does not spin", async () => {
  const { asked, tick } = tickOf([400], { isHeld: true });
  expect(await tick()).toEqual({ againInMs: 20 });
  expect(asked.moves).toBe(1);
});
