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
  platformAt: Instant | null;
}

/** What authentication must know of a key. */
export interface KeyFacts {
  id: string;
  orgId: string;
  environmentId: string | null;
  roleIds: string[];
  expiresAt: Instant | null;
  /** A key of the platform, above all orgs. */
  platform: boolean;
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
  const row = await store.one<FactsRow>(
    sql`SELECT id, org_id, environment_id, role_ids, expires_at, platform_at FROM api_keys WHERE key_hash = ${hash}`,
  );
  if (!row) return undefined;
  return {
    id: row.id,
    orgId: row.org_id,
    environmentId: row.environment_id,
    roleIds: JSON.parse(row.role_ids) as string[],
    expiresAt: row.expires_at,
    platform: row.platform_at !== null,
  };
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
                ${JSON.stringify(key.roleIds)}, ${key.createdAt}, ${key.expiresAt}, ${key.platformAt})
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
