import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chanceOf, faults } from "./faults.ts";
import { runRound } from "./rounds.ts";
import { startWorld, type World } from "./world.ts";

/** Another one each time, so that months of runs try many; said, so that each can be had again. */
const seed = Number(process.env.SVC_TEST_SEED ?? Math.floor(Math.random() * 1e9));

// The short mode of `bun run faults`: every fault that takes no patience, once.
describe("faults under load", () => {
  let world: World;
  beforeAll(async () => {
    console.log(`SVC_TEST_SEED=${seed}`);
    world = await startWorld();
  }, 120_000);
  afterAll(() => world?.stop(), 60_000);

  const quick = faults.filter((fault) => !fault.slow);
  test.each(quick.map((fault) => [fault.name, fault] as const))(
    "%s",
    async (_, fault) => {
      const round = await runRound(world, [fault], chanceOf(seed), false);
      expect(round.breaches).toEqual([]);
      expect(round.acked).toBeGreaterThan(0);
    },
    200_000,
  );
});
