import type { Instant } from "../../../kit/clock.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { lastingKinds } from "./rules.ts";

export interface RingRow extends RowOf<"keyring", "version, sealed, fingerprint, created_at, retired_at"> {
  /** `master`, `master_next` or a RingKind. */
  kind: string;
}

const columns = sql.raw("kind, version, sealed, fingerprint, created_at, retired_at");

export const allRows = (reader: Pick<Store | Session, "all">): Promise<RingRow[]> =>
  reader.all<RingRow>(sql`SELECT ${columns} FROM keyring ORDER BY kind, version`);

/** Locks the whole ring until the transaction ends: rotations run one after the other. */
export async function holdRows(session: Session): Promise<RingRow[]> {
  await session.all(sql`SELECT kind FROM keyring ORDER BY kind, version ${session.seams.holdRow}`);
  // A second statement: the one that waited for another rotation does not see the rows of that rotation.
  return allRows(session);
}

/** False when another node was first. */
export async function insertRow(
  session: Session,
  row: Omit<RingRow, "retired_at"> & { createdBy: string },
): Promise<boolean> {
  const inserted = await session.run(sql`INSERT INTO keyring
      (kind, version, sealed, fingerprint, created_at, created_by)
    VALUES (${row.kind}, ${row.version}, ${row.sealed}, ${row.fingerprint}, ${row.created_at}, ${row.createdBy})
    ON CONFLICT (kind, version) DO NOTHING`);
  return inserted === 1;
}

export const retireBefore = (session: Session, kind: string, version: number, at: Instant): Promise<number> =>
  session.run(sql`UPDATE keyring SET retired_at = ${at}
    WHERE kind = ${kind} AND version < ${version} AND retired_at IS NULL`);

export const resealRow = (session: Session, row: Pick<RingRow, "kind" | "version">, sealed: string) =>
  session.run(
    sql`UPDATE keyring SET sealed = ${sealed} WHERE kind = ${row.kind} AND version = ${row.version}`,
  );

/**
 * Deletes links from old master keys to their successors, and secrets whose signatures are refused by now.
 */
export const purgeRetired = (session: Session, retiredBefore: Instant): Promise<number> =>
  session.run(sql`DELETE FROM keyring
    WHERE retired_at IS NOT NULL AND retired_at < ${retiredBefore} AND kind NOT IN ${sql.list(lastingKinds)}`);

/** The newest master version; blocks a rotation until the transaction ends. */
export async function masterVersion(session: Session): Promise<number | undefined> {
  const newest = sql`SELECT version FROM keyring WHERE kind = 'master' ORDER BY version DESC LIMIT 1`;
  await session.one(sql`${newest} ${session.seams.shareRow}`);
  // A second statement, as in `holdRows`: the one that waited saw the version before the rotation.
  return (await session.one<{ version: number }>(newest))?.version;
}
