import { expect, test } from "bun:test";
import { plants } from "./plants.ts";
import { everything, simulate } from "./world.ts";

const seeds = (count: number) => Array.from({ length: count }, (_, place) => String(place + 1));

test("every promise holds in 100 worlds", async () => {
  const wrong: string[] = [];
  for (const seed of seeds(100)) {
    const { faults } = await simulate({ seed, features: everything });
    wrong.push(...faults.map((fault) => `seed ${seed}: ${fault}`));
  }
  expect(wrong).toEqual([]);
}, 1_200_000);

test("a seed replays exactly", async () => {
  for (const seed of seeds(5)) {
    const said: string[][] = [[], []];
    const results = [];
    for (const lines of said)
      results.push(await simulate({ seed, features: everything, say: (line) => lines.push(line) }));
    expect(results[0]).toEqual(results[1]!);
    expect(said[0]).toEqual(said[1]!);
  }
}, 600_000);

for (const [name, plant] of Object.entries(plants))
  test(`the planted bug "${name}" is found within 500 seeds`, async () => {
    for (const seed of seeds(500)) {
      const { faults } = await simulate({ seed, features: everything, plant });
      if (faults.length > 0) return;
    }
    throw new Error("not found");
  }, 1_200_000);
