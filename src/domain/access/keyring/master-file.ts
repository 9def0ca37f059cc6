import {
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { dirname } from "node:path";
import { masterKeyPattern } from "./rules.ts";

/**
 * The master key of an installation without `SVC_MASTER_KEY`: a file beside the database, readable by its
 * owner only.
 */
export function readMasterFile(path: string): string | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8").trim();
  } catch (error) {
    if ((error as { code?: string }).code === "ENOENT") return undefined;
    throw error;
  }
  if (!masterKeyPattern.test(text))
    throw new Error(`invalid master key in ${path} (expected 32 bytes in hex)`);
  return text.toLowerCase();
}

function writeBeside(path: string, key: string): string {
  mkdirSync(dirname(path), { recursive: true });
  const fresh = `${path}.${process.pid}`;
  const file = openSync(fresh, "w", 0o600);
  try {
    writeSync(file, `${key}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  return fresh;
}

function syncFolderOf(path: string): void {
  const folder = openSync(dirname(path), "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}

/**
 * Writes the key durably before it is used: values sealed under a key that was never written would be lost
 * with this process. Answers the key in the file, which is another process's when that was first.
 */
export function createMasterFile(path: string, key: string): string {
  const fresh = writeBeside(path, key);
  try {
    linkSync(fresh, path);
  } catch (error) {
    if ((error as { code?: string }).code !== "EEXIST") throw error;
    return readMasterFile(path) ?? key;
  } finally {
    rmSync(fresh, { force: true });
  }
  syncFolderOf(path);
  return key;
}

export function replaceMasterFile(path: string, key: string): void {
  renameSync(writeBeside(path, key), path);
  syncFolderOf(path);
}
