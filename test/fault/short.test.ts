import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { isNight } from "../support/night.ts";
import { isSoak, seed } from "../support/soak.ts";
import { chanceOf, faults } from "./faults.ts";
import { pairsOf, runRound } from "./rounds.ts";
import { startWorld, type World } from "./world.ts";

// The short mode of `bun run faults`: faults that take no patience, once, two that harm different things at once; every fifth
// pair by day, all at night. As a soak each for itself, those that take patience too.
describe("faults under load", () => {
  let world: World;
  beforeAll(async () => {
    world = await startWorld();
  }, 120_000);
  afterAll(() => world?.stop(), 60_000);

  const pairs = pairsOf(faults.filter((fault) => !fault.slow)).filter((_, at) => isNight || at % 5 === 0);
  const rounds = isSoak ? faults.map((fault) => [fault]) : pairs;
  test.each(rounds.map((round) => [round.map(({ name }) => name).join(" while "), round] as const))(
    "%s",
    async (_, chosen) => {
      const round = await runRound(world, chosen, chanceOf(seed), true);
      expect(round.breaches).toEqual([]);
      expect(round.acked).toBeGreaterThan(0);
    },
    200_000,
  );
});
