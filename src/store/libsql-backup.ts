import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import { Worker } from "node:worker_threads";
import type { Connection, Driver } from "./libsql-drivers.ts";
import { copyEnvironments } from "./libsql-files.ts";
import { type Landed, requireFamiliar } from "./migrate.ts";
import { schema } from "./schema.ts";

const everyMs = 20;

const program = `
const { workerData: { path, state } } = require("node:worker_threads");
const { closeSync, fdatasyncSync, openSync } = require("node:fs");
const over = new Int32Array(state);
const handle = Atomics.load(over, 0) === 0 ? openSync(path, "r") : undefined;
while (Atomics.load(over, 0) === 0) {
  fdatasyncSync(handle);
  Atomics.wait(over, 0, 0, ${everyMs});
}
if (handle !== undefined) closeSync(handle);
`;

/**
 * Syncs a growing file to the disk bit by bit, from a thread of its own, until it is told to stop. A copy of
 * 300 MB synced at its end delayed all other commits on that disk for a quarter of a second (measured).
 */
function keepSynced(path: string): { stop(): void } {
  const state = new SharedArrayBuffer(4);
  const worker = new Worker(program, { eval: true, workerData: { path, state } });
  worker.unref();
  // Only a help, since the copy's maker syncs it at its end: a small one is renamed before the thread looks.
  worker.on("error", () => {});
  const over = new Int32Array(state);
  return {
    stop() {
      Atomics.store(over, 0, 1);
      Atomics.notify(over, 0);
    },
  };
}

/** What was asked for is not done, and nothing was changed; the message is for the operator. */
export class BackupRefusal extends Error {}

export interface BackedUpLog {
  environmentId: string;
  position: number;
  epoch: number;
}

/** What a database file holds, once it was found to be whole. */
export interface Content {
  bytes: number;
  /** The last migration that has landed on it. */
  schemaVersion: number;
  logs: BackedUpLog[];
}

/** A checkpoint of the server may hold the file for a moment. */
const busyMs = 5_000;
const magic = "SQLite format 3\0";
const problemsShown = 5;

export const sync = (path: string): void => {
  const handle = openSync(path, "r");
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
};

export function requireDatabaseFile(path: string): void {
  if (!existsSync(path)) throw new BackupRefusal(`${path} does not exist`);
  if (!statSync(path).isFile()) throw new BackupRefusal(`${path} is no file`);
  const start = Buffer.alloc(magic.length);
  const handle = openSync(path, "r");
  try {
    readSync(handle, start, 0, magic.length, 0);
  } finally {
    closeSync(handle);
  }
  if (start.toString("latin1") !== magic) throw new BackupRefusal(`${path} is no database of svc`);
}

function readContent(connection: Connection, { path, name }: { path: string; name: string }): Content {
  const all = (text: string) => connection.prepare(text).all([]);
  const [tables] = all(
    "SELECT COUNT(*) AS count FROM sqlite_schema WHERE name IN ('migrations', 'heads', 'events')",
  );
  if (Number(tables?.count) !== 3) throw new BackupRefusal(`${name} is no database of svc`);
  const landed = all(
    "SELECT version, name, hash, compatible FROM migrations ORDER BY version",
  ) as unknown as Landed[];
  requireFamiliar(landed, schema, "libsql");

  const problems = all(`PRAGMA integrity_check(${problemsShown})`).map((row) => String(row.integrity_check));
  if (problems.join() !== "ok") throw new BackupRefusal(`${name} is damaged: ${problems.join("; ")}`);
  const logs = all(`SELECT environment_id, position, epoch,
    (SELECT MAX(position) FROM events WHERE events.environment_id = heads.environment_id) AS top
    FROM heads ORDER BY environment_id`);
  const torn = logs.find(({ position, top }) => top !== null && Number(top) > Number(position));
  if (torn)
    throw new BackupRefusal(`${name} is damaged: the log of ${torn.environment_id} goes on behind its head`);
  return {
    bytes: statSync(path).size,
    schemaVersion: Number(landed.at(-1)?.version ?? 0),
    logs: logs.map((row) => ({
      environmentId: String(row.environment_id),
      position: Number(row.position),
      epoch: Number(row.epoch),
    })),
  };
}

/**
 * Opens a file that no other process uses and finds it to be a whole database of a version that this program
 * knows; `name` is what the operator calls it.
 */
export function verified<T>(
  path: string,
  { name, driver }: { name: string; driver: Driver },
  work: (connection: Connection, content: Content) => T,
): T {
  let connection: Connection | undefined;
  try {
    connection = driver(path, busyMs);
    return work(connection, readContent(connection, { path, name }));
  } catch (error) {
    const code = String((error as { code?: unknown }).code);
    if (/^SQLITE_(CORRUPT|NOTADB)/.test(code))
      throw new BackupRefusal(`${name} is damaged: ${(error as Error).message}`);
    throw error;
  } finally {
    connection?.close();
  }
}

/**
 * Copies a database while its server works: a reader of its own, so the writer never waits for it. The copy
 * is of one moment, compacted, on the disk and checked before it gets its name.
 */
export function backUpLibsql(options: { file: string; to: string; force: boolean; driver: Driver }): Content {
  const { file, force, driver } = options;
  const to = resolve(options.to);
  requireDatabaseFile(file);
  if (existsSync(to)) {
    if (realpathSync(to) === realpathSync(file)) throw new BackupRefusal(`${to} is the database itself`);
    if (!force) throw new BackupRefusal(`${to} exists; --force overwrites it`);
  }
  mkdirSync(dirname(to), { recursive: true, mode: 0o700 });
  const making = `${to}.making-${process.pid}`;
  copyEnvironments(file, to, driver);
  try {
    // Made here, because SQLite would make it readable for everyone.
    closeSync(openSync(making, "wx", 0o600));
    const reader = driver(file, busyMs);
    const syncer = keepSynced(making);
    try {
      reader.prepare("VACUUM INTO ?").run([making]);
    } finally {
      syncer.stop();
      reader.close();
    }
    const content = verified(making, { name: "the copy", driver }, (_, found) => found);
    sync(making);
    renameSync(making, to);
    sync(dirname(to));
    return content;
  } finally {
    rmSync(making, { force: true });
  }
}
