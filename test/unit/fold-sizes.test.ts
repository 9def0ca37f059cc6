import { expect, test } from "bun:test";
import { FoldSizes } from "../../src/domain/state/projections/fold-sizes.ts";
import { foldEventsMax } from "../../src/domain/state/projections/limits.ts";

const of = (name: string, generation = 1) => ({ environment_id: "env", name, generation });

/** A projection whose events take `eventMs` each, and whose statements are cut off after ten seconds. */
function folding(eventMs: number) {
  let now = 0;
  const sizes = new FoldSizes({ elapsed: () => now });
  const counts: number[] = [];
  const turn = (count = foldEventsMax) => {
    const some = Math.min(count, sizes.of(of("slow")));
    counts.push(some);
    return sizes.timed(of("slow"), some, async () => {
      const tookMs = some * eventMs;
      now += Math.min(10_000, tookMs);
      return tookMs <= 10_000 ? { did: "folded" } : { did: "failed", position: 0, message: "took too long" };
    });
  };
  return { sizes, counts, turn };
}

test("a slow projection keeps the size that fits, and does not begin with a whole batch again", async () => {
  const { sizes, counts, turn } = folding(1_000);
  for (let turns = 0; turns < 14; turns++) await turn();
  expect(counts).toEqual([1000, 500, 250, 125, 63, 32, 16, 8, 4, 2, 1, 1, 1, 1]);
  expect(sizes.of(of("other"))).toBe(foldEventsMax);
  expect(sizes.of(of("slow", 2))).toBe(foldEventsMax);
});

test("a projection that is quick again comes back to whole batches; a few events tell nothing of many", async () => {
  const slow = folding(1_000);
  for (let turns = 0; turns < 11; turns++) await slow.turn();
  const { sizes } = slow;
  const quick = (count: number) => sizes.timed(of("slow"), count, async () => ({ did: "folded" }));
  for (let turns = 0; turns < 9; turns++) await quick(sizes.of(of("slow")));
  expect(sizes.of(of("slow"))).toBe(512);
  await quick(3);
  expect(sizes.of(of("slow"))).toBe(512);
  await quick(512);
  expect(sizes.of(of("slow"))).toBe(foldEventsMax);
});

test("an event that is refused says nothing of the size", async () => {
  const { sizes } = folding(1);
  await sizes.timed(of("slow"), 100, async () => ({ did: "failed", position: 7, message: "no such column" }));
  expect(sizes.of(of("slow"))).toBe(foldEventsMax);
});
