import type { Instant } from "../kit/clock.ts";
import { sql } from "../kit/sql.ts";
import { type Landed, landedBy, landedRows, requireFamiliar, type StoreSchema } from "./migrate.ts";
import { migrations } from "./migrations/index.ts";
import { landedOf040 } from "./migrations/of-0.40.0.ts";
import type { Store, StoreEngine } from "./store.ts";
import { tables } from "./tables/index.ts";
import type { Table } from "./tables/table.ts";

function statementsOf(name: string, table: Table, engine: StoreEngine): string[] {
  const { columns, indexes = [], isClustered, room } = table;
  const ending = engine === "libsql" ? isClustered && " WITHOUT ROWID" : room && ` WITH (${room})`;
  const texts = indexes.flatMap((index) => (typeof index === "string" ? index : (index[engine] ?? [])));
  return [
    `CREATE TABLE ${name} (${columns.replace(/\s+/g, " ")})${ending || ""}`,
    ...texts.map((text) => text.replace(/^(UNIQUE )?(\w+)/, `CREATE $1INDEX $2 ON ${name}`)),
  ];
}

/** The product's: a database of 0.40.0 with these migrations is what `base` makes. */
export const schema: StoreSchema = {
  base: {
    statements: (engine) => [
      ...Object.entries(tables).flatMap(([name, table]) => statementsOf(name, table, engine)),
      // The org of the platform's own roles, policies and keys; listed with no tenants.
      "INSERT INTO orgs (id, name, created_at, updated_at) VALUES ('org_platform', 'Platform', 0, 0)",
    ],
    landed: (engine) => [
      ...landedOf040(engine),
      ...migrations.map((migration) => landedBy(migration, engine)),
    ],
  },
  migrations,
};

/** At least the seconds since 1970: a second restore of a backup must not give out the first one's epoch. */
export const epochFloorAt = (now: Instant): number => Math.floor(now / 1_000);

/** Takes the floor twice. */
export const raiseEpochsText = "UPDATE heads SET epoch = CASE WHEN epoch + 1 > ? THEN epoch + 1 ELSE ? END";

/**
 * After a restore, before any node starts: every log gets a new epoch, so that a position from the time that
 * the restore undid is refused and not taken for another event's. Answers how many logs there are.
 */
export async function raiseEpochs(store: Store, now: Instant): Promise<number> {
  const floor = epochFloorAt(now);
  const landed = await store.all<Landed>(landedRows);
  requireFamiliar(landed, schema, store.engine);
  return store.write((session) =>
    session.run(
      sql`UPDATE heads SET epoch = CASE WHEN epoch + 1 > ${floor} THEN epoch + 1 ELSE ${floor} END`,
    ),
  );
}

/** Nodes and others that are connected to this PostgreSQL database besides `ownName`. */
export async function othersOn(store: Store, ownName: string): Promise<string[]> {
  const rows = await store.all<{ name: string; count: number }>(
    sql`SELECT COALESCE(NULLIF(application_name, ''), 'unnamed') AS name, COUNT(*) AS count FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND application_name <> ${ownName} GROUP BY 1 ORDER BY 1`,
  );
  return rows.map(({ name, count }) => `${name} (${count})`);
}
