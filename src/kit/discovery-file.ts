import {
  chmodSync,
  lstatSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

/** A server as programs of its folder find it. */
export interface AnnouncedServer {
  url: string;
  /** Empty where none is needed. */
  apiKey: string;
  environment: string;
}

const ownerOnly = 0o600;
const folderName = ".svc";
const fileName = "engine.json";

/** An address of this machine for what a server listens on; undefined where it is reached by others only. */
export function ownAddress(url: string): string | undefined {
  const { protocol, hostname, port } = new URL(url);
  const host = hostname === "0.0.0.0" ? "127.0.0.1" : hostname === "[::]" ? "[::1]" : hostname;
  const isOwn = host === "localhost" || host === "[::1]" || /^127(\.\d{1,3}){3}$/.test(host);
  return isOwn ? `${protocol}//${host}${port === "" ? "" : `:${port}`}` : undefined;
}

/**
 * Writes `.svc/engine.json` into the folder, whole and for its owner alone. The SDK and the commands of that
 * folder, and of those below, read it (`sdk/wire/discovery.ts`). What it answers removes the file again, if
 * it is still this one: another server of the folder may have written its own.
 */
export function announceServer(folder: string, { url, apiKey, environment }: AnnouncedServer): () => void {
  const own = join(folder, folderName);
  mkdirSync(own, { recursive: true, mode: 0o700 });
  // A link would lead the key somewhere else.
  if (!lstatSync(own).isDirectory()) throw new Error(`${own} is no folder`);
  const file = join(own, fileName);
  const next = `${file}.${process.pid}`;
  const text = `${JSON.stringify({ version: 1, url, api_key: apiKey, environment }, null, 2)}\n`;
  rmSync(next, { force: true });
  writeFileSync(next, text, { mode: ownerOnly, flag: "wx" });
  chmodSync(next, ownerOnly);
  const { ino } = lstatSync(next);
  try {
    renameSync(next, file);
  } catch (error) {
    unlinkSync(next);
    throw error;
  }
  return () => {
    try {
      if (lstatSync(file).ino === ino && readFileSync(file, "utf8") === text) unlinkSync(file);
    } catch {} // Somebody removed it.
  };
}
