import type { Instant } from "../../../kit/clock.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";

/** An environment that was deleted, as it was. */
export type DeletedEnvironment = ReturnType<typeof toDeleted>;

interface DeletedRow {
  id: string;
  org_id: string;
  project_id: string | null;
  name: string;
}

const toDeleted = (row: DeletedRow) => ({
  id: row.id,
  orgId: row.org_id,
  projectId: row.project_id,
  name: row.name,
});

/**
 * Deletes the environments, their keys and the heads of their logs, so that after the commit nothing can be
 * emitted or registered in them, and leaves a tombstone of each. The purge deletes all other rows later.
 * Locks: environments, then heads, then heads of topics, all by id.
 */
export async function deleteEnvironments(
  session: Session,
  which: Sql,
  at: Instant,
): Promise<{ environments: DeletedEnvironment[]; keyHashes: string[] }> {
  const { holdRow } = session.seams;
  const found = await session.all<DeletedRow>(
    sql`SELECT id, org_id, project_id, name FROM environments WHERE ${which} ORDER BY id ${holdRow}`,
  );
  if (found.length === 0) return { environments: [], keyHashes: [] };
  const ids = sql.list(found.map((row) => row.id));
  await session.all(
    sql`SELECT environment_id FROM heads WHERE environment_id IN ${ids} ORDER BY environment_id ${holdRow}`,
  );
  await session.run(sql`DELETE FROM heads WHERE environment_id IN ${ids}`);
  await session.all(
    sql`SELECT environment_id FROM topic_heads WHERE environment_id IN ${ids} ORDER BY environment_id ${holdRow}`,
  );
  await session.run(sql`DELETE FROM topic_heads WHERE environment_id IN ${ids}`);
  const keys = await session.all<{ id: string; key_hash: string }>(
    sql`DELETE FROM api_keys WHERE environment_id IN ${ids} RETURNING id, key_hash`,
  );
  const keyIds = column.text(keys.map((key) => key.id));
  await session.run(sql`DELETE FROM sessions WHERE kind = 'desktop'
    AND subject_id IN (SELECT id FROM ${session.seams.rowsFrom("gone", { id: keyIds })})`);
  await session.run(sql`INSERT INTO deleted_environments (id, org_id, project_id, name, deleted_at)
    SELECT id, org_id, project_id, name, ${sql.bigint(at)} FROM environments WHERE id IN ${ids}`);
  await session.run(sql`DELETE FROM environments WHERE id IN ${ids}`);
  return { environments: found.map(toDeleted), keyHashes: keys.map((key) => key.key_hash) };
}

export const deleteProject = (session: Session, id: string): Promise<number> =>
  session.run(sql`DELETE FROM projects WHERE id = ${id}`);

/**
 * Every table with an `org_id` whose rows go with the org, in the order in which they go; environments have
 * gone before. A unit test compares this and `orgOutlivedBy` with the schema.
 */
export const tablesOfOrg = [
  "api_keys",
  "policy_versions",
  "role_policies",
  "policies",
  "roles",
  "issuer_roles",
  "issuers",
  "users",
  "identities",
  // After users and keys: a login locks one of these first.
  "sessions",
  "projects",
  "environments",
  "exports",
  "imports",
] as const;

/** The tables that keep rows of a deleted org, and why. */
export const orgOutlivedBy = {
  /** Evidence: the platform reads and verifies it, retention cuts it like any other. */
  auth_audit: "its audit",
  auth_audit_heads: "the signed end of its audit",
  /** Ids are never reused. */
  deleted_environments: "tombstones",
  /** A day at most. */
  rotations: "answers that may be asked for again",
} as const;

/**
 * Rows of an import that is not finished stand under environments that are not there yet: the purge finds
 * them by these tombstones.
 */
async function buryImport(session: Session, orgId: string, at: Instant): Promise<void> {
  const found = await session.one<{ environment_ids: string }>(
    sql`SELECT environment_ids FROM imports WHERE org_id = ${orgId} ${session.seams.holdRow}`,
  );
  for (const id of found ? (JSON.parse(found.environment_ids) as string[]) : [])
    await session.run(sql`INSERT INTO deleted_environments (id, org_id, project_id, name, deleted_at)
      VALUES (${id}, ${orgId}, NULL, 'imported', ${sql.bigint(at)})`);
}

/**
 * Everything that an org has besides its environments. Answers the hashes of keys outside any environment.
 */
export async function deleteOrg(session: Session, id: string, at: Instant): Promise<string[]> {
  await buryImport(session, id, at);
  const keys = await session.all<{ key_hash: string }>(
    sql`SELECT key_hash FROM api_keys WHERE org_id = ${id}`,
  );
  for (const table of tablesOfOrg)
    await session.run(
      table === "policy_versions"
        ? sql`DELETE FROM policy_versions WHERE policy_id IN (SELECT id FROM policies WHERE org_id = ${id})`
        : sql`DELETE FROM ${sql.raw(table)} WHERE org_id = ${id}`,
    );
  await session.run(sql`DELETE FROM orgs WHERE id = ${id}`);
  return keys.map((key) => key.key_hash);
}

/** Environments deleted since, in the order of their deletion. */
export const deletedWithin = async (
  store: Pick<Store, "all">,
  since: Instant,
  until: Instant,
): Promise<DeletedEnvironment[]> =>
  (
    await store.all<DeletedRow>(sql`SELECT id, org_id, project_id, name FROM deleted_environments
      WHERE deleted_at >= ${since} AND deleted_at <= ${until} ORDER BY deleted_at`)
  ).map(toDeleted);

/** Undefined of one that is not deleted. */
export const deletedAt = async (store: Pick<Store, "one">, id: string): Promise<Instant | undefined> =>
  (
    await store.one<{ deleted_at: Instant }>(
      sql`SELECT deleted_at FROM deleted_environments WHERE id = ${id}`,
    )
  )?.deleted_at;
