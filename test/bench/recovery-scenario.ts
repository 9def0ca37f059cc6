import { leaseMsOf, recoveryScenes } from "../cluster/recovery-scenes.ts";
import { makeJournal } from "../cluster/workers.ts";
import { spawnServer } from "../support/server.ts";
import type { Engine, Figures } from "./figures.ts";
import type { Scenario } from "./scenarios.ts";

/** As the server ships. */
const configuredMs = 90_000;

const most = (figure: string, value: number) =>
  ({ figure, of: "most", value: { postgres: value, libsql: value } }) as const;

/** Not among the other scenarios: its servers and workers are its own, and no floor says anything of it. */
export const recoveryScenario: Pick<Scenario, "name" | "about" | "targets"> = {
  name: "recovery",
  about: "how long runs stand still, with the leases that ship, s",
  targets: [
    most("workerKilled", 12),
    most("succeeded", 5),
    most("workerFrozen", 12),
    most("streamKilled", 5),
    most("serverKilled", 5),
  ],
};

/**
 * Seconds that runs stand still: a worker is killed and another one waits; the same, since its successor of the same name is
 * ready; a worker freezes; a worker on a stream is killed; the server is killed, the last of 64 runs on their way since it listens again.
 */
export async function recovery(engine: Engine): Promise<Figures> {
  const server = await spawnServer({ engine, settings: { leaseMs: configuredMs } });
  const journal = await makeJournal();
  const scenes = recoveryScenes({ server, journal, leaseMs: leaseMsOf(configuredMs) });
  try {
    return {
      workerKilled: (await scenes.killed()).ms / 1_000,
      succeeded: (await scenes.succeeded()).ms / 1_000,
      workerFrozen: (await scenes.frozen()).ms / 1_000,
      streamKilled: (await scenes.streamKilled()).ms / 1_000,
      serverKilled: (await scenes.serverKilled()).ms / 1_000,
    };
  } finally {
    await scenes.stop();
    await server.stop();
    await journal.remove();
  }
}
