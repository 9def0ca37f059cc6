import { landedBy, type StoreSchema } from "./migrate.ts";
import { migrations } from "./migrations/index.ts";
import { landedOf040 } from "./migrations/of-0.40.0.ts";
import type { StoreEngine } from "./store.ts";
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
