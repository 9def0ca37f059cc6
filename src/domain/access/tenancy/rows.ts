import { type InCamelCase, inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { countOf, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

const names = "id, org_id, project_id, name, color, tells_failures, created_at, updated_at";
const fields = sql.raw(names);
type EnvironmentRow = RowOf<"environments", typeof names>;

export interface Environment extends Omit<InCamelCase<EnvironmentRow>, "tellsFailures"> {
  /** Each run that fails for good leads to the event `svc.run.failed`. */
  tellsFailures: boolean;
}

const toEnvironment = (row: EnvironmentRow | undefined): Environment | undefined =>
  row && { ...inCamelCase(row), tellsFailures: row.tells_failures !== null };

export const environmentById = async (store: StoreReader, id: string): Promise<Environment | undefined> =>
  toEnvironment(await store.one<EnvironmentRow>(sql`SELECT ${fields} FROM environments WHERE id = ${id}`));

export const orgById = (store: StoreReader, id: string): Promise<{ id: string; name: string } | undefined> =>
  store.one(sql`SELECT id, name FROM orgs WHERE id = ${id}`);

export const oldestEnvironment = async (
  store: StoreReader,
  orgId: string,
): Promise<Environment | undefined> =>
  toEnvironment(
    await store.one<EnvironmentRow>(
      sql`SELECT ${fields} FROM environments WHERE org_id = ${orgId} ORDER BY created_at, id LIMIT 1`,
    ),
  );

export const environmentByName = async (
  store: StoreReader,
  orgId: string,
  name: string,
): Promise<Environment | undefined> =>
  toEnvironment(
    await store.one<EnvironmentRow>(
      sql`SELECT ${fields} FROM environments WHERE org_id = ${orgId} AND name = ${name}`,
    ),
  );

/** With the start of its compatibility key, where it has one. */
export interface ListedEnvironment extends Environment {
  keyPrefix: string | undefined;
}

export async function environmentsOf(
  store: Pick<Store, "all">,
  orgId: string,
  projectId?: string,
): Promise<ListedEnvironment[]> {
  const project = projectId === undefined ? sql.empty : sql`AND e.project_id = ${projectId}`;
  const rows = await store.all<EnvironmentRow & { key_prefix: string | null }>(sql`SELECT e.id, e.org_id,
      e.project_id, e.name, e.color, e.tells_failures, e.created_at, e.updated_at, k.key_prefix
    FROM environments e LEFT JOIN api_keys k ON k.id = e.compat_key_id
    WHERE e.org_id = ${orgId} ${project} ORDER BY e.created_at, e.id`);
  return rows.map((row) => ({ ...toEnvironment(row)!, keyPrefix: row.key_prefix ?? undefined }));
}

export const countEnvironments = (store: StoreReader, orgId: string): Promise<number> =>
  countOf(store, sql`FROM environments WHERE org_id = ${orgId}`);

/** The session must hold the environment. */
export const updateEnvironment = (
  session: Session,
  { id, name, color, tellsFailures, updatedAt }: Environment,
): Promise<number> =>
  session.run(sql`UPDATE environments SET name = ${name}, color = ${color},
      tells_failures = ${tellsFailures ? 1 : null}, updated_at = ${updatedAt}
    WHERE id = ${id}`);

/** Locks the environment against deletion until the transaction ends; false when there is none. */
export const shareEnvironment = async (session: Session, id: string): Promise<boolean> =>
  (await session.one(sql`SELECT id FROM environments WHERE id = ${id} ${session.seams.shareRow}`)) !==
  undefined;

/** Locks the environment: no other transaction changes it until this one ends. */
export const holdEnvironment = async (session: Session, id: string): Promise<Environment | undefined> =>
  toEnvironment(
    await session.one<EnvironmentRow>(
      sql`SELECT ${fields} FROM environments WHERE id = ${id} ${session.seams.holdRow}`,
    ),
  );

/** The key that EnvironmentService made for it. */
export const compatKeyOf = async (session: Session, id: string): Promise<string | undefined> =>
  (
    await session.one<{ compat_key_id: string | null }>(
      sql`SELECT compat_key_id FROM environments WHERE id = ${id}`,
    )
  )?.compat_key_id ?? undefined;

export const setCompatKey = (session: Session, id: string, keyId: string): Promise<number> =>
  session.run(sql`UPDATE environments SET compat_key_id = ${keyId} WHERE id = ${id}`);

/** Rows of the same id stay as they are. */
export async function insertOrg(
  session: Session,
  org: { id: string; name: string; at: Instant },
): Promise<void> {
  await session.run(
    sql`INSERT INTO orgs (id, name, created_at, updated_at)
        VALUES (${org.id}, ${org.name}, ${org.at}, ${org.at}) ON CONFLICT (id) DO NOTHING`,
  );
}

export async function insertProject(
  session: Session,
  project: { id: string; orgId: string; name: string; description?: string | undefined; at: Instant },
): Promise<void> {
  await session.run(
    sql`INSERT INTO projects (id, org_id, name, description, created_at, updated_at)
        VALUES (${project.id}, ${project.orgId}, ${project.name}, ${project.description}, ${project.at},
          ${project.at})
        ON CONFLICT (id) DO NOTHING`,
  );
}

/** With the head of its log, so that an environment that can be found can also be written to. */
export async function insertEnvironment(session: Session, environment: Environment): Promise<void> {
  const { id, orgId, projectId, name, color, tellsFailures, createdAt, updatedAt } = environment;
  await session.run(
    sql`INSERT INTO environments (${fields})
        VALUES (${id}, ${orgId}, ${projectId}, ${name}, ${color}, ${tellsFailures ? 1 : null},
          ${createdAt}, ${updatedAt})
        ON CONFLICT (id) DO NOTHING`,
  );
  await session.run(
    sql`INSERT INTO heads (environment_id, position, last_at, definitions_version, retention_floor, epoch)
        VALUES (${id}, 0, 0, 0, 0, 1) ON CONFLICT (environment_id) DO NOTHING`,
  );
}
