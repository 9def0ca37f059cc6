import { tables } from "./tables/index.ts";
import { type Exported, type ExportSection, exportSections, keyOf, type Table } from "./tables/table.ts";

export { type ExportSection, exportSections } from "./tables/table.ts";

/** `json`: the column holds JSON text, and the file has the value itself. */
export type ExportedKind = "text" | "number" | "json";

export interface ExportedTable {
  section: ExportSection;
  table: string;
  /** Whose rows are read together: all of the org, of an environment, or of some runs. */
  of: "org" | "environment" | "runs";
  /** What leaves. A column that is named nowhere never does. */
  columns: Readonly<Record<string, ExportedKind>>;
  /** Columns that stay, besides the one that says whose the row is. */
  left: readonly string[];
  /** Order of the rows, and where a page continues: an index has it. */
  key: readonly string[];
  /** Columns with ids that no two orgs of an installation share. */
  ids: readonly string[];
}

/** Columns that say whose a row is. */
const owners: readonly string[] = ["environment_id", "org_id"];

const words = (text = ""): string[] => text.split(" ").filter((word) => word !== "");

function exportedTable(section: ExportSection, name: string, table: Table, row: Exported): ExportedTable {
  const { columns } = table;
  const kindOf = (column: string) => (new RegExp(`\\b${column} TEXT`).test(columns) ? "text" : "number");
  const leaving = [
    ...words(row.leaves).map((column) => [column, kindOf(column)] as const),
    ...words(row.json).map((column) => [column, "json"] as const),
  ];
  return {
    ...{ section, table: name, of: row.of ?? "environment", columns: Object.fromEntries(leaving) },
    ...{ left: words(row.stays), ids: words(row.ids) },
    key: row.key === undefined ? keyOf(table).filter((column) => !owners.includes(column)) : words(row.key),
  };
}

/** What an export has, in its order. A test compares it with the schema: each column leaves or is to stay. */
export const exportedTables: readonly ExportedTable[] = exportSections.flatMap((section) =>
  Object.entries(tables).flatMap(([name, table]) => {
    const { exported } = table;
    const isHere = typeof exported === "object" && [exported.in].flat().includes(section);
    return isHere ? [exportedTable(section, name, table, exported)] : [];
  }),
);

/** What the first line of an export says of its form. */
export const exportFormat = { name: "svc-export", version: 1 } as const;
