import { type InCamelCase, inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { readAs } from "../../../kit/columns.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

const names = "id, environment_id, name, revision, description, sealed, created_at, updated_at";
const fields = sql.raw(names);
type StoredSecret = RowOf<"secrets", typeof names>;

export type SealedRow = InCamelCase<StoredSecret>;

/** All of a secret that is ever shown. */
export type SecretRow = Omit<SealedRow, "sealed">;

const toRow = (row: StoredSecret): SealedRow => inCamelCase(row);

const read = readAs(toRow);

export const secretsOf = (reader: StoreReader, environmentId: string) =>
  read.all(reader, sql`SELECT ${fields} FROM secrets WHERE environment_id = ${environmentId} ORDER BY name`);

export const secretByName = (reader: StoreReader, environmentId: string, name: string) =>
  read.one(
    reader,
    sql`SELECT ${fields} FROM secrets WHERE environment_id = ${environmentId} AND name = ${name}`,
  );

/** The same, locked for the rest of the transaction. */
export const holdSecret = (session: Session, environmentId: string, name: string) =>
  read.one(
    session,
    sql`SELECT ${fields} FROM secrets
    WHERE environment_id = ${environmentId} AND name = ${name} ${session.seams.holdRow}`,
  );

export const insertSecret = (session: Session, row: SealedRow): Promise<number> =>
  session.run(sql`INSERT INTO secrets (${fields})
    VALUES (${row.id}, ${row.environmentId}, ${row.name}, ${row.revision}, ${row.description}, ${row.sealed},
      ${row.createdAt}, ${row.updatedAt})
    ON CONFLICT (environment_id, name) DO NOTHING`);

export const updateSecret = (session: Session, row: SealedRow): Promise<number> =>
  session.run(sql`UPDATE secrets SET name = ${row.name}, revision = ${row.revision},
      description = ${row.description}, sealed = ${row.sealed}, updated_at = ${row.updatedAt}
    WHERE environment_id = ${row.environmentId} AND id = ${row.id}`);

export const deleteSecret = (session: Session, environmentId: string, name: string): Promise<number> =>
  session.run(sql`DELETE FROM secrets WHERE environment_id = ${environmentId} AND name = ${name}`);

/** Revisions of a secret that are kept, the newest included. */
const revisionsMax = 64;

/** Keeps what is known of these revisions of one secret. Its row must be held. */
export async function keepRevisions(session: Session, secrets: readonly SecretRow[]): Promise<void> {
  for (const { environmentId, id, revision, name, description, updatedAt } of secrets)
    await session.run(sql`INSERT INTO secret_revisions
        (environment_id, secret_id, revision, name, description, created_at)
      VALUES (${environmentId}, ${id}, ${revision}, ${name}, ${description}, ${updatedAt})
      ON CONFLICT (environment_id, secret_id, revision) DO NOTHING`);
  const { environmentId, id, revision } = secrets.at(-1)!;
  await session.run(sql`DELETE FROM secret_revisions WHERE environment_id = ${environmentId} AND secret_id = ${id}
    AND revision <= ${revision - revisionsMax}`);
}

/** What was known of the secret when it got the value of this revision. */
export async function secretAt(
  reader: StoreReader,
  { id, environmentId, createdAt }: SecretRow,
  revision: number,
): Promise<SecretRow | undefined> {
  const row = await reader.one<{ name: string; description: string | null; created_at: Instant }>(
    sql`SELECT name, description, created_at FROM secret_revisions
      WHERE environment_id = ${environmentId} AND secret_id = ${id} AND revision = ${revision}`,
  );
  if (!row) return undefined;
  const { name, description, created_at: updatedAt } = row;
  return { id, environmentId, name, revision, description, createdAt, updatedAt };
}

export const dropRevisions = (session: Session, { environmentId, id }: SecretRow): Promise<number> =>
  session.run(
    sql`DELETE FROM secret_revisions WHERE environment_id = ${environmentId} AND secret_id = ${id}`,
  );

/** Of the whole installation, for a new master key. */
export async function everySecret(
  reader: StoreReader,
): Promise<{ id: string; environmentId: string; sealed: string }[]> {
  const rows = await reader.all<StoredSecret>(
    sql`SELECT id, environment_id, sealed FROM secrets ORDER BY id`,
  );
  return rows.map((row) => ({ id: row.id, environmentId: row.environment_id, sealed: row.sealed }));
}

export const resealSecret = (
  session: Session,
  secret: { id: string; environmentId: string; sealed: string },
): Promise<number> =>
  session.run(sql`UPDATE secrets SET sealed = ${secret.sealed}
    WHERE environment_id = ${secret.environmentId} AND id = ${secret.id}`);
