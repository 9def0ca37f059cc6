import { expect, test } from "bun:test";
import { engines } from "../support/engines.ts";
import { decisiveCases } from "./saga-points.ts";
import { runSagas } from "./sagas.ts";

// The short form of `bun run faults:saga`.
test.each(engines)(
  "what sagas reserved is released once, or listed, wherever worker or server is killed, on %s",
  async (engine) => {
    const batches = (["worker", "server"] as const).map((victim) => ({
      victim,
      cases: decisiveCases(victim),
    }));
    const found = await runSagas({ engine, batches, checkpointMs: 300, timeoutMs: 3_000 });
    expect(found.breaches).toEqual([]);
    expect([found.kills, found.sagas]).toEqual([2, batches.flatMap(({ cases }) => cases).length]);
    // And that there was something to lose.
    expect(found.listed).toBeGreaterThan(0);
    expect(found.repeated).toBeGreaterThan(0);
  },
  90_000,
);
