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
import type { Basics, Session } from "../../../store/store.ts";
import {
  emptyRing,
  type HeldMaster,
  newest,
  openRing,
  type Reseal,
  type RingSecret,
  RingWriter,
  rotatedSecrets,
  unopened,
} from "./ring.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";
import { masterKeyPattern, type RingKind } from "./rules.ts";

/**
 * The master key of an installation without `SVC_MASTER_KEY`: a file beside the database, readable by its
 * owner only.
 */
function readMasterFile(path: string): string | undefined {
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
function createMasterFile(path: string, key: string): string {
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

function replaceMasterFile(path: string, key: string): void {
  renameSync(writeBeside(path, key), path);
  syncFolderOf(path);
}

/**
 * How long a rotated secret's signatures stay valid, and a node may still start with the previous master key.
 */
const keyringKeptMs = 24 * 60 * 60 * 1000;

export type { RingSecret, RotatedSecret } from "./ring.ts";

/** The installation's own secrets, sealed in the store under its master key, the same on every node. */
export type Keyring = Awaited<ReturnType<typeof openKeyring>>;

export interface KeyringDeps extends Basics<"store" | "clock" | "ids" | "log"> {
  /** `SVC_MASTER_KEY`; without it the file is read, or written at the first start. */
  masterKey: string | undefined;
  masterFile: string;
  /** Secrets from settings; one that the ring does not know becomes the current one. */
  given: Partial<Record<RingKind, string | undefined>>;
  /** Seals again whatever else is sealed, in the transaction of a new master key. */
  reseal?: Reseal;
}

const secretBytes = 32;
const sealTriesMax = 5;
/** Thrown and caught here: the transaction is repeated with another master key. */
const outdated = rules.sealedElsewhere();

export async function openKeyring(deps: KeyringDeps) {
  const { store, clock, ids, log, given } = deps;
  const writer = new RingWriter(deps);
  const fromFile = deps.masterKey === undefined;
  const source = fromFile ? deps.masterFile : "SVC_MASTER_KEY";

  /** The key of the setting or the file; the first node makes one and stores what proves it. */
  async function findMaster(): Promise<string> {
    const list = await rows.allRows(store);
    // The file is read after the rows: the node that wrote the rows wrote the file before them.
    const known = deps.masterKey?.toLowerCase() ?? readMasterFile(deps.masterFile);
    if (known === undefined && newest(list, "master"))
      throw unopened(
        `the database is sealed with a master key: set SVC_MASTER_KEY, or put the key into ${deps.masterFile}`,
      );
    const key = known ?? createMasterFile(deps.masterFile, ids.secret(secretBytes));
    await store.write((session) => writer.addFirstMaster(session, key));
    return key;
  }

  /** Adds the secrets of the settings that the ring does not know. One that was retired stays so. */
  const adoptSettings = (): Promise<void> =>
    store.write(async (session) => {
      const list = await rows.holdRows(session);
      const { secrets } = openRing(list, held, ring.masters);
      for (const kind of rules.ringKinds) {
        const wanted = given[kind];
        const print = wanted === undefined ? undefined : rules.fingerprintOf(wanted);
        const known = list.some((row) => row.kind === kind && row.fingerprint === print);
        if (known && newest(list, kind)?.fingerprint !== print)
          log.warn("keyring.setting_outdated", { kind, about: "rotated since; the newer one is used" });
        if (secrets.get(kind)!.length > 0 && (wanted === undefined || known)) continue;
        // Nodes that start at once wait here for the held rows: the first makes the secret, the others find
        // it.
        const createdBy = wanted === undefined ? "system" : "settings";
        const secret = wanted ?? ids.secret(secretBytes);
        await writer.addSecret(session, held, { kind, secret, createdBy });
      }
    });

  let ring = emptyRing();
  async function refresh(): Promise<void> {
    ring = openRing(await rows.allRows(store), held, ring.masters);
    const current = ring.masters.get(ring.version)!;
    if (current === held.key) return;
    held = { key: current, source };
    if (fromFile) replaceMasterFile(deps.masterFile, current);
    else
      log.warn("keyring.master_outdated", {
        about: "the master key was rotated: give SVC_MASTER_KEY the new one before this node starts again",
        hours: keyringKeptMs / 3_600_000,
      });
  }

  let held: HeldMaster = { key: await findMaster(), source };
  await refresh();
  await adoptSettings();
  await refresh();

  return {
    /** The secret that signs now. */
    current: (kind: RingKind): RingSecret => ring.secrets.get(kind)!.at(-1)!,
    /** The secret with this id, while its signatures are still accepted. */
    find(kind: RingKind, id: string): string | undefined {
      const found = ring.secrets.get(kind)!.find((one) => one.id === id);
      if (!found) return undefined;
      if (rules.lastingKinds.includes(kind)) return found.secret;
      const isOver = found.retiredAt !== null && found.retiredAt + keyringKeptMs < clock.now();
      return isOver ? undefined : found.secret;
    },
    /** `place` names the row and column: a sealed value opens nowhere else. */
    seal: (place: string, text: string) =>
      rules.seal(ring.masters.get(ring.version)!, ring.version, place, text, writer.nonce()),
    async unseal(place: string, sealed: string): Promise<string> {
      const version = rules.sealVersion(sealed);
      if (!ring.masters.has(version)) await refresh();
      const master = ring.masters.get(version);
      const text = master && rules.unseal(master, place, sealed);
      if (text === undefined) throw rules.sealedElsewhere();
      return text;
    },
    /**
     * A transaction that stores sealed values, new ones or ones that it moves. It is repeated when one of
     * them is sealed under a master key that was rotated meanwhile: no node could open that value again.
     */
    async writeSealed<R>(work: (session: Session) => Promise<{ result: R; sealed: readonly string[] }>) {
      for (let tries = 1; ; tries++) {
        try {
          return await store.write(async (session) => {
            const { result, sealed } = await work(session);
            const version = sealed.length === 0 ? undefined : await rows.masterVersion(session);
            if (sealed.some((one) => rules.sealVersion(one) !== version)) throw outdated;
            return result;
          });
        } catch (error) {
          if (error !== outdated || tries === sealTriesMax) throw error;
          await refresh();
        }
      }
    },
    /** Follows what other nodes rotated; the tick of loop `keyring.follow`. */
    refresh,
    /** Writes a new secret in the transaction of a rotation; this node uses it after `refresh`. */
    rotate: (session: Session, kind: RingKind | "master_key", secret: string, createdBy: string) =>
      kind === "master_key"
        ? writer.addMaster(session, held, ring.masters, {
            key: rules.requireMasterKey("new_value", secret),
            createdBy,
          })
        : writer.addSecret(session, held, {
            kind,
            secret: rules.requireRingSecret("new_value", secret),
            createdBy,
          }),
    /** When each secret was rotated last, as the store has it. */
    rotated: async () => rotatedSecrets(await rows.allRows(store), clock.now(), keyringKeptMs),
    purge: (session: Session) => rows.purgeRetired(session, clock.now() - keyringKeptMs),
  };
}
