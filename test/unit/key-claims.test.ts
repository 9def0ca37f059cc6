import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { claimKeys, type Keyed, nameOfKey } from "../../src/kit/key-claims.ts";

interface Item extends Keyed {
  id: number;
}

/** Who holds a key, and what for. */
type Keys = Map<string, { use: string; id: number }>;
/** The id that each item of a unit is answered; undefined for a unit that is refused. */
type Outcome = number[] | undefined;

const nameOf = ({ environmentId, key }: Item) => nameOfKey(environmentId, key!);

/** One unit after the other: what it has to come to. */
function oneByOne(units: readonly Item[][], taken: Keys): Outcome[] {
  return units.map((items) => {
    const mine: Keys = new Map();
    const ids: number[] = [];
    for (const item of items) {
      if (item.key === null) {
        ids.push(item.id);
        continue;
      }
      const first = taken.get(nameOf(item)) ?? mine.get(nameOf(item));
      if (first && first.use !== item.use) return undefined;
      if (!first) mine.set(nameOf(item), { use: item.use!, id: item.id });
      ids.push(first?.id ?? item.id);
    }
    for (const [name, holder] of mine) taken.set(name, holder);
    return ids;
  });
}

/** As a service does it: decide without asking, write, and decide again when a key that matters was used. */
function atOnce(
  units: readonly Item[][],
  taken: Keys,
  others: Keys[],
): { outcomes: Outcome[]; rounds: number } {
  const look = () =>
    new Map(
      [...taken].map(([name, { use, id }]) => {
        const [environment_id, key] = name.split("\n") as [string, string];
        return [name, { environment_id, key, function_id: use, id }];
      }),
    );
  let used: ReturnType<typeof look> | undefined;
  for (let rounds = 1; ; rounds++) {
    const claims = claimKeys(units, used);
    // Another node commits before this one does.
    for (const [name, holder] of others.shift() ?? []) if (!taken.has(name)) taken.set(name, holder);
    const fresh: Keys = new Map();
    const written = new Map<Item, number>();
    let lost = false;
    for (const item of claims.written) {
      const first = item.key === null ? undefined : (taken.get(nameOf(item)) ?? fresh.get(nameOf(item)));
      if (first && claims.bound.has(item)) lost = true;
      if (item.key === null) written.set(item, item.id);
      else if (!first) {
        fresh.set(nameOf(item), { use: item.use!, id: item.id });
        written.set(item, item.id);
      }
    }
    if (lost) {
      used = look();
      continue;
    }
    for (const [name, holder] of fresh) taken.set(name, holder);
    const answer = (item: Item): number | undefined => {
      const row = claims.repeats.get(item);
      if (row) return row.id;
      const first = claims.twins.get(item) ?? item;
      const id = written.get(first);
      if (id !== undefined) return id;
      const holder = taken.get(nameOf(first))!;
      return holder.use === item.use ? holder.id : undefined;
    };
    const outcomes = units.map((items, place): Outcome => {
      const ids = claims.refused.has(place) ? [undefined] : items.map(answer);
      return ids.includes(undefined) ? undefined : (ids as number[]);
    });
    return { outcomes, rounds };
  }
}

const keys = ["a", "b", "c", "d"];
const drawn = fc.record({ key: fc.option(fc.constantFrom(...keys)), use: fc.constantFrom("emit", "f") });
const crowd = fc.array(fc.array(drawn, { minLength: 1, maxLength: 4 }), { maxLength: 8 });
const taken = fc.dictionary(fc.constantFrom(...keys), fc.constantFrom("emit", "f"));

const itemsOf = (units: readonly (readonly { key: string | null; use: string }[])[]) => {
  let id = 0;
  return units.map((items) => items.map((one): Item => ({ ...one, id: ++id, environmentId: "env", at: "" })));
};
const keysOf = (uses: Record<string, string>, firstId: number): Keys =>
  new Map(Object.entries(uses).map(([key, use], at) => [nameOfKey("env", key), { use, id: firstId + at }]));

describe("who gets a key", () => {
  test("units that share a flush come to what they would one after the other", () => {
    fc.assert(
      fc.property(crowd, taken, (drawnUnits, before) => {
        const units = itemsOf(drawnUnits);
        const { outcomes, rounds } = atOnce(units, keysOf(before, 1_000), []);
        expect(outcomes).toEqual(oneByOne(units, keysOf(before, 1_000)));
        expect(rounds).toBeLessThanOrEqual(2);
      }),
      { numRuns: 3_000, seed: 1 },
    );
  });

  test("so they do when others take keys meanwhile; each of their commits costs one round", () => {
    fc.assert(
      fc.property(crowd, taken, taken, (drawnUnits, one, other) => {
        const units = itemsOf(drawnUnits);
        const others = [keysOf(one, 1_000), keysOf(other, 2_000)];
        const store: Keys = new Map();
        const left = [...others];
        const { outcomes, rounds } = atOnce(units, store, left);
        // Those that came in time were first.
        const first: Keys = new Map();
        for (const commit of others.slice(0, rounds))
          for (const [name, holder] of commit) if (!first.has(name)) first.set(name, holder);
        expect(outcomes).toEqual(oneByOne(units, first));
        expect(rounds).toBeLessThanOrEqual(3);
      }),
      { numRuns: 3_000, seed: 1 },
    );
  });

  test("no batch with a key, no decision: all is left to the store", () => {
    const units = itemsOf([
      [{ key: "a", use: "f" }],
      [{ key: "a", use: "emit" }],
      [{ key: null, use: "emit" }],
    ]);
    const { written, bound } = claimKeys(units);
    expect([written, bound.size]).toEqual([units.flat(), 0]);
  });
});
