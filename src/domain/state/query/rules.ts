import { allThingsOf } from "../../../gate/things.ts";
import type { Thing } from "../../../kit/operation.ts";
import { isOwnTable, ownTables } from "./names.ts";
import type { Cell } from "./service.ts";

export type { Cell } from "./service.ts";

/** A value as text; null is an empty one, and named apart. */
export function textOf(cell: Cell): string {
  if (cell === null) return "";
  return typeof cell === "object" ? cell.text : String(cell);
}

/**
 * What a query over these tables is about, besides `query` itself: rows of all runs, events or functions, so
 * that a policy which keeps any of them from the caller keeps the query from him too.
 */
export const queryThings = (tables: readonly string[]): (string | Thing)[] => [
  { type: "query", id: "*" },
  ...(tables.length === 0 ? ["*"] : []),
  ...tables.flatMap((table): (string | Thing)[] => {
    if (isOwnTable(table)) return [table, ...ownTables[table].flatMap((kind) => allThingsOf(kind))];
    const name = table.slice("proj_".length);
    // A hyphen of a projection's name is an underscore in its table.
    return [name, { type: "projection", id: name.replaceAll("_", "*"), isPattern: true }];
  }),
];
