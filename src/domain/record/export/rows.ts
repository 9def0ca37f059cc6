import type { Instant } from "../../../kit/clock.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";

export interface ExportedOrg {
  id: string;
  name: string;
  preferences: string | null;
  created_at: Instant;
}

export const getOrg = (reader: StoreReader, orgId: string): Promise<ExportedOrg | undefined> =>
  reader.one(sql`SELECT id, name, preferences, created_at FROM orgs WHERE id = ${orgId}`);

/** An environment with the end of its log. */
export interface ExportedHead {
  id: string;
  name: string;
  position: number;
  last_at: Instant;
}

export const headsOfOrg = (reader: StoreReader, orgId: string): Promise<ExportedHead[]> =>
  reader.all(sql`SELECT e.id, e.name, COALESCE(h.position, 0) AS position, COALESCE(h.last_at, 0) AS last_at
    FROM environments e LEFT JOIN heads h ON h.environment_id = e.id
    WHERE e.org_id = ${orgId} ORDER BY e.created_at, e.id`);

/** Which tables have rows of which environments: `table environment`. One statement a table, not a pair. */
export async function filledTables(
  reader: Pick<Store, "all" | "seams">,
  tables: readonly { table: string }[],
  heads: readonly Pick<ExportedHead, "id">[],
): Promise<Set<string>> {
  const asked = reader.seams.rowsFrom("i", { id: column.text(heads.map(({ id }) => id)) });
  const filled = new Set<string>();
  for (const { table } of tables)
    for (const { id } of await reader.all<{ id: string }>(sql`SELECT i.id FROM ${asked}
      WHERE EXISTS (SELECT 1 FROM ${sql.raw(table)} t WHERE t.environment_id = i.id)`))
      filled.add(`${table} ${id}`);
  return filled;
}

export const auditEnd = async (reader: StoreReader, orgId: string): Promise<number> =>
  (await reader.one<{ sequence: number }>(sql`SELECT sequence FROM auth_audit_heads WHERE org_id = ${orgId}`))
    ?.sequence ?? 0;

/**
 * The position of the last event before a time; 0 when there is none. The times of a log never fall. `+ 0`
 * keeps the planner from reading the log by position for one time.
 */
export const positionBefore = async (
  reader: StoreReader,
  environmentId: string,
  at: Instant,
): Promise<number> =>
  (
    await reader.one<{ position: number | null }>(sql`SELECT max(position + 0) AS position FROM events
    WHERE environment_id = ${environmentId} AND at = (SELECT max(at) FROM events
      WHERE environment_id = ${environmentId} AND at < ${at})`)
  )?.position ?? 0;

/** A step of the export of an org: false while another one has the lease. */
export async function takeLease(
  session: Session,
  { orgId, holder, now, until }: { orgId: string; holder: string; now: Instant; until: Instant },
): Promise<boolean> {
  const taken = await session.run(sql`INSERT INTO exports (org_id, holder, lease_until)
    VALUES (${orgId}, ${holder}, ${until})
    ON CONFLICT (org_id) DO UPDATE SET holder = excluded.holder, lease_until = excluded.lease_until
      WHERE exports.lease_until <= ${now}`);
  return taken > 0;
}

/** False once another export has the lease. */
export const renewLease = async (
  session: Session,
  { orgId, holder, until }: { orgId: string; holder: string; until: Instant },
): Promise<boolean> =>
  (await session.run(sql`UPDATE exports SET lease_until = ${until}
    WHERE org_id = ${orgId} AND holder = ${holder}`)) > 0;

export const releaseLease = (session: Session, orgId: string, holder: string): Promise<number> =>
  session.run(sql`DELETE FROM exports WHERE org_id = ${orgId} AND holder = ${holder}`);
