import type { Instant } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { RingRow } from "./rows.ts";
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
export const places = {
  master: (version: number) => `keyring/master/${version}`,
  next: (version: number) => `keyring/master_next/${version}`,
  secret: (kind: string, version: number) => `keyring/${kind}/${version}`,
};

/** Each master key seals this text, so that a node can tell whether it has the right one. */
export const proof = "svc master key";

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
export function openMasters(
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
