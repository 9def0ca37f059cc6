import { type Sql, sql } from "./sql.ts";

/** Listed nodes that do not state this fact: their programs are older than it. */
export const nodesWithout = (fact: string): Sql =>
  sql`SELECT id FROM nodes WHERE facts NOT LIKE ${`%"${fact}"%`}`;
