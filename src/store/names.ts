import { type Sql, sql } from "../kit/sql.ts";

/** `d.a, d.b` */
export const namesOf = (alias: string, names: readonly string[]): Sql =>
  sql.raw(names.map((name) => `${alias}.${name}`).join(", "));

/** A condition that all rows meet. */
export const every = sql.raw("1 = 1");
