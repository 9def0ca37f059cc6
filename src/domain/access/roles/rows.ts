import { type InCamelCase, inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { readAs } from "../../../kit/columns.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

const names = "id, org_id, name, base, created_at, updated_at";
const fields = sql.raw(names);
type RoleColumns = RowOf<"roles", typeof names>;

/**
 * A role that an org created. `base`: name of the built-in role whose grants it has; empty: it grants nothing
 * by itself.
 */
export type RoleRow = InCamelCase<RoleColumns>;

const toRole = (row: RoleColumns): RoleRow => inCamelCase(row);

const read = readAs(toRole);

/**
 * Locks the org's row, so that changes of its roles and policies run one after the other. False when it is
 * gone.
 */
export async function raiseAccess(session: Session, orgId: string): Promise<boolean> {
  return (
    (await session.run(sql`UPDATE orgs SET access_version = access_version + 1 WHERE id = ${orgId}`)) === 1
  );
}

export const rolesOf = (store: StoreReader, orgId: string) =>
  read.all(store, sql`SELECT ${fields} FROM roles WHERE org_id = ${orgId} ORDER BY created_at, id`);

export const roleById = (store: StoreReader, orgId: string, id: string) =>
  read.one(store, sql`SELECT ${fields} FROM roles WHERE id = ${id} AND org_id = ${orgId}`);

export const orgCreatedAt = async (store: StoreReader, orgId: string): Promise<Instant | undefined> =>
  (await store.one<{ created_at: number }>(sql`SELECT created_at FROM orgs WHERE id = ${orgId}`))?.created_at;

/** How many policies each role of the org has; roles without any are left out. */
export async function policyCounts(store: StoreReader, orgId: string): Promise<Map<string, number>> {
  const rows = await store.all<{ role_id: string; count: number }>(
    sql`SELECT role_id, count(*) AS count FROM role_policies WHERE org_id = ${orgId} GROUP BY role_id`,
  );
  return new Map(rows.map((row) => [row.role_id, row.count]));
}

export const insertRole = (session: Session, role: RoleRow): Promise<number> =>
  session.run(sql`INSERT INTO roles (${fields})
    VALUES (${role.id}, ${role.orgId}, ${role.name}, ${role.base}, ${role.createdAt}, ${role.updatedAt})
    ON CONFLICT (org_id, name) DO NOTHING`);

export const updateRole = (session: Session, role: RoleRow): Promise<number> =>
  session.run(sql`UPDATE roles SET name = ${role.name}, base = ${role.base}, updated_at = ${role.updatedAt}
    WHERE id = ${role.id} AND org_id = ${role.orgId}`);

export async function deleteRole(session: Session, orgId: string, id: string): Promise<void> {
  await session.run(sql`DELETE FROM role_policies WHERE org_id = ${orgId} AND role_id = ${id}`);
  await session.run(sql`DELETE FROM roles WHERE id = ${id} AND org_id = ${orgId}`);
}

export const assignPolicy = (
  session: Session,
  { orgId, roleId, policyId, at }: { orgId: string; roleId: string; policyId: string; at: Instant },
): Promise<number> =>
  session.run(sql`INSERT INTO role_policies (org_id, role_id, policy_id, created_at)
    VALUES (${orgId}, ${roleId}, ${policyId}, ${at}) ON CONFLICT (org_id, role_id, policy_id) DO NOTHING`);

export const unassignPolicy = (
  session: Session,
  { orgId, roleId, policyId }: { orgId: string; roleId: string; policyId: string },
): Promise<number> =>
  session.run(sql`DELETE FROM role_policies
    WHERE org_id = ${orgId} AND role_id = ${roleId} AND policy_id = ${policyId}`);

export async function policyExists(store: StoreReader, orgId: string, policyId: string): Promise<boolean> {
  return (
    (await store.one(sql`SELECT id FROM policies WHERE id = ${policyId} AND org_id = ${orgId}`)) !== undefined
  );
}
