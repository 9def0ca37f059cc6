import { expect, test } from "bun:test";
import { isSoak, seed } from "../support/soak.ts";
import { runFolds } from "./folds.ts";

// The short mode of `bun run faults:projections`.
test(
  "a projection is the fold of its log, whatever becomes of runners, a node and the database, and readers see no half of it",
  async () => {
    const events = isSoak ? 100_000 : 8_000;
    const kills = isSoak ? 9 : 3;
    const found = await runFolds({ events, kills, seed: `${seed}`, settleMs: 120_000, isPatient: isSoak });
    expect(found.breaches).toEqual([]);
    // And that there was something to be found in.
    const { runnersKilled, nodesKilled, databaseKills, generation } = found;
    expect([found.events, runnersKilled, generation]).toEqual([events, kills, 2]);
    expect([nodesKilled, databaseKills]).toEqual([kills / 3, kills / 3]);
    expect(found.reads).toBeGreaterThan(100);
  },
  isSoak ? 900_000 : 200_000,
);
