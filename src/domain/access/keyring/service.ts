import type { Clock, Instant } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { keyringKeptMs } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Session, Store } from "../../../store/store.ts";
import { createMasterFile, readMasterFile, replaceMasterFile } from "./master-file.ts";
import * as rows from "./rows.ts";
import type { RingKind } from "./rules.ts";
import * as rules from "./rules.ts";

/** A secret of the ring; `id` is what a token says it was signed with. */
export interface RingSecret {
  id: string;
  secret: string;
}

/** The installation's own secrets, sealed in the store under its master key, the same on every node. */
export interface Keyring {
  /** What is signed with now. */
  current(kind: RingKind): RingSecret;
  /** The secret of this id, as long as what it signed is believed. */
  find(kind: RingKind, id: string): string | undefined;
  /** `place` names the row and column: a sealed value opens nowhere else. */
  seal(place: string, text: string): string;
  unseal(place: string, sealed: string): Promise<string>;
  /** Whether a value is sealed under the master key in force, which stays so until the transaction ends. */
  isCurrent(session: Session, sealed: string): Promise<boolean>;
  /** Follows what other nodes rotated; the tick of loop `keyring.follow`. */
  refresh(): Promise<void>;
  /** Part of a rotation's transaction; `refresh` makes it true for this node. */
  rotate(session: Session, kind: RingKind | "master_key", secret: string, createdBy: string): Promise<void>;
  purge(session: Session): Promise<number>;
}

export interface KeyringDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  /** `SVC_MASTER_KEY`; without it the file is read, or written at the first start. */
  masterKey: string | undefined;
  masterFile: string;
  /** Secrets that settings bring along; one that the ring does not know becomes the current one. */
  given: Partial<Record<RingKind, string | undefined>>;
  /** Seals again whatever else is sealed, in the transaction of a new master key. */
  reseal?: (session: Session, again: (place: string, sealed: string) => string) => Promise<void>;
}

interface Loaded {
  /** By version; the last is the current one. */
  masters: Map<number, string>;
  version: number;
  ring: Map<RingKind, (RingSecret & { version: number; retiredAt: Instant | null })[]>;
}

const secretBytes = 32;
const masterPlace = (version: number) => `keyring/master/${version}`;
const nextPlace = (version: number) => `keyring/master_next/${version}`;
const ringPlace = (kind: string, version: number) => `keyring/${kind}/${version}`;
/** What a master key seals to prove that it is the one. */
const proof = "svc master key";

/** For the operator who starts the node. */
const unopened = (about: string): Fault => new Fault("failed_precondition", about);

const newest = (list: readonly rows.RingRow[], kind: string) =>
  list.filter((row) => row.kind === kind).at(-1);

