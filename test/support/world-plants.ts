import { resolve } from "node:path";

// Nothing here imports a file of the product: `planted.ts` reads it before any of them.

/** A fault that no laboratory shows: a text of the product that is read as another one. */
export interface Plant {
  name: string;
  /** The file, from the root. */
  file: string;
  from: string;
  to: string;
  /** The promises that are broken in that world, and kept in the laboratory. */
  breaks: readonly string[];
  world: string;
}

/** What `planted.ts` reads: the names of the plants. */
export const plantVariable = "WORLD_PLANT";

export const plants: readonly Plant[] = [
  {
    name: "a text ordered by the locale",
    file: "src/domain/state/kv/rows.ts",
    from: "ORDER BY e.key LIMIT",
    to: 'ORDER BY e.key COLLATE "default" LIMIT',
    breaks: ["keys are listed in the order of their bytes, by pages and prefixes"],
    world: "PostgreSQL of a Turkish company",
  },
  {
    name: "a time read in the session's zone",
    file: "src/store/postgres.ts",
    from: "extract(epoch FROM clock_timestamp())",
    to: "extract(epoch FROM clock_timestamp()::timestamp)",
    breaks: ["an event is read as it was emitted, with the time of its emit"],
    world: "PostgreSQL of a Turkish company",
  },
  {
    name: "letters folded by the database",
    file: "src/domain/state/kv/rows.ts",
    from: "e.bucket_id = b.id AND e.key = i.key",
    to: 'e.bucket_id = b.id AND lower(e.key COLLATE "default") = lower(i.key COLLATE "default")',
    breaks: ["keys that differ in the case of one letter are two, whatever its language"],
    world: "PostgreSQL as Debian makes it",
  },
  {
    name: "a time read off the clock on the wall",
    file: "src/kit/clock.ts",
    from: "Date.now() - performance.now() + aheadMs",
    to: "Date.now() - performance.now() + aheadMs - new Date().getTimezoneOffset() * 60_000",
    breaks: ["an event is read as it was emitted, with the time of its emit"],
    world: "a file on a far machine",
  },
];

/** The server's program with these plants. With what the allocator keeps said, it does not start itself anew, without its preload. */
export const plantedProgram = (all: readonly Plant[]): readonly string[] => [
  ...["env", `${plantVariable}=${all.map(({ name }) => name).join(";")}`, "MIMALLOC_PURGE_DELAY=60000"],
  ...[process.execPath, `--preload=${resolve(import.meta.dir, "planted.ts")}`],
  resolve(import.meta.dir, "../../src/main.ts"),
];
