import type { Clock, Instant } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Session } from "../../../store/store.ts";
import type { RingRow } from "./rows.ts";
import * as rows from "./rows.ts";
import type { RingKind } from "./rules.ts";
import * as rules from "./rules.ts";

/** A secret of the ring; `id` is what a token says it was signed with. */
export interface RingSecret {
  id: string;
  secret: string;
}

/** What a node opened of the stored rows. */
export interface Ring {
  /** The master keys by version; `version` is the one in force. */
  masters: Map<number, string>;
  version: number;
  /** By kind, oldest first: the last is the current one. */
  secrets: Map<RingKind, (RingSecret & { version: number; retiredAt: Instant | null })[]>;
}

/** The master key that this node has, and where it came from, for messages. */
export interface HeldMaster {
  key: string;
  source: string;
}

/** The rows that values are sealed for: a value opens in no other. */
const places = {
  master: (version: number) => `keyring/master/${version}`,
  next: (version: number) => `keyring/master_next/${version}`,
  secret: (kind: string, version: number) => `keyring/${kind}/${version}`,
};

/** Each master key seals this text, so that a node can tell whether it has the right one. */
const proof = "svc master key";

export const emptyRing = (): Ring => ({ masters: new Map(), version: 0, secrets: new Map() });

/** A fault for the operator who starts the node. */
export const unopened = (about: string): Fault => new Fault("failed_precondition", about);

export const newest = (list: readonly RingRow[], kind: string): RingRow | undefined =>
  list.filter((row) => row.kind === kind).at(-1);

/** When a secret of the installation was made or rotated last, without the secret. */
export interface RotatedSecret {
  /** As rotations name it. */
  kind: RingKind | "master_key";
  version: number;
  rotatedAt: Instant;
  /** Until when the previous secret is valid, too; undefined for none, or for as long as what it signed. */
  previousUntil: Instant | undefined;
}

/** What the rows say of each secret. One before stays good for `keptMs`. */
export function rotatedSecrets(list: readonly RingRow[], now: Instant, keptMs: number): RotatedSecret[] {
  const stateOf = (kind: RotatedSecret["kind"], rowKind: string, retiredKind: string): RotatedSecret[] => {
    const current = newest(list, rowKind);
    if (!current) return [];
    const ends = list.flatMap(({ kind: own, retired_at }) =>
      own === retiredKind && retired_at !== null && retired_at + keptMs > now ? [retired_at + keptMs] : [],
    );
    const previousUntil = ends.length > 0 && !isLasting(kind) ? Math.max(...ends) : undefined;
    return [{ kind, version: current.version, rotatedAt: current.created_at, previousUntil }];
  };
  return [
    ...stateOf("master_key", "master", "master_next"),
    ...rules.ringKinds.flatMap((kind) => stateOf(kind, kind, kind)),
  ];
}

const isLasting = (kind: string): boolean => rules.lastingKinds.includes(kind as RingKind);

/**
 * From the key that the node has to the one in force: each version opens the next, for
 * `keyringKeptMs`.
 */
function openMasters(
  list: readonly RingRow[],
  { key, source }: HeldMaster,
): Pick<Ring, "masters" | "version"> {
  const start = list.find((row) => row.kind === "master" && row.fingerprint === rules.fingerprintOf(key));
  const last = newest(list, "master");
  if (!start || !last || rules.unseal(key, places.master(start.version), start.sealed) !== proof)
    throw unopened(
      `the master key is not the one that this database is sealed with (${source}): give every node the same SVC_MASTER_KEY`,
    );
  const masters = new Map([[start.version, key]]);
  for (let version = start.version; version < last.version; version++) {
    const link = list.find((row) => row.kind === "master_next" && row.version === version);
    const next = link && rules.unseal(masters.get(version)!, places.next(version), link.sealed);
    if (next === undefined)
      throw unopened(`the master key was rotated, and the one given here is too old (${source})`);
    masters.set(version + 1, next);
  }
  return { masters, version: last.version };
}

/**
 * Opens every row. `known` are the master keys of the ring before: values sealed under them stay readable.
 */
