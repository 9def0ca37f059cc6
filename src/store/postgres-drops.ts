import { type Sql, sql } from "../kit/sql.ts";
import type { Store } from "./store.ts";

const schemasAtOnce = 100;

/**
 * Views, tables and functions that one transaction drops. Each holds locks to its end (a table, its key and
 * long values about five), in a table for all transactions of the server with some 6,400 by default: dropping
 * the schema of 550 projections in one fails with 53200, each time, and takes locks that others need.
 */
const objectsAtOnce = 50;

const statementOf = { view: "DROP VIEW", table: "DROP TABLE", routine: "DROP ROUTINE" } as const;

interface DroppedObject {
  kind: keyof typeof statementOf;
  /** With its schema, in quotes where it needs them; a function with the types of its arguments. */
  name: string;
}

/** The schemas of which no environment knows, by name: those that cannot be dropped are walked past. */
export async function* lostSchemas(store: Store): AsyncGenerator<string> {
  let last = "";
  for (;;) {
    const slice = await store.all<{ name: string }>(sql`SELECT nspname AS name FROM pg_namespace
      WHERE nspname ~ '^svc_[0-9a-f]{8}_[0-9a-f]{16}$' AND nspname > ${last}
        AND nspname NOT IN (SELECT name FROM environment_databases) ORDER BY nspname LIMIT ${schemasAtOnce}`);
    for (const { name } of slice) yield name;
    last = slice.at(-1)?.name ?? last;
    if (slice.length < schemasAtOnce) return;
  }
}

/** What stands on others goes first. Sequences, types and indexes go with their tables. */
const objectsOf = (schema: string): Sql => sql`SELECT kind, name FROM (
    SELECT CASE WHEN relkind = 'v' THEN 'view' ELSE 'table' END AS kind,
      CASE WHEN relkind = 'v' THEN 1 ELSE 2 END AS turn, c.oid, c.oid::regclass::text AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ${schema} AND relkind IN ('v', 'r', 'p')
    UNION ALL
    SELECT 'routine', 3, p.oid, p.oid::regprocedure::text
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = ${schema}
  ) AS object ORDER BY turn, oid LIMIT ${objectsAtOnce}`;

/** Drops a schema with its roles, in pieces: what is gone stays gone when a later piece fails. */
export async function dropSchema(store: Store, name: string): Promise<void> {
  const dropSome = () =>
    store.write(async (session) => {
      const objects = await session.all<DroppedObject>(objectsOf(name));
      for (const [kind, statement] of Object.entries(statementOf)) {
        const names = objects.filter((one) => one.kind === kind).map((one) => one.name);
        if (names.length > 0)
          await session.run(sql.raw(`${statement} IF EXISTS ${names.join(", ")} CASCADE`));
      }
      return objects.length;
    });
  while ((await dropSome()) === objectsAtOnce);
  await store.write(async (session) => {
    await session.run(sql.raw(`DROP SCHEMA IF EXISTS "${name}" CASCADE`));
    for (const role of [`${name}_r`, `${name}_w`])
      await session.run(sql.raw(`DROP ROLE IF EXISTS "${role}"`));
  });
}
