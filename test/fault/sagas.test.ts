import { expect, test } from "bun:test";
import { engines } from "../support/engines.ts";
import { decisiveCases } from "./saga-points.ts";
import { runSagas } from "./sagas.ts";

// The short form of `bun run faults:saga`, on both stores at once.
test("what sagas reserved is released once, or listed, wherever worker or server is killed", async () => {
  const batches = (["worker", "server"] as const).map((victim) => ({ victim, cases: decisiveCases(victim) }));
  const size = batches.flatMap(({ cases }) => cases).length;
  const judged = engines.map(async (engine) => ({
    engine,
    found: await runSagas({ engine, batches, checkpointMs: 300, timeoutMs: 2_000 }),
  }));
  for (const { engine, found } of await Promise.all(judged)) {
    expect([engine, found.breaches]).toEqual([engine, []]);
    expect([found.kills, found.sagas]).toEqual([2, size]);
    // And that there was something to lose.
    expect(found.listed).toBeGreaterThan(0);
    expect(found.repeated).toBeGreaterThan(0);
  }
}, 120_000);
