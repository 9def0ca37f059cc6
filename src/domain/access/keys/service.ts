import type { Caller } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { LastUsed } from "../../../kit/last-used.ts";
import { keyLeaseMs } from "../../../kit/limits.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Basics, Session, StoreReader } from "../../../store/store.ts";
import type { NewKey } from "./rows.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

/** A key as authentication needs it. */
export interface KnownKey {
  readonly caller: Caller;
  readonly environmentId: string | undefined;
  readonly expiresAt: Instant | undefined;
}

export interface CreateKey {
  /** A new `ak_…` when left out. */
  id?: string;
  orgId: string;
  environmentId: string | null;
  name: string;
  roleIds: readonly string[];
  /** Now, when not given. */
  createdAt?: Instant;
  expiresAt?: Instant;
  isPlatform?: boolean;
  /** A random one when left out. */
  key?: string;
}

export type Keys = ReturnType<typeof keys>;

export interface KeysDeps extends Basics<"store" | "clock" | "ids"> {
  /** Ends every session that was made with the key, in the same transaction. */
  endSessions: (session: Session, keyId: string) => Promise<void>;
}

const knownKey = ({ id, orgId, roleIds, isPlatform, tokensAfter, ...rest }: rows.KeyFacts): KnownKey => ({
  caller: { kind: isPlatform ? "platform" : "key", id, orgId, roles: roleIds, tokensAfter },
  environmentId: rest.environmentId ?? undefined,
  expiresAt: rest.expiresAt ?? undefined,
});

/** Keys as those that carry roles. */
const carriers = {
  /** How many keys of the org, or of the platform, carry the role; under the lock of the org. */
  countWithRole: async (session: Session, orgId: string, roleId: string) =>
    (await rows.keyRoleCounts(session, orgId)).get(roleId) ?? 0,
  /** Takes the role from every key that carries it; under the same lock. */
  async revokeRole(session: Session, orgId: string, roleId: string) {
    for (const { id, roleIds } of await rows.keysOf(session, orgId))
      if (roleIds.includes(roleId))
        await rows.setRoleIds(
          session,
          id,
          roleIds.filter((one) => one !== roleId),
        );
  },
};

const keysRemembered = 50_000;

export function keys({ store, clock, ids, endSessions }: KeysDeps) {
  const byHash = ttlCache<KnownKey>({
    clock,
    keptMs: keyLeaseMs,
    entriesMax: keysRemembered,
    async read(hash) {
      const facts = await rows.keyByHash(store, hash);
      return facts && knownKey(facts);
    },
  });
  const use = new LastUsed(clock, (slice) => store.write((session) => rows.updateLastUsed(session, slice)));

  const make = ({
    id,
    orgId,
    environmentId,
    name,
    roleIds,
    createdAt = clock.now(),
    expiresAt,
    isPlatform = false,
    key,
  }: CreateKey) => {
    const prefix = isPlatform ? rules.platformKeyPrefix : rules.tenantKeyPrefix;
    const text = key ?? `${prefix}${ids.secret(rules.keyBytes)}`;
    const row: NewKey = {
      id: id ?? `ak_${ids.uuid()}`,
      orgId,
      environmentId,
      name,
      hash: rules.keyHash(text),
      prefix: rules.keyPrefixOf(text),
      roleIds,
      createdAt,
      expiresAt: expiresAt ?? null,
      isPlatform,
    };
    return { key: text, row };
  };

  async function removeExactly(session: Session, id: string, hash: string): Promise<boolean> {
    if (!(await rows.deleteKey(session, id, hash))) return false;
    await endSessions(session, id);
    return true;
  }

  return {
    /** A key with its text, not yet stored. */
    make,
    hold: rows.holdKey,
    /** The key with this text. From the cache, without a promise, for half a second after a lookup. */
    find(text: string): KnownKey | undefined | Promise<KnownKey | undefined> {
      if (text.length > rules.keyTextBytesMax) return undefined;
      const hash = rules.keyHash(text);
      return byHash.peek(hash) ?? byHash.get(hash);
    },

    /** The key with this id, for sessions that were made with a key. */
    async byId(id: string): Promise<KnownKey | undefined> {
      const facts = await rows.keyById(store, id);
      return facts && knownKey(facts);
    },

    /** Notes a successful authentication; `writeUsed` stores it later. */
    used: (key: KnownKey) => use.note(key.caller.id),
    /** One round of the loop `keys.used`. */
    writeUsed: () => use.write(),

    async create(wanted: CreateKey) {
      const { key, row } = make(wanted);
      await store.write((session) => rows.insertKey(session, row));
      byHash.forget(row.hash);
      return { id: row.id, key };
    },

    /** Revokes the key: this node refuses it at once, others within `keyLeaseMs`. False when it was gone. */
    async remove(id: string): Promise<boolean> {
      const hash = await store.write(async (session) => {
        const known = await rows.hashOfKey(session, id);
        return known !== undefined && (await removeExactly(session, id, known)) ? known : undefined;
      });
      if (hash !== undefined) byHash.forget(hash);
      return hash !== undefined;
    },

    /** Gives the org's key a new text and ends its sessions; answers the old text's hash, for `forget`. */
    async rekey(session: Session, id: string, orgId: string, text: string): Promise<string> {
      rules.requireKeyText("new_value", text);
      const row = await rows.holdKey(session, id, orgId);
      if (!row) throw missing("api key", id);
      const now = clock.now();
      if (row.expiresAt !== null && row.expiresAt <= now)
        throw new Fault("failed_precondition", "an expired key cannot be rotated");
      const hash = rules.keyHash(text);
      const other = await rows.keyByHash(session, hash);
      if (other && other.id !== id) throw rules.keyTextTaken("new_value");
      // Grows even within one millisecond: a session that is being made compares it to see that the key was
      // rotated.
      const tokensAfter = Math.max(now, row.tokensAfter + 1);
      await rows.changeHash(session, id, { hash, prefix: rules.keyPrefixOf(text), tokensAfter });
      await endSessions(session, id);
      return row.hash;
    },

    /** Drops what this node cached of the key with this hash. */
    forget: byHash.forget,
    any: () => rows.anyKey(store),
    /** How many keys of the org carry each role. */
    roleCounts: (orgId: string) => rows.keyRoleCounts(store, orgId),
    /** Pass the session when the answer decides what it writes. */
    hashOf: (id: string, reader: StoreReader = store) => rows.hashOfKey(reader, id),
    insert: rows.insertKey,
    /** Deletes the key, if it still has this hash, with its sessions. */
    removeExactly,
    ...carriers,
  };
}
