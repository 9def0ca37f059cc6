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

/** What the file says. */
interface DiscoveryEntry {
  version: 1;
  url: string;
  api_key: string;
  environment: string;
  /** The process of the server. */
  pid: number;
}

/** Servers of one folder are few: those that began before the newest `othersMax` are forgotten. */
const othersMax = 7;

const isSame = (one: DiscoveryEntry, other: DiscoveryEntry): boolean =>
  one.pid === other.pid && one.url === other.url;

function lives({ pid }: DiscoveryEntry): boolean {
  try {
    return Number.isInteger(pid) && pid > 0 && process.kill(pid, 0);
  } catch {
    return false;
  }
}

/** The servers that the file names, the newest first; none where others may have written it. */
function entriesOf(file: string): DiscoveryEntry[] {
  try {
    const found = lstatSync(file);
    if (!found.isFile() || found.uid !== process.getuid?.() || (found.mode & 0o077) !== 0) return [];
    const { others = [], ...newest } = JSON.parse(readFileSync(file, "utf8"));
    return [newest, ...others];
  } catch {
    return [];
  }
}

/** Whole, or not at all. */
function writeEntries(file: string, [newest, ...others]: readonly DiscoveryEntry[]): void {
  const next = `${file}.${process.pid}`;
  const said = { ...newest, ...(others.length > 0 && { others: others.slice(0, othersMax) }) };
  rmSync(next, { force: true });
  writeFileSync(next, `${JSON.stringify(said, null, 2)}\n`, { mode: ownerOnly, flag: "wx" });
  chmodSync(next, ownerOnly);
  try {
    renameSync(next, file);
  } catch (error) {
    unlinkSync(next);
    throw error;
  }
}

/**
 * Writes `.svc/engine.json` into the folder, whole and for its owner alone. The SDK and the commands of that
 * folder, and of those below, read it (`sdk/wire/discovery.ts`). What it answers takes this server out of the
 * file again: the one before it that still runs is found then, and without any the file is removed.
 */
export function announceServer(folder: string, { url, apiKey, environment }: AnnouncedServer): () => void {
  const own = join(folder, folderName);
  mkdirSync(own, { recursive: true, mode: 0o700 });
  // A link would lead the key somewhere else.
  if (!lstatSync(own).isDirectory()) throw new Error(`${own} is no folder`);
  const file = join(own, fileName);
  const mine: DiscoveryEntry = { version: 1, url, api_key: apiKey, environment, pid: process.pid };
  const others = () => entriesOf(file).filter((one) => !isSame(one, mine) && lives(one));
  writeEntries(file, [mine, ...others()]);
  return () => {
    try {
      if (!entriesOf(file).some((one) => isSame(one, mine))) return;
      const left = others();
      if (left.length === 0) unlinkSync(file);
      else writeEntries(file, left);
    } catch {} // Somebody removed it.
  };
}