export function openRing(
  list: readonly RingRow[],
  held: HeldMaster,
  known: ReadonlyMap<number, string>,
): Ring {
  const { masters, version } = openMasters(list, held);
  for (const [own, key] of known) masters.set(own, key);
  const secrets: Ring["secrets"] = new Map(rules.ringKinds.map((kind) => [kind, []]));
  for (const row of list) {
    const own = secrets.get(row.kind as RingKind);
    if (!own) continue;
    const master = masters.get(rules.sealVersion(row.sealed));
    const secret = master && rules.unseal(master, places.secret(row.kind, row.version), row.sealed);
    if (secret === undefined && rules.replaceableKinds.includes(row.kind as RingKind)) continue;
    if (secret === undefined) throw new Error(`keyring row ${row.kind}/${row.version} cannot be opened`);
    own.push({ id: row.fingerprint, secret, version: row.version, retiredAt: row.retired_at });
  }
  return { masters, version, secrets };
}

/** Seals again whatever else is sealed, in the transaction of a new master key. */
export type Reseal = (session: Session, again: (place: string, sealed: string) => string) => Promise<void>;

/** Writes the rows of the keyring; each change holds all rows until its transaction ends. */
export class RingWriter {
  readonly #clock: Clock;
  readonly #ids: Ids;
  readonly #reseal: Reseal | undefined;

  constructor(deps: { clock: Clock; ids: Ids; reseal?: Reseal | undefined }) {
    this.#clock = deps.clock;
    this.#ids = deps.ids;
    this.#reseal = deps.reseal;
  }

  nonce(): Uint8Array {
    return Buffer.from(this.#ids.secret(rules.nonceBytes), "hex");
  }

  /** Does nothing when another node was first. */
  async addFirstMaster(session: Session, key: string): Promise<void> {
    await rows.insertRow(session, {
      kind: "master",
      version: 1,
      sealed: rules.seal(key, 1, places.master(1), proof, this.nonce()),
      fingerprint: rules.fingerprintOf(key),
      created_at: this.#clock.now(),
      createdBy: "system",
    });
  }

  async addSecret(
    session: Session,
    held: HeldMaster,
    { kind, secret, createdBy }: { kind: RingKind; secret: string; createdBy: string },
  ): Promise<void> {
    const list = await rows.holdRows(session);
    const { masters, version: master } = openMasters(list, held);
    const fingerprint = rules.fingerprintOf(secret);
    if (newest(list, kind)?.fingerprint === fingerprint) return;
    if (list.some((row) => row.kind === kind && row.fingerprint === fingerprint))
      throw new Fault("already_exists", "new_value: already used before", { field: "new_value" });
    const version = (newest(list, kind)?.version ?? 0) + 1;
    const now = this.#clock.now();
    await rows.insertRow(session, {
      kind,
      version,
      sealed: rules.seal(masters.get(master)!, master, places.secret(kind, version), secret, this.nonce()),
      fingerprint,
      created_at: now,
      createdBy,
    });
    await rows.retireBefore(session, kind, version, now);
  }

  /**
   * Seals everything again in the same transaction. `known` are the master keys that this node had opened
   * before.
   */
  async addMaster(
    session: Session,
    held: HeldMaster,
    known: ReadonlyMap<number, string>,
    { key, createdBy }: { key: string; createdBy: string },
  ): Promise<void> {
    const list = await rows.holdRows(session);
    const before = openRing(list, held, known);
    const fingerprint = rules.fingerprintOf(key);
    if (list.some((row) => row.kind === "master" && row.fingerprint === fingerprint))
      throw new Fault("already_exists", "new_value: already used as a master key", { field: "new_value" });
    const version = before.version + 1;
    const now = this.#clock.now();
    const put = (kind: string, at: number, sealed: string) =>
      rows.insertRow(session, { kind, version: at, sealed, fingerprint, created_at: now, createdBy });
    const sealed = (place: string, text: string) => rules.seal(key, version, place, text, this.nonce());
    const old = before.masters.get(before.version)!;
    const wrapped = rules.seal(old, before.version, places.next(before.version), key, this.nonce());
    await put("master", version, sealed(places.master(version), proof));
    await put("master_next", before.version, wrapped);
    await rows.retireBefore(session, "master_next", version, now);
    for (const [kind, secrets] of before.secrets)
      for (const { version: own, secret } of secrets)
        await rows.resealRow(session, { kind, version: own }, sealed(places.secret(kind, own), secret));
    await this.#reseal?.(session, (place, text) => {
      const master = before.masters.get(rules.sealVersion(text)) ?? known.get(rules.sealVersion(text));
      const opened = master && rules.unseal(master, place, text);
      if (opened === undefined) throw rules.sealedElsewhere();
      return sealed(place, opened);
    });
  }
}