export async function openKeyring(deps: KeyringDeps): Promise<Keyring> {
  const { store, clock, ids, log, given } = deps;
  const nonce = () => Buffer.from(ids.secret(12), "hex");
  let masterKey = deps.masterKey?.toLowerCase();
  const fromFile = masterKey === undefined;

  async function found(): Promise<string> {
    const list = await rows.allRows(store);
    // Read after the rows: who made them wrote the file before.
    const known = masterKey ?? readMasterFile(deps.masterFile);
    if (known === undefined && newest(list, "master"))
      throw unopened(
        `the database is sealed with a master key: set SVC_MASTER_KEY, or put the key into ${deps.masterFile}`,
      );
    const key = known ?? createMasterFile(deps.masterFile, ids.secret(secretBytes));
    await store.write((session) =>
      rows.insertRow(session, {
        kind: "master",
        version: 1,
        sealed: rules.seal(key, 1, masterPlace(1), proof, nonce()),
        fingerprint: rules.fingerprintOf(key),
        created_at: clock.now(),
        createdBy: "system",
      }),
    );
    return key;
  }

  /** From the key this node has to the one in force: each version opens the next, for `limits.keyringKeptMs`. */
  function mastersOf(list: readonly rows.RingRow[], key: string): Pick<Loaded, "masters" | "version"> {
    const start = list.find((row) => row.kind === "master" && row.fingerprint === rules.fingerprintOf(key));
    const last = newest(list, "master");
    if (!start || !last || rules.unseal(key, masterPlace(start.version), start.sealed) !== proof)
      throw unopened(
        `the master key is not the one that this database is sealed with (${whence()}): give every node the same SVC_MASTER_KEY`,
      );
    const masters = new Map([[start.version, key]]);
    for (let version = start.version; version < last.version; version++) {
      const way = list.find((row) => row.kind === "master_next" && row.version === version);
      const next = way && rules.unseal(masters.get(version)!, nextPlace(version), way.sealed);
      if (next === undefined)
        throw unopened(`the master key was rotated, and the one given here is too old (${whence()})`);
      masters.set(version + 1, next);
    }
    return { masters, version: last.version };
  }
  const whence = () => (fromFile ? deps.masterFile : "SVC_MASTER_KEY");

  function load(list: readonly rows.RingRow[], key: string): Loaded {
    const { masters, version } = mastersOf(list, key);
    // What was sealed before a rotation can still be opened by who was there.
    for (const [own, known] of loaded.masters) masters.set(own, known);
    const ring: Loaded["ring"] = new Map(rules.ringKinds.map((kind) => [kind, []]));
    for (const row of list) {
      const own = ring.get(row.kind as RingKind);
      if (!own) continue;
      const master = masters.get(rules.sealVersion(row.sealed));
      const secret = master && rules.unseal(master, ringPlace(row.kind, row.version), row.sealed);
      if (secret === undefined && rules.replaceableKinds.includes(row.kind as RingKind)) continue;
      if (secret === undefined) throw new Error(`keyring row ${row.kind}/${row.version} cannot be opened`);
      own.push({ id: row.fingerprint, secret, version: row.version, retiredAt: row.retired_at });
    }
    return { masters, version, ring };
  }

  async function add(session: Session, kind: RingKind, secret: string, createdBy: string): Promise<void> {
    const list = await rows.holdRows(session);
    const { masters, version: master } = mastersOf(list, masterKey!);
    const fingerprint = rules.fingerprintOf(secret);
    if (newest(list, kind)?.fingerprint === fingerprint) return;
    if (list.some((row) => row.kind === kind && row.fingerprint === fingerprint))
      throw new Fault("already_exists", "new_value: was used before", { field: "new_value" });
    const version = (newest(list, kind)?.version ?? 0) + 1;
    const now = clock.now();
    await rows.insertRow(session, {
      kind,
      version,
      sealed: rules.seal(masters.get(master)!, master, ringPlace(kind, version), secret, nonce()),
      fingerprint,
      created_at: now,
      createdBy,
    });
    await rows.retireBefore(session, kind, version, now);
  }

  /** Everything sealed is sealed again in the same transaction. */
  async function addMaster(session: Session, key: string, createdBy: string): Promise<void> {
    const list = await rows.holdRows(session);
    const before = load(list, masterKey!);
    const fingerprint = rules.fingerprintOf(key);
    if (list.some((row) => row.kind === "master" && row.fingerprint === fingerprint))
      throw new Fault("already_exists", "new_value: is or was the master key", { field: "new_value" });
    const old = before.masters.get(before.version)!;
    const version = before.version + 1;
    const now = clock.now();
    const put = (kind: string, place: number, sealed: string, print: string) =>
      rows.insertRow(session, {
        kind,
        version: place,
        sealed,
        fingerprint: print,
        created_at: now,
        createdBy,
      });
    const wrapped = rules.seal(old, before.version, nextPlace(before.version), key, nonce());
    await put("master", version, rules.seal(key, version, masterPlace(version), proof, nonce()), fingerprint);
    await put("master_next", before.version, wrapped, fingerprint);
    await rows.retireBefore(session, "master_next", version, now);
    for (const [kind, secrets] of before.ring) {
      for (const { version: own, secret } of secrets)
        await rows.resealRow(
          session,
          { kind, version: own },
          rules.seal(key, version, ringPlace(kind, own), secret, nonce()),
        );
    }
    await deps.reseal?.(session, (place, sealed) => {
      const master =
        before.masters.get(rules.sealVersion(sealed)) ?? loaded.masters.get(rules.sealVersion(sealed));
      const text = master && rules.unseal(master, place, sealed);
      if (text === undefined) throw rules.sealedElsewhere();
      return rules.seal(key, version, place, text, nonce());
    });
  }

  /** What settings bring counts when the ring does not know it; what it knows as older does not. */
  const adoptSettings = (): Promise<void> =>
    store.write(async (session) => {
      const list = await rows.holdRows(session);
      const { ring } = load(list, masterKey!);
      for (const kind of rules.ringKinds) {
        const wanted = given[kind];
        const print = wanted === undefined ? undefined : rules.fingerprintOf(wanted);
        const known = list.some((row) => row.kind === kind && row.fingerprint === print);
        if (known && newest(list, kind)?.fingerprint !== print)
          log.warn("keyring.setting_outdated", { kind, about: "rotated since; the newer one is used" });
        if (ring.get(kind)!.length > 0 && (wanted === undefined || known)) continue;
        // Of several first starts one makes the secret; the others, which wait for it here, find it.
        await add(
          session,
          kind,
          wanted ?? ids.secret(secretBytes),
          wanted === undefined ? "system" : "settings",
        );
      }
    });

  let loaded: Loaded = { masters: new Map(), version: 0, ring: new Map() };
  async function refresh(): Promise<void> {
    loaded = load(await rows.allRows(store), masterKey!);
    const current = loaded.masters.get(loaded.version)!;
    if (current === masterKey) return;
    masterKey = current;
    if (fromFile) replaceMasterFile(deps.masterFile, current);
    else
      log.warn("keyring.master_outdated", {
        about: "the master key was rotated: give SVC_MASTER_KEY the new one before this node starts again",
        hours: keyringKeptMs / 3_600_000,
      });
  }

  masterKey = await found();
  await refresh();
  await adoptSettings();
  await refresh();

  return {
    current: (kind) => loaded.ring.get(kind)!.at(-1)!,
    find(kind, id) {
      const found = loaded.ring.get(kind)!.find((one) => one.id === id);
      if (!found) return undefined;
      if (rules.lastingKinds.includes(kind)) return found.secret;
      const isOver = found.retiredAt !== null && found.retiredAt + keyringKeptMs < clock.now();
      return isOver ? undefined : found.secret;
    },
    seal: (place, text) =>
      rules.seal(loaded.masters.get(loaded.version)!, loaded.version, place, text, nonce()),
    async unseal(place, sealed) {
      const version = rules.sealVersion(sealed);
      if (!loaded.masters.has(version)) await refresh();
      const master = loaded.masters.get(version);
      const text = master && rules.unseal(master, place, sealed);
      if (text === undefined) throw rules.sealedElsewhere();
      return text;
    },
    async isCurrent(session, sealed) {
      return (await rows.masterVersion(session)) === rules.sealVersion(sealed);
    },
    refresh,
    rotate: (session, kind, secret, createdBy) =>
      kind === "master_key"
        ? addMaster(session, rules.requireMasterKey("new_value", secret), createdBy)
        : add(session, kind, rules.requireRingSecret("new_value", secret), createdBy),
    purge: (session) => rows.purgeRetired(session, clock.now() - keyringKeptMs),
  };
}
