import { type Sql, sql } from "./sql.ts";

/** The rows of nodes that are listed and do not say a fact of themselves: programs of before it. */
export const nodesWithout = (fact: string): Sql =>
  sql`SELECT id FROM nodes WHERE facts NOT LIKE ${`%"${fact}"%`}`;
