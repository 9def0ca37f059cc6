import { expect, test } from "bun:test";
import { openWakeLooks } from "../../src/domain/engine/runs/wakes/wake-work.ts";
import { testClock } from "../../src/kit/clock.ts";
import { WholeLooks } from "../../src/kit/whole-looks.ts";
import type { Store } from "../../src/store/store.ts";

const startAt = 1_000_000_000;

/** A store whose look for the next wake takes `tookMs` and finds `next`. */
function looking({ tookMs, next }: { tookMs: number; next?: number }) {
  const clock = testClock(startAt);
  const froms: (number | undefined)[] = [];
  const place = { tookMs, next, isPardoning: false };
  const store = {
    async one() {
      await clock.advance(place.tookMs);
      return { at: place.next ?? null };
    },
  } as unknown as Store;
  const look = openWakeLooks(
    { store, clock },
    {
      moveDue: async (from) => void froms.push(from),
      isPardoning: () => place.isPardoning,
    },
  );
  return { clock, froms, place, look };
}

test("a look at all wakes takes a hundredth of the time; the others begin where it found the first", async () => {
  const { clock, froms, place, look } = looking({ tookMs: 10, next: startAt - 60_000 });
  const first = startAt - 60_000;
  for (let round = 0; round < 6; round++) {
    await look();
    await clock.advance(290);
  }
  expect(froms).toEqual([undefined, undefined, first, first, first, undefined]);
  froms.length = 0;
  place.tookMs = 100;
  for (let round = 0; round < 14; round++) {
    await look();
    await clock.advance(900);
  }
  // Every ten seconds by their share, and after five in any case.
  expect(froms.map((from) => from === undefined)).toEqual(
    [0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0].map(Boolean),
  );
});

test("looks that cost nothing are at all wakes", async () => {
  const { clock, froms, look } = looking({ tookMs: 0, next: startAt + 60_000 });
  for (let round = 0; round < 3; round++) {
    await look();
    await clock.advance(20);
  }
  expect(froms).toEqual([undefined, undefined, undefined]);
});

test("what is planned for later moves no look beyond what may be written late", async () => {
  const { froms, look } = looking({ tookMs: 10, next: startAt + 60_000 });
  for (let round = 0; round < 3; round++) await look();
  expect(froms).toEqual([undefined, undefined, startAt - 10_000 + 10]);
});

test("one that is asked for is at all wakes", async () => {
  const { froms, look } = looking({ tookMs: 10 });
  for (const isAsked of [false, false, false, true, false]) await look(isAsked);
  const [third, last] = [10, 30].map((ms) => startAt - 10_000 + ms);
  expect(froms).toEqual([undefined, undefined, third, undefined, last]);
});

test("while leases are pardoned, each look is at all wakes and none is planned", async () => {
  const { froms, place, look } = looking({ tookMs: 10, next: startAt - 1 });
  place.isPardoning = true;
  expect([await look(), await look()]).toEqual([{}, {}]);
  expect(froms).toEqual([undefined, undefined]);
});

test("a look says when the next wake is due, and not at once where what is due is held by others", async () => {
  const { place, look } = looking({ tookMs: 0, next: startAt + 5_000 });
  expect(await look()).toEqual({ againInMs: 5_000 });
  place.next = startAt - 5_000;
  expect(await look()).toEqual({ againInMs: 20 });
  place.next = undefined;
  expect(await look()).toEqual({});
});

test("whole looks come as often as asked for, and rarer where two in a row take long", () => {
  const looks = new WholeLooks({ everyMs: 100, shareMax: 0.1 });
  const begun: number[] = [];
  for (let now = 0; now < 2_000; now += 10)
    if (looks.begins(now)) {
      begun.push(now);
      looks.took(now === 100 || now >= 300 ? 40 : 1);
    }
  expect(begun).toEqual([0, 100, 200, 300, 400, 800, 1_200, 1_600]);
});
