import type { SnapshotRows } from "../../../gate/snapshot.ts";
import { type InCamelCase, inCamelCase } from "../../../kit/cases.ts";
import { readAs } from "../../../kit/columns.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

const names = `id, org_id, name, actions, resources, condition, version, template_id, template_version, created_at,
  updated_at`;
const fields = sql.raw(names);
type PolicyColumns = RowOf<"policies", typeof names>;

/** A deny policy in its current version; an empty `condition` always holds. */
export type Policy = InCamelCase<PolicyColumns>;

export type PolicyVersion = InCamelCase<RowOf<"policy_versions">>;

const toPolicy = (row: PolicyColumns): Policy => inCamelCase(row);

const read = readAs(toPolicy);

export const policiesOf = (store: StoreReader, orgId: string) =>
  read.all(store, sql`SELECT ${fields} FROM policies WHERE org_id = ${orgId} ORDER BY created_at, id`);

export const policyById = (store: StoreReader, orgId: string, id: string) =>
  read.one(store, sql`SELECT ${fields} FROM policies WHERE id = ${id} AND org_id = ${orgId}`);

export const policiesOfRole = (store: StoreReader, orgId: string, roleId: string) =>
  read.all(
    store,
    sql`SELECT ${fields} FROM policies WHERE org_id = ${orgId}
    AND id IN (SELECT policy_id FROM role_policies WHERE org_id = ${orgId} AND role_id = ${roleId})
    ORDER BY created_at, id`,
  );

export async function roleCounts(store: StoreReader, orgId: string): Promise<Map<string, number>> {
  const rows = await store.all<{ policy_id: string; count: number }>(
    sql`SELECT policy_id, count(*) AS count FROM role_policies WHERE org_id = ${orgId} GROUP BY policy_id`,
  );
  return new Map(rows.map((row) => [row.policy_id, row.count]));
}

export const insertPolicy = (session: Session, policy: Policy): Promise<number> =>
  session.run(sql`INSERT INTO policies (${fields})
    VALUES (${policy.id}, ${policy.orgId}, ${policy.name}, ${policy.actions}, ${policy.resources},
      ${policy.condition}, ${policy.version}, ${policy.templateId}, ${policy.templateVersion}, ${policy.createdAt},
      ${policy.updatedAt})
    ON CONFLICT (org_id, name) DO NOTHING`);

export const updatePolicy = (session: Session, policy: Policy): Promise<number> =>
  session.run(sql`UPDATE policies SET name = ${policy.name}, actions = ${policy.actions},
      resources = ${policy.resources}, condition = ${policy.condition}, version = ${policy.version},
      template_id = ${policy.templateId}, template_version = ${policy.templateVersion}, updated_at = ${policy.updatedAt}
    WHERE id = ${policy.id} AND org_id = ${policy.orgId}`);

export async function deletePolicy(session: Session, orgId: string, id: string): Promise<void> {
  await session.run(sql`DELETE FROM role_policies WHERE org_id = ${orgId} AND policy_id = ${id}`);
  await session.run(sql`DELETE FROM policy_versions WHERE org_id = ${orgId} AND policy_id = ${id}`);
  await session.run(sql`DELETE FROM policies WHERE org_id = ${orgId} AND id = ${id}`);
}

export const insertVersion = (
  session: Session,
  policy: Policy,
  by: { authorId: string; changeReason: string | null },
): Promise<number> =>
  session.run(sql`INSERT INTO policy_versions (policy_id, version, org_id, name, actions, resources, condition,
      author_id, change_reason, template_id, template_version, created_at)
    VALUES (${policy.id}, ${policy.version}, ${policy.orgId}, ${policy.name}, ${policy.actions}, ${policy.resources},
      ${policy.condition}, ${by.authorId}, ${by.changeReason}, ${policy.templateId}, ${policy.templateVersion},
      ${policy.updatedAt})`);

export async function versionsOf(
  store: StoreReader,
  orgId: string,
  policyId: string,
): Promise<PolicyVersion[]> {
  const rows = await store.all<
    RowOf<"policy_versions">
  >(sql`SELECT policy_id, version, org_id, name, actions, resources, condition, author_id, change_reason,
      template_id, template_version, created_at
    FROM policy_versions WHERE policy_id = ${policyId} AND org_id = ${orgId} ORDER BY version DESC`);
  return rows.map((row) => inCamelCase(row));
}

export async function accessVersion(store: StoreReader, orgId: string): Promise<number | undefined> {
  const row = await store.one<{ access_version: number }>(
    sql`SELECT access_version FROM orgs WHERE id = ${orgId}`,
  );
  return row?.access_version;
}

/** The org's roles and policies. The version is read first: it must never be newer than the rest. */
export async function readSnapshot(store: StoreReader, orgId: string): Promise<SnapshotRows | undefined> {
  const version = await accessVersion(store, orgId);
  if (version === undefined) return undefined;
  const [roles, policies, assigned] = await Promise.all([
    store.all<{ id: string; name: string; base: string }>(
      sql`SELECT id, name, base FROM roles WHERE org_id = ${orgId}`,
    ),
    policiesOf(store, orgId),
    store.all<{ role_id: string; policy_id: string }>(
      sql`SELECT role_id, policy_id FROM role_policies WHERE org_id = ${orgId}`,
    ),
  ]);
  return {
    orgId,
    version,
    roles,
    policies,
    assigned: assigned.map((row) => ({ roleId: row.role_id, policyId: row.policy_id })),
  };
}
