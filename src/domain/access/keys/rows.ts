import type { Instant } from "../../../kit/clock.ts";
import { readAs } from "../../../kit/columns.ts";
import { updateLastUsed as lastUsed, type UsedSlice } from "../../../kit/last-used.ts";
import { countOf, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export interface NewKey {
  id: string;
  orgId: string;
  environmentId: string | null;
  name: string;
  hash: string;
  prefix: string;
  roleIds: readonly string[];
  createdAt: Instant;
  expiresAt: Instant | null;
  /** A key of the platform, outside every environment. */
  isPlatform: boolean;
}

/** A key as it is listed: never its text. */
export interface ListedKey extends Omit<NewKey, "hash"> {
  lastUsedAt: Instant | null;
}

/** A key whose row the session holds. */
export interface HeldKey extends ListedKey {
  hash: string;
  /** Sessions that were made with the key before this instant are refused. */
  tokensAfter: Instant;
}

/** What authentication must know of a key. */
export type KeyFacts = ReturnType<typeof toFacts>;

type FactsRow = RowOf<
  "api_keys",
  "id, org_id, environment_id, role_ids, expires_at, platform_at, tokens_after"
>;

export const keyByHash = (store: StoreReader, hash: string) =>
  readFacts.one(store, sql`SELECT ${facts} FROM api_keys WHERE key_hash = ${hash}`);

export const keyById = (store: StoreReader, id: string) =>
  readFacts.one(store, sql`SELECT ${facts} FROM api_keys WHERE id = ${id}`);

const facts = sql.raw("id, org_id, environment_id, role_ids, expires_at, platform_at, tokens_after");

const toFacts = (row: FactsRow) => ({
  id: row.id,
  orgId: row.org_id,
  environmentId: row.environment_id,
  roleIds: JSON.parse(row.role_ids) as string[],
  expiresAt: row.expires_at,
  isPlatform: row.platform_at !== null,
  tokensAfter: row.tokens_after,
});

const readFacts = readAs(toFacts);

interface ListedRow extends FactsRow {
  name: string;
  key_prefix: string;
  created_at: number;
  last_used_at: number | null;
}

const listed = sql.raw(
  "id, org_id, environment_id, name, key_prefix, role_ids, created_at, expires_at, last_used_at, platform_at, tokens_after",
);

const toListed = (row: ListedRow): ListedKey & { tokensAfter: Instant } => ({
  ...toFacts(row),
  name: row.name,
  prefix: row.key_prefix,
  createdAt: row.created_at,
  lastUsedAt: row.last_used_at,
});

const readListed = readAs(toListed);

/** Of one org, oldest first, expired ones too. */
export const keysOf = (store: Pick<Store, "all">, orgId: string) =>
  readListed.all(store, sql`SELECT ${listed} FROM api_keys WHERE org_id = ${orgId} ORDER BY created_at, id`);

export const listedKey = (store: StoreReader, id: string) =>
  readListed.one(store, sql`SELECT ${listed} FROM api_keys WHERE id = ${id}`);

export const setRoleIds = (session: Session, id: string, roleIds: readonly string[]): Promise<number> =>
  session.run(sql`UPDATE api_keys SET role_ids = ${JSON.stringify(roleIds)} WHERE id = ${id}`);

export const countKeys = (reader: StoreReader, orgId: string): Promise<number> =>
  countOf(reader, sql`FROM api_keys WHERE org_id = ${orgId}`);

/** How many keys of the org carry each role. */
export async function keyRoleCounts(store: Pick<Store, "all">, orgId: string): Promise<Map<string, number>> {
  const rows = await store.all<{ role_ids: string }>(
    sql`SELECT role_ids FROM api_keys WHERE org_id = ${orgId}`,
  );
  const counts = new Map<string, number>();
  for (const { role_ids } of rows)
    for (const id of JSON.parse(role_ids) as string[]) counts.set(id, (counts.get(id) ?? 0) + 1);
  return counts;
}

export const anyKey = async (store: StoreReader): Promise<boolean> =>
  (await store.one(sql`SELECT id FROM api_keys LIMIT 1`)) !== undefined;

export async function hashOfKey(store: StoreReader, id: string): Promise<string | undefined> {
  const row = await store.one<{ key_hash: string }>(sql`SELECT key_hash FROM api_keys WHERE id = ${id}`);
  return row?.key_hash;
}

/** False when the id is taken. */
export async function insertKey(session: Session, key: NewKey): Promise<boolean> {
  const inserted = await session.run(
    sql`INSERT INTO api_keys (id, org_id, environment_id, name, key_hash, key_prefix, role_ids, created_at, expires_at, platform_at)
        VALUES (${key.id}, ${key.orgId}, ${key.environmentId}, ${key.name}, ${key.hash}, ${key.prefix},
                ${JSON.stringify(key.roleIds)}, ${key.createdAt}, ${key.expiresAt},
                ${key.isPlatform ? key.createdAt : null})
        ON CONFLICT (id) DO NOTHING`,
  );
  return inserted === 1;
}

/** Deletes the key only while it has this hash: a key that was rotated meanwhile stays. */
export async function deleteKey(session: Session, id: string, hash: string): Promise<boolean> {
  return (await session.run(sql`DELETE FROM api_keys WHERE id = ${id} AND key_hash = ${hash}`)) === 1;
}

/** Locks the key until the transaction ends; undefined when the org has no such key. */
export async function holdKey(session: Session, id: string, orgId: string): Promise<HeldKey | undefined> {
  const row = await session.one<ListedRow & { key_hash: string }>(sql`SELECT ${listed}, key_hash FROM api_keys
    WHERE id = ${id} AND org_id = ${orgId} ${session.seams.holdRow}`);
  return row && { ...toListed(row), hash: row.key_hash };
}

export const changeHash = (
  session: Session,
  id: string,
  change: { hash: string; prefix: string; tokensAfter: Instant },
): Promise<number> =>
  session.run(sql`UPDATE api_keys SET key_hash = ${change.hash}, key_prefix = ${change.prefix},
    tokens_after = ${change.tokensAfter} WHERE id = ${id}`);

export const updateLastUsed = (session: Session, used: UsedSlice): Promise<number> =>
  session.run(lastUsed("api_keys", used, session.seams));
