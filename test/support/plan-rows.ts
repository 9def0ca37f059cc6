import { type Sql, sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";

/** A node of what PostgreSQL's `EXPLAIN (ANALYZE, FORMAT JSON)` answers. */
export interface PlanNode {
  "Node Type": string;
  "Actual Rows": number;
  "Actual Loops": number;
  "Rows Removed by Filter"?: number;
  Plans?: PlanNode[];
}

/** Rows that the leaves of a plan have looked at. */
export function rowsRead(node: PlanNode): number {
  if (node.Plans?.length) return node.Plans.reduce((sum, one) => sum + rowsRead(one), 0);
  return (node["Actual Rows"] + (node["Rows Removed by Filter"] ?? 0)) * node["Actual Loops"];
}

/** Rows that PostgreSQL looks at for a query, which it runs. */
export async function rowsReadFor(reader: Pick<Session, "all">, query: Sql): Promise<number> {
  const [row] = await reader.all<{ "QUERY PLAN": unknown }>(
    sql`EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ${query}`,
  );
  const plan = row!["QUERY PLAN"];
  const [{ Plan }] = (typeof plan === "string" ? JSON.parse(plan) : plan) as [{ Plan: PlanNode }];
  return rowsRead(Plan);
}

/** The store, with a look at each of its questions before it is asked. */
export const lookingAt = (store: Store, look: (query: Sql) => Promise<void>): Store => ({
  ...store,
  async all<Row extends object>(query: Sql) {
    await look(query);
    return store.all<Row>(query);
  },
  async one<Row extends object>(query: Sql) {
    await look(query);
    return store.one<Row>(query);
  },
});
