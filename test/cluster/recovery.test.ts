import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { checkAll } from "../support/checkers.ts";
import { isNight } from "../support/night.ts";
import { engines, type SpawnedServer, spawnServer } from "../support/server.ts";
import { clock, storeOf } from "./load.ts";
import { leaseMsOf, patienceMsOf, recoveryScenes } from "./recovery-scenes.ts";
import { type Journal, makeJournal, stepsRepeated } from "./workers.ts";

/** For processes to begin, polls to be answered and loops to tick. */
const slackMs = 2_000;
/** For what goes on at once: sooner than after any time that the server waits for a sign of life. */
const atOnceMs = 1_000;

/** Both at night. */
const enginesAsked = engines.filter((engine) => isNight || engine === "libsql");

describe.each(enginesAsked)("on %s", (engine) => {
  // The times that ship, at night on one engine; else the same shares of a shorter lease.
  const configuredMs = isNight && engine === "postgres" ? 90_000 : 4_000;
  const leaseMs = leaseMsOf(configuredMs);
  let server: SpawnedServer;
  let journal: Journal;
  let scenes: ReturnType<typeof recoveryScenes>;

  beforeAll(async () => {
    server = await spawnServer({ engine, settings: { leaseMs: configuredMs } });
    journal = await makeJournal();
    scenes = recoveryScenes({ server, journal, leaseMs });
  }, 120_000);
  afterAll(async () => {
    await scenes?.stop();
    await server?.stop();
    await journal?.remove();
  }, 120_000);

  test("what a worker leaves goes on in time and once, and what it holds stays its own", async () => {
    const [killed, succeeded, beside, frozen, streamKilled, streamCut, blocked] = await Promise.all([
      scenes.killed(),
      scenes.succeeded(),
      scenes.beside(),
      scenes.frozen(),
      scenes.streamKilled(),
      scenes.streamCut(),
      scenes.blocked(),
    ]);
    expect(killed.output).toBe("killed-2");
    expect(killed.ms).toBeLessThan(leaseMs + slackMs);
    // The line of the step that was not over may have been on its way.
    expect(killed.lines.filter((line) => line !== "killed-1 two")).toEqual([
      ...["killed-1 begins", "killed-1 one", "killed-2 two"],
    ]);
    expect(killed.attemptLog).toMatchObject([
      { number: 1, workerId: "killed-2", outcome: "completed", executions: 2 },
    ]);
    expect(succeeded.output).toBe("same");
    expect(succeeded.ms).toBeLessThan(patienceMsOf(leaseMs) + slackMs);
    expect(beside).toEqual({ starts: ["twin"], output: "twin" });
    expect(frozen.ms).toBeLessThan(leaseMs + slackMs);
    expect(frozen).toMatchObject({ starts: ["frozen-1", "frozen-2"], output: "frozen-2" });
    expect(streamKilled.output).toBe("dead-stream-2");
    expect(streamKilled.ms).toBeLessThan(patienceMsOf(leaseMs) + slackMs);
    expect(streamCut.ms).toBeLessThan(slackMs);
    expect(streamCut).toMatchObject({ starts: ["cut-1"], output: "cut-1" });
    expect(blocked).toEqual({ starts: ["blocked-1"], output: "blocked-1" });
  }, 120_000);

  test("a stream that stays away gives back at once what its worker has not heard of, and the rest in time", async () => {
    const unheard = await scenes.streamUnheard();
    expect(unheard).toMatchObject({ before: [], output: "unheard-2" });
    expect(unheard.ms).toBeLessThan(atOnceMs);
    const gone = await scenes.streamGone();
    expect(gone.output).toBe("gone-2");
    // The end of its stream is a sign of death: it is waited for half as long as one whose name came anew.
    expect(gone.ms).toBeGreaterThanOrEqual(patienceMsOf(leaseMs) / 2);
    expect(gone.ms).toBeLessThan(patienceMsOf(leaseMs) + slackMs);
  }, 120_000);

  test("64 runs that were lost on the way when the server was killed go on in time, and those held stay", async () => {
    const { ms, again, completed } = await scenes.serverKilled();
    expect({ again, completed }).toEqual({ again: { lost: 64, kept: 8 }, completed: 72 });
    expect(ms).toBeLessThan(5_000);
    // libSQL's file is one process's.
    await server.terminate();
    const store = await storeOf(server.home);
    try {
      expect(await checkAll(store, { now: clock.now() })).toEqual([]);
    } finally {
      await store.close();
    }
    expect(stepsRepeated(await journal.lines())).toEqual([]);
  }, 120_000);
});
