import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { giveToServerUser } from "../../cluster/programs.ts";
import { type Disk, makeDisk } from "../support/disk.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { removeFolder, run } from "../support/process.ts";
import {
  type EngineName,
  type Home,
  makeHomeAt,
  type SpawnedServer,
  spawnServer,
} from "../support/server.ts";

const megabytes = { libsql: 24, postgres: 160 };

/** A server whose database lies on a small disk of its own. */
export interface SmallDiskWorld {
  disk: Disk;
  home: Home;
  server: SpawnedServer;
  /** Where the engine is PostgreSQL. */
  postgres?: PostgresServer;
  /** Both probes in one: how they answer, and why. */
  probed(): Promise<{ statuses: number[]; reasons: string[] }>;
  stop(): Promise<void>;
}

const serverUser = "postgresql-15";

/** A folder of PostgreSQL's user that lies where the tests' files do. */
async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "svc-pg-part-"));
  giveToServerUser(folder, serverUser);
  return folder;
}

/**
 * On PostgreSQL its tables or its log lie on the disk, and the other part elsewhere: without room for its log the server ends
 * itself, without room for its tables it goes on and refuses.
 */
export async function startOnSmallDisk(
  engine: EngineName,
  onDisk: "tables" | "log" = "tables",
): Promise<SmallDiskWorld> {
  const disk = await makeDisk({ megabytes: megabytes[engine] });
  const undo: (() => unknown)[] = [() => disk.remove()];
  const stop = async () => {
    for (const step of undo.splice(0).reverse()) await step();
  };
  try {
    let postgres: PostgresServer | undefined;
    if (engine === "postgres") {
      const elsewhere = await newFolder();
      undo.push(() => removeFolder(elsewhere));
      const [tables, log] = onDisk === "tables" ? [disk.folder, elsewhere] : [elsewhere, disk.folder];
      const made = await startPostgres({ folder: tables });
      undo.push(() => made.stop());
      await made.shutDown();
      const own = join(made.dataDir, "pg_wal");
      const moved = join(log, "pg_wal");
      await run(["mv", own, moved]);
      await run(["ln", "-s", moved, own]);
      await made.restart();
      postgres = made;
    }
    const home = await makeHomeAt(await postgres?.createDatabase(), disk.folder);
    undo.push(() => home.remove());
    const server = await spawnServer({ engine, home });
    undo.push(() => server.stop());
    const probed = async () => {
      const [ready, health] = await Promise.all([
        server.api("/ready", { key: null }),
        server.api("/health", { key: null }),
      ]);
      const reasons = [...(ready.body.issues ?? []), ...(health.body.warnings ?? [])];
      return { statuses: [ready.status, health.status], reasons };
    };
    return { disk, home, server, ...(postgres && { postgres }), probed, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Whether both probes say so, for that reason alone. */
export async function says(world: SmallDiskWorld, status: number, ...reason: string[]): Promise<boolean> {
  const { statuses, reasons } = await world.probed();
  return statuses.every((one) => one === status) && [...new Set(reasons)].join() === reason.join();
}
