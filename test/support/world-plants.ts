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
  {
    name: "a word of the server's read as English",
    file: "src/store/postgres-errors.ts",
    from: "message.lastIndexOf(markEnd)",
    to: "message.lastIndexOf(markEnd + '\"')",
    breaks: ["quotas refuse what goes beyond them"],
    world: "PostgreSQL that sorts and speaks German",
  },
  {
    name: "a credential of a connection that is kept",
    file: "src/edge/credential.ts",
    from: 'headers.get("authorization")',
    to: '(headers.get("connection") === "close" ? null : headers.get("authorization"))',
    breaks: ["an event is read as it was emitted, with the time of its emit"],
    world: "nginx that gathers answers and cuts idle ones",
  },
  {
    name: "an address without its brackets",
    file: "src/edge/http.ts",
    from: 'host.includes(":") ?',
    to: "false ?",
    breaks: ["no key and a wrong one are refused"],
    world: "IPv6 alone",
  },
  {
    name: "a file that is written beside the program",
    file: "src/app/serve.ts",
    from: "const clock = systemClock();",
    to: "const clock = systemClock(); await Bun.write(import.meta.dir + '/../../.tmp/started', '1');",
    breaks: ["no key and a wrong one are refused"],
    world: "a tree that is only read",
  },
  {
    name: "600 MB that are kept",
    file: "src/app/serve.ts",
    from: "const clock = systemClock();",
    to: "const clock = systemClock(); (globalThis as any).kept = new Uint8Array(600 << 20).fill(1);",
    breaks: ["no key and a wrong one are refused"],
    world: "512 MB of memory",
  },
  {
    name: "durations counted by the clock on the wall",
    file: "src/kit/clock.ts",
    from: "const local = () => startedAt + performance.now();",
    to: "const local = () => Date.now();",
    breaks: ["a run sleeps until an instant, wherever clocks stand"],
    world: "a wall clock that steps",
  },
  {
    name: "a function that PostgreSQL has since version 15",
    file: "src/domain/state/kv/rows.ts",
    from: "AND e.key >= ",
    to: "AND regexp_count(e.key, '.') > 0 AND e.key >= ",
    breaks: ["keys are listed in the order of their bytes, by pages and prefixes"],
    world: "PostgreSQL 14",
  },
];

/** What lets a server start on a pooler; it breaks promises there, and no other place shows it. */
export const plantOfPooler: Plant = {
  name: "statements that need a session",
  file: "src/store/postgres-client.ts",
  from: 'if (row?.bitmaps !== session.enable_bitmapscan) throw pooled("they are not in force");',
  to: "",
  breaks: ["an event starts a run, whose output comes back to a caller that waits"],
  world: "PgBouncer",
};

/** The server's program with these plants. With what the allocator keeps said, it does not start itself anew, without its preload. */
export const plantedProgram = (all: readonly Plant[]): readonly string[] => [
  ...["env", `${plantVariable}=${all.map(({ name }) => name).join(";")}`, "MIMALLOC_PURGE_DELAY=60000"],
  ...[process.execPath, `--preload=${resolve(import.meta.dir, "planted.ts")}`],
  resolve(import.meta.dir, "../../src/main.ts"),
];
