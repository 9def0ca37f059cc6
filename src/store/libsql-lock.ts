import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  realpathSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname } from "node:path";
import type { Connection, Driver } from "./libsql-drivers.ts";

const openHere = new Set<string>();

const refusal = (file: string, holder: string) =>
  new Error(
    `${file} is open in ${holder}: one process at a time may use a database file. Stop it, choose another file, or use Postgres for several nodes.`,
  );

/**
 * Makes this process the only one on the file until it ends, in any way: the lock is SQLite's own, on a small
 * file beside the database. The kernel releases it and knows no process numbers of other containers.
 */
export function claimFile(file: string, driver: Driver): { path: string; release(): void } {
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  // Checked before anything is opened: to close a second handle on a locked file would drop the lock.
  const folder = realpathSync(dirname(file));
  const named = `${folder}/${file.slice(file.lastIndexOf("/") + 1)}`;
  if (existsSync(named) && openHere.has(realpathSync(named)))
    throw refusal(file, `this process (${process.pid})`);
  closeSync(openSync(named, "a", 0o600));
  // The lock is of the file, whatever link it is reached by.
  const path = realpathSync(named);
  if (statSync(path).nlink > 1)
    throw new Error(
      `${path} has a second name (a hard link), by which another process could open it: remove that name, or copy the file`,
    );
  closeSync(openSync(`${path}.lock`, "a", 0o600));

  let lock: Connection | undefined;
  try {
    lock = driver(`${path}.lock`, 0);
    lock.exec("PRAGMA journal_mode = MEMORY");
    lock.exec("BEGIN EXCLUSIVE");
  } catch (error) {
    lock?.close();
    if (!/^SQLITE_(BUSY|LOCKED)/.test(String((error as { code?: unknown }).code))) throw error;
    throw refusal(file, `process ${holderOf(path)}`);
  }
  const held = lock;
  openHere.add(path);
  writeFileSync(`${path}.pid`, `${process.pid}\n`, { mode: 0o600 });
  return {
    path,
    release() {
      held.exec("ROLLBACK");
      held.close();
      openHere.delete(path);
    },
  };
}

function holderOf(path: string): string {
  try {
    return readFileSync(`${path}.pid`, "utf8").trim() || "unknown";
  } catch {
    return "unknown";
  }
}
