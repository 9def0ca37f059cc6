/**
 * `bun run bench:recovery [--engine postgres|libsql]`: how long runs stand still when their worker, its stream or the
 * server is lost, with the leases that ship.
 */
import { parseArgs } from "node:util";
import { leaseMsOf, recoveryScenes } from "../cluster/recovery-scenes.ts";
import { makeJournal } from "../cluster/workers.ts";
import { type EngineName, spawnServer } from "../support/server.ts";

const { values } = parseArgs({ options: { engine: { type: "string", default: "postgres" } } });
const configuredMs = 90_000;
const server = await spawnServer({
  engine: values.engine as EngineName,
  settings: { leaseMs: configuredMs },
});
const journal = await makeJournal();
const scenes = recoveryScenes({ server, journal, leaseMs: leaseMsOf(configuredMs) });
const show = (what: string, { ms }: { ms: number }) =>
  console.log(`${(ms / 1_000).toFixed(2).padStart(6)} s  ${what}`);
try {
  show("a worker is killed, and another one waits", await scenes.killed());
  show("a worker is killed, since its successor of the same name is ready", await scenes.succeeded());
  show("a worker freezes, and another one waits", await scenes.frozen());
  show("a worker on a stream is killed, and another one waits", await scenes.streamKilled());
  show(
    "the server is killed: the last of 64 runs on their way, since it listens again",
    await scenes.serverKilled(),
  );
} finally {
  await scenes.stop();
  await server.stop();
  await journal.remove();
}
