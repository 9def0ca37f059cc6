import { describe, expect, test } from "bun:test";
import { testClock } from "../../src/kit/clock.ts";
import { roundRobin, type SharedWork, type WorkScope } from "../../src/kit/round-robin.ts";
import { sizedCache } from "../../src/kit/ttl-cache.ts";

interface Part extends WorkScope {
  part: string;
}

/** Work as counts by environment and part, longest due first; `got` is what each slice took, in order. */
function piles(due: Record<string, Record<string, number>>, tookMs = 0) {
  const clock = testClock(0);
  const left = structuredClone(due);
  const got: Record<string, number>[] = [];
  let looks = 0;
  const take = (environmentId: string, part: string, most: number): number => {
    const count = Math.min(most, left[environmentId]![part] ?? 0);
    left[environmentId]![part]! -= count;
    const slice = got.at(-1)!;
    slice[environmentId] = (slice[environmentId] ?? 0) + count;
    return count;
  };
  const work: SharedWork<Part> = {
    async oldest(limit) {
      got.push({});
      await clock.advance(tookMs);
      let rest = limit;
      for (const [id, parts] of Object.entries(left))
        for (const part of Object.keys(parts)) rest -= take(id, part, rest);
      return { found: limit - rest, taken: limit - rest };
    },
    async scopes() {
      looks++;
      return Object.entries(left).flatMap(([environmentId, parts]) =>
        Object.keys(parts).flatMap((part) => (parts[part]! > 0 ? { environmentId, part } : [])),
      );
    },
    async claim(turns) {
      got.push({});
      await clock.advance(tookMs);
      return turns.map(({ scope: place, quota }) => take(place.environmentId, place.part, quota));
    },
  };
  return { work, got, left, clock, looks: () => looks };
}

const sum = (slice: Record<string, number>) => Object.values(slice).reduce((all, one) => all + one, 0);

