import { rpc } from "./api.ts";
import { listProjections, tableOf } from "./projections.ts";
import type { SqlAnswer } from "./sql-text.ts";

export async function runSql(
  query: string,
  { maxRows, signal }: { maxRows: number; signal: AbortSignal },
): Promise<SqlAnswer> {
  const began = performance.now();
  const {
    columns = [],
    rows = [],
    truncated = false,
  } = await rpc("QueryService", "ExecuteSQL", { query, maxRows }, signal);
  return {
    columns,
    rows: rows.map(({ values = [], nulls = [] }) =>
      nulls.length === 0 ? values : values.map((value, place) => (nulls.includes(place) ? null : value)),
    ),
    isCut: truncated,
    tookMs: performance.now() - began,
  };
}

/** Tables of every environment. Those of its projections follow by `projectionTables`. */
export const ownTables = ["runs", "steps", "events", "functions"] as const;

export async function projectionTables(signal: AbortSignal): Promise<string[]> {
  const { rows } = await listProjections("", signal);
  return rows.filter(({ mode }) => mode === "sql").map(({ name }) => tableOf(name));
}

/** A query that reads no row names the columns. */
export const columnsOf = async (table: string, signal: AbortSignal): Promise<readonly string[]> =>
  (await runSql(`SELECT * FROM ${table} LIMIT 0`, { maxRows: 1, signal })).columns;
