import { type InCamelCase, inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { readAs } from "../../../kit/columns.ts";
import { countOf, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export interface Preferences {
  /** `Europe/Berlin`. */
  default_timezone?: string;
}

export interface Org extends Omit<InCamelCase<OrgRow>, "preferences"> {
  preferences: Preferences | undefined;
}

export type Project = ReturnType<typeof toProject>;

/** An org with what it has, for the platform. */
export interface Tenant {
  id: string;
  name: string;
  createdAt: Instant;
  environments: number;
  keys: number;
}

const orgNames = "id, name, preferences, created_at, updated_at";
const orgFields = sql.raw(orgNames);
type OrgRow = RowOf<"orgs", typeof orgNames>;
const projectNames = "id, org_id, name, description, created_at, updated_at";
const projectFields = sql.raw(projectNames);
type ProjectRow = RowOf<"projects", typeof projectNames>;

const toOrg = (row: OrgRow): Org => ({
  ...inCamelCase(row),
  preferences: row.preferences === null ? undefined : (JSON.parse(row.preferences) as Preferences),
});

const read = readAs(toOrg);

const toProject = (row: ProjectRow) => ({
  ...inCamelCase(row),
  description: row.description ?? undefined,
});

export const getOrg = (store: StoreReader, id: string) =>
  read.one(store, sql`SELECT ${orgFields} FROM orgs WHERE id = ${id}`);

/** The oldest org of a name: names are not unique. */
export const orgNamed = (store: StoreReader, name: string): Promise<{ id: string } | undefined> =>
  store.one(sql`SELECT id FROM orgs WHERE name = ${name} ORDER BY created_at, id LIMIT 1`);

/** Locks the org against deletion until the transaction ends; false when there is none. */
export const shareOrg = async (session: Session, id: string): Promise<boolean> =>
  (await session.one(sql`SELECT id FROM orgs WHERE id = ${id} ${session.seams.shareRow}`)) !== undefined;

/** Locks the org: no other transaction changes it, or creates anything under it, until this one ends. */
export const holdOrg = (session: Session, id: string) =>
  read.one(session, sql`SELECT ${orgFields} FROM orgs WHERE id = ${id} ${session.seams.holdRow}`);

/** The session must hold the org. */
export const updateOrg = (session: Session, org: Org): Promise<number> =>
  session.run(sql`UPDATE orgs SET name = ${org.name}, updated_at = ${org.updatedAt},
      preferences = ${org.preferences === undefined ? null : JSON.stringify(org.preferences)}
    WHERE id = ${org.id}`);

/** All but the platform's own, oldest first. */
export async function tenantsBut(store: Pick<Store, "all">, platformOrgId: string): Promise<Tenant[]> {
  const rows = await store.all<
    RowOf<"orgs", "id, name, created_at"> & Pick<Tenant, "environments" | "keys">
  >(sql`SELECT o.id, o.name,
      o.created_at, (SELECT count(*) FROM environments e WHERE e.org_id = o.id) AS environments,
      (SELECT count(*) FROM api_keys k WHERE k.org_id = o.id) AS keys
    FROM orgs o WHERE o.id <> ${platformOrgId} ORDER BY o.created_at, o.id`);
  return rows.map((row) => inCamelCase(row));
}

export const countProjects = (store: StoreReader, orgId: string): Promise<number> =>
  countOf(store, sql`FROM projects WHERE org_id = ${orgId}`);

export const projectsOf = async (store: Pick<Store, "all">, orgId: string): Promise<Project[]> =>
  (
    await store.all<ProjectRow>(
      sql`SELECT ${projectFields} FROM projects WHERE org_id = ${orgId} ORDER BY created_at, id`,
    )
  ).map(toProject);

/** Locks the project against deletion until the transaction ends; false when the org has none of this id. */
export const shareProject = async (session: Session, id: string, orgId: string): Promise<boolean> =>
  (await session.one(sql`SELECT id FROM projects WHERE id = ${id} AND org_id = ${orgId}
    ${session.seams.shareRow}`)) !== undefined;

/** Locks the project: no other transaction changes it, or creates anything in it, until this one ends. */
export async function holdProject(session: Session, id: string): Promise<Project | undefined> {
  const row = await session.one<ProjectRow>(
    sql`SELECT ${projectFields} FROM projects WHERE id = ${id} ${session.seams.holdRow}`,
  );
  return row && toProject(row);
}

/** Locks all projects of the org in the order of a deletion: two transactions never wait for each other. */
export const holdProjectsOf = (session: Session, orgId: string): Promise<{ id: string }[]> =>
  session.all(sql`SELECT id FROM projects WHERE org_id = ${orgId} ORDER BY id ${session.seams.holdRow}`);

export const oldestProject = (session: Session, orgId: string): Promise<{ id: string } | undefined> =>
  session.one(sql`SELECT id FROM projects WHERE org_id = ${orgId} ORDER BY created_at, id LIMIT 1
    ${session.seams.shareRow}`);

/** The session must hold the project. */
export const updateProject = (session: Session, project: Project): Promise<number> =>
  session.run(sql`UPDATE projects SET name = ${project.name}, description = ${project.description},
      updated_at = ${project.updatedAt} WHERE id = ${project.id}`);
