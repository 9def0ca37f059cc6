import type { Instant } from "../../kit/clock.ts";
import { column, sql } from "../../kit/sql.ts";
import type { Session, Store } from "../../store/store.ts";

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

/** What authentication must know of a key. */
export interface KeyFacts {
  id: string;
  orgId: string;
  environmentId: string | null;
  roleIds: string[];
  expiresAt: Instant | null;
  isPlatform: boolean;
}

type Reader = Pick<Store, "one">;

interface FactsRow {
  id: string;
  org_id: string;
  environment_id: string | null;
  role_ids: string;
  expires_at: number | null;
  platform_at: number | null;
}

export async function keyByHash(store: Reader, hash: string): Promise<KeyFacts | undefined> {
  const row = await store.one<FactsRow>(sql`SELECT ${facts} FROM api_keys WHERE key_hash = ${hash}`);
  return row && toFacts(row);
}

export async function keyById(store: Reader, id: string): Promise<KeyFacts | undefined> {
  const row = await store.one<FactsRow>(sql`SELECT ${facts} FROM api_keys WHERE id = ${id}`);
  return row && toFacts(row);
}

const facts = sql.raw("id, org_id, environment_id, role_ids, expires_at, platform_at");

const toFacts = (row: FactsRow): KeyFacts => ({
  id: row.id,
  orgId: row.org_id,
  environmentId: row.environment_id,
  roleIds: JSON.parse(row.role_ids) as string[],
  expiresAt: row.expires_at,
  isPlatform: row.platform_at !== null,
});

interface ListedRow extends FactsRow {
  name: string;
  key_prefix: string;
  created_at: number;
  last_used_at: number | null;
}

const listed = sql.raw(
  "id, org_id, environment_id, name, key_prefix, role_ids, created_at, expires_at, last_used_at, platform_at",
);

const toListed = (row: ListedRow): ListedKey => ({
  ...toFacts(row),
  name: row.name,
  prefix: row.key_prefix,
  createdAt: row.created_at,
  lastUsedAt: row.last_used_at,
});

/** Of one org, oldest first, expired ones too. */
export async function keysOf(store: Pick<Store, "all">, orgId: string): Promise<ListedKey[]> {
  const rows = await store.all<ListedRow>(
    sql`SELECT ${listed} FROM api_keys WHERE org_id = ${orgId} ORDER BY created_at, id`,
  );
  return rows.map(toListed);
}

export async function listedKey(store: Reader, id: string): Promise<ListedKey | undefined> {
  const row = await store.one<ListedRow>(sql`SELECT ${listed} FROM api_keys WHERE id = ${id}`);
  return row && toListed(row);
}

export const setRoleIds = (session: Session, id: string, roleIds: readonly string[]): Promise<number> =>
  session.run(sql`UPDATE api_keys SET role_ids = ${JSON.stringify(roleIds)} WHERE id = ${id}`);

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

export const anyKey = async (store: Reader): Promise<boolean> =>
  (await store.one(sql`SELECT id FROM api_keys LIMIT 1`)) !== undefined;

export async function hashOfKey(store: Reader, id: string): Promise<string | undefined> {
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

/** Only while it is still this very key: one that was rotated meanwhile stays. */
export async function deleteKey(session: Session, id: string, hash: string): Promise<boolean> {
  return (await session.run(sql`DELETE FROM api_keys WHERE id = ${id} AND key_hash = ${hash}`)) === 1;
}

/** Undefined when the org has no such key. The row is held until the transaction ends. */
export const holdKey = (
  session: Session,
  id: string,
  orgId: string,
): Promise<{ key_hash: string; expires_at: Instant | null } | undefined> =>
  session.one(sql`SELECT key_hash, expires_at FROM api_keys
    WHERE id = ${id} AND org_id = ${orgId} ${session.seams.holdRow}`);

export const changeHash = (session: Session, id: string, hash: string, prefix: string): Promise<number> =>
  session.run(sql`UPDATE api_keys SET key_hash = ${hash}, key_prefix = ${prefix} WHERE id = ${id}`);

/** Rows that another node writes right now are left out: its time is as good. */
export async function updateLastUsed(
  session: Session,
  used: readonly (readonly [string, Instant])[],
): Promise<void> {
  const { rowsFrom, skipLocked } = session.seams;
  const ids = used.map(([id]) => id);
  const ats = used.map(([, at]) => at);
  await session.run(
    sql`WITH due AS (
          SELECT id FROM api_keys WHERE id IN (SELECT id FROM ${rowsFrom("named", { id: column.text(ids) })})
          ORDER BY id ${skipLocked})
        UPDATE api_keys SET last_used_at = used.at
        FROM ${rowsFrom("used", { id: column.text(ids), at: column.bigint(ats) })}
        WHERE api_keys.id = used.id AND api_keys.id IN (SELECT id FROM due)
          AND (api_keys.last_used_at IS NULL OR api_keys.last_used_at < used.at)`,
  );
}
