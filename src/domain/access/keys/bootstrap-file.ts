import {
  closeSync,
  constants,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { keyHash } from "./rules.ts";

/** proto/README.md 'Bootstrap': the content of the key file. */
export interface BootstrapFile {
  key: string;
  key_id: string;
  org_id: string;
  role: string;
  dashboard_password?: string;
  timestamp: string;
}

/** The file before its key is valid. Its name holds the start of the key's hash, so a later boot can tell whose it is. */
const pendingName = (path: string, hash: string) => `${basename(path)}.${hash.slice(0, 16)}.`;

function syncFolder(path: string): void {
  const folder = openSync(dirname(path), constants.O_RDONLY);
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}

/** Writes the content beside `path`, readable by the owner alone and durable; answers where. */
export function writePending(path: string, hash: string, ending: string, content: BootstrapFile): string {
  const pending = join(dirname(path), `${pendingName(path, hash)}${ending}`);
  const file = openSync(pending, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o400);
  try {
    writeSync(file, `${JSON.stringify(content, null, 2)}\n`);
    fsyncSync(file);
  } catch (error) {
    rmSync(pending, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
  return pending;
}

/** Gives the file its name, in place of any file that had it. */
export function putInPlace(pending: string, path: string): void {
  renameSync(pending, path);
  syncFolder(path);
}

export function removePending(pending: string): void {
  rmSync(pending, { force: true });
}

/** The file that a boot left behind when it died between making its key valid and naming the file. */
export function findPending(path: string, hash: string): string | undefined {
  try {
    const found = readdirSync(dirname(path)).find((name) => name.startsWith(pendingName(path, hash)));
    return found && join(dirname(path), found);
  } catch {
    return undefined;
  }
}

/** Whether the file at `path` carries the key of this hash. */
export function holdsKey(path: string, hash: string): boolean {
  try {
    const content = JSON.parse(readFileSync(path, "utf8")) as Partial<BootstrapFile>;
    return typeof content.key === "string" && keyHash(content.key) === hash;
  } catch {
    return false;
  }
}