describe("due work of many environments", () => {
  test("what fits into one slice is taken by its time, and nothing else is asked", async () => {
    const { work, got, clock, looks } = piles({ a: { x: 6 }, b: { x: 3 } });
    expect(await roundRobin([work], { clock, limit: 10 })).toBe(true);
    expect(got).toEqual([{ a: 6, b: 3 }]);
    expect(looks()).toBe(0);
  });

  test("when there is more, each has an equal share of a slice, and all of it when it is alone", async () => {
    const { work, got, clock, left } = piles({ a: { x: 500 }, b: { x: 30 }, c: { x: 1 } });
    expect(await roundRobin([work], { clock, limit: 90 })).toBe(true);
    expect(got[0]).toEqual({ a: 90, b: 0, c: 0 });
    expect(got[1]).toEqual({ a: 30, b: 30, c: 1 });
    expect(got.slice(3).every((slice) => slice.b === undefined || slice.b === 0)).toBe(true);
    expect(got.some((slice) => slice.a === 90 && slice !== got[0])).toBe(true);
    expect(left).toEqual({ a: { x: 0 }, b: { x: 0 }, c: { x: 0 } });
  });

  test("a backlog that grows as fast as it is claimed holds up no other work", async () => {
    const steady = piles({ a: { x: 90 } });
    const later = piles({ b: { y: 0 } });
    let rounds = 0;
    const growing: SharedWork<Part> = {
      ...steady.work,
      async claim(turns) {
        if (++rounds === 3) later.left.b!.y = 7;
        // It ends once the other work is done, and does not end without it.
        if (later.left.b!.y! > 0 || rounds < 3) steady.left.a!.x! += 10;
        if (rounds > 1_000) throw new Error("nobody looks at the other work");
        return steady.work.claim(turns);
      },
    };
    const busy = {
      ...growing,
      oldest: (limit: number) => growing.claim([{ scope, quota: limit }]).then(taken),
    };
    const scope = { environmentId: "a", part: "x" };
    const taken = ([count = 0]: readonly number[]) => ({ found: count, taken: count });
    expect(await roundRobin([busy, later.work], { clock: steady.clock, limit: 10 })).toBe(true);
    expect(later.left).toEqual({ b: { y: 0 } });
  });

  test("an environment has one share, in however many places its work is", async () => {
    const many = Object.fromEntries(Array.from({ length: 300 }, (_, at) => [`p${at}`, 5]));
    const { work, got, clock, left } = piles({ a: many, b: { x: 400 } });
    expect(await roundRobin([work], { clock, limit: 100 })).toBe(true);
    for (const slice of got.slice(1, 5)) expect(slice).toMatchObject({ a: 50, b: 50 });
    expect(Object.values(left.a!).every((count) => count === 0)).toBe(true);
    for (const slice of got) expect(sum(slice)).toBeLessThanOrEqual(100);
  });

  test("more environments than a slice has room for all have their turn in one round", async () => {
    const all = Object.fromEntries(Array.from({ length: 25 }, (_, at) => [`e${at}`, { x: 2 }]));
    const { work, got, clock } = piles(all);
    expect(await roundRobin([work], { clock, limit: 10 })).toBe(true);
    const first = got.slice(1, 4).flatMap((slice) => Object.keys(slice));
    // Five were served as the longest due.
    expect(new Set(first).size).toBe(20);
    for (const slice of got) expect(sum(slice)).toBeLessThanOrEqual(10);
  });

  test("no round begins when its time is over, and it says that there is more", async () => {
    const { work, clock, left } = piles({ a: { x: 1_000 } }, 100);
    expect(await roundRobin([work], { clock, limit: 10, msMax: 250 })).toBe(false);
    expect(left.a!.x).toBe(970);
  });

  test("one work does not wait until there is no more of the other", async () => {
    const { work, got, clock } = piles({ a: { x: 500 } });
    const other = piles({ b: { x: 15 } });
    const gotBefore: number[] = [];
    const second: SharedWork<Part> = {
      ...other.work,
      oldest(limit) {
        gotBefore.push(got.length);
        return other.work.oldest(limit);
      },
    };
    expect(await roundRobin([work, second], { clock, limit: 10 })).toBe(true);
    // Once in each round, also when nothing was there the last time.
    expect(gotBefore).toEqual(Array.from({ length: 50 }, (_, round) => round + 1));
    expect([sum(got.at(-2)!), other.left]).toEqual([10, { b: { x: 0 } }]);
  });

  test("a slow look-up of one work keeps the other from no turn", async () => {
    const { work, got, clock } = piles({ a: { x: 500 }, b: { x: 500 } }, 1);
    const other = piles({ c: { x: 300 }, d: { x: 1 } });
    const gotBefore: number[] = [];
    const slow: SharedWork<Part> = {
      ...work,
      async scopes() {
        await clock.advance(100);
        return work.scopes();
      },
    };
    const second: SharedWork<Part> = {
      ...other.work,
      claim(turns) {
        gotBefore.push(got.length);
        return other.work.claim(turns);
      },
    };
    expect(await roundRobin([slow, second], { clock, limit: 10 })).toBe(true);
    expect(gotBefore[0]).toBe(2);
    expect(other.left).toEqual({ c: { x: 0 }, d: { x: 0 } });
  });

  test("what is in other hands ends it", async () => {
    const { work, clock } = piles({ a: { x: 30 } });
    const held: SharedWork<Part> = {
      ...work,
      oldest: async (limit) => ({ found: limit, taken: 0 }),
      claim: async (turns) => turns.map(() => 0),
    };
    expect(await roundRobin([held], { clock, limit: 10 })).toBe(true);
  });
});

test("what is kept is bounded in number and in size, and the last one stays", () => {
  const kept = sizedCache<number>({ entriesMax: 3, charsMax: 100 });
  for (const at of [1, 2, 3, 4]) kept.set(`k${at}`, at, 10);
  expect([1, 2, 3, 4].map((at) => kept.get(`k${at}`))).toEqual([undefined, 2, 3, 4]);
  kept.set("large", 5, 85);
  expect([2, 3, 4].map((at) => kept.get(`k${at}`))).toEqual([undefined, undefined, 4]);
  kept.set("huge", 6, 1_000);
  expect([kept.get("k4"), kept.get("large"), kept.get("huge")]).toEqual([undefined, undefined, 6]);
  kept.set("huge", 7, 1);
  kept.set("small", 8, 1);
  expect([kept.get("huge"), kept.get("small")]).toEqual([7, 8]);
  kept.delete("huge");
  expect(kept.get("huge")).toBeUndefined();
});
