import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines } from "../support/engines.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { makeHomeAt, startTestServer, type TestServer } from "../support/server.ts";

const hasPostgres = engines.includes("postgres");
/** More than the sweep reads at once. */
const manyFailing = 120;
/** Their locks in one transaction are more than the server has, which is asserted. */
const manyProjections = 600;
const projectionsAtOnce = 50;

const large = "svc_0a1b2c3d_";
const held = "svc_4e5f6a7b_";
const schemaName = (prefix: string, at: number) => prefix + at.toString(16).padStart(16, "0");

// A PostgreSQL of its own: its table of locks is small, and roles are the whole server's.
describe.if(hasPostgres)("the sweep of schemas that belong to no environment", () => {
  let postgres: PostgresServer;
  let server: TestServer;
  let strong: Bun.SQL;
  beforeAll(async () => {
    postgres = await startPostgres({ settings: { max_connections: "40", max_locks_per_transaction: "64" } });
    const databaseUrl = await postgres.createDatabase();
    strong = new Bun.SQL(databaseUrl, { max: 1 });
    server = await startTestServer({ engine: "postgres", home: await makeHomeAt(databaseUrl) });
  }, 120_000);
  afterAll(async () => {
    await server?.stop();
    await server?.home.remove();
    await strong?.close();
    await postgres?.stop();
  });

  const namesIn = async (catalog: "pg_namespace.nspname" | "pg_roles.rolname", prefix: string) => {
    const [table, column] = catalog.split(".");
    const found = await strong.unsafe(
      `SELECT ${column} AS name FROM ${table} WHERE starts_with(${column}::text, '${prefix}') ORDER BY 1`,
    );
    return found.map(({ name }: { name: string }) => name) as string[];
  };
  const schemasLeft = (prefix: string) => namesIn("pg_namespace.nspname", prefix);
  const rolesLeft = (prefix: string) => namesIn("pg_roles.rolname", prefix);
  /** `isHeld`: the reader has a right elsewhere, so that PostgreSQL refuses to drop the role. */
  const makeSchema = (name: string, { isHeld = false } = {}) =>
    strong.unsafe(`CREATE SCHEMA ${name}; CREATE ROLE ${name}_r; CREATE ROLE ${name}_w;
      GRANT USAGE, CREATE ON SCHEMA ${name} TO ${name}_w;
      ${isHeld ? `GRANT USAGE ON SCHEMA public TO ${name}_r` : ""}`);
  const sweep = (): Promise<unknown> =>
    server.running.tick("query.sweep").then(
      () => undefined,
      (error) => error,
    );

  test("the schema of more projections than one transaction can lock is dropped", async () => {
    const name = schemaName(large, 1);
    // In a schema that the sweep does not know until it is full.
    const filled = "filled";
    await makeSchema(name);
    await strong.unsafe(`ALTER SCHEMA ${name} RENAME TO ${filled}`);
    for (let from = 0; from < manyProjections; from += projectionsAtOnce)
      await strong.unsafe(`DO $do$ BEGIN
        SET LOCAL ROLE ${name}_w;
        FOR at IN ${from}..${from + projectionsAtOnce - 1} LOOP
          EXECUTE format('CREATE TABLE ${filled}.%I (id TEXT PRIMARY KEY, value TEXT)', 'proj_' || at || '@g1');
          EXECUTE format('CREATE VIEW ${filled}.%I AS SELECT * FROM ${filled}.%I', 'proj_' || at, 'proj_' || at || '@g1');
          EXECUTE format('CREATE FUNCTION ${filled}.%I(a jsonb, b bigint) RETURNS bigint LANGUAGE sql AS ''SELECT 1::bigint''',
            'fold@' || at);
        END LOOP; END $do$`);
    const inOne = await strong.unsafe(`DROP SCHEMA ${filled} CASCADE`).catch((error) => error);
    expect(inOne).toMatchObject({ errno: "53200" });
    await strong.unsafe(`ALTER SCHEMA ${filled} RENAME TO ${name}`);
    expect(await sweep()).toBeUndefined();
    expect([await schemasLeft(large), await rolesLeft(large)]).toEqual([[], []]);
  }, 120_000);

  test("schemas that cannot be dropped keep no other from it, and the tick tells of each", async () => {
    const stuck = Array.from({ length: manyFailing }, (_, at) => schemaName(held, at));
    for (const name of stuck) await makeSchema(name, { isHeld: true });
    const behind = schemaName(held, manyFailing);
    await makeSchema(behind);
    const failure = await sweep();
    expect(await schemasLeft(held)).toEqual(stuck);
    expect(await rolesLeft(behind)).toEqual([]);
    expect(failure).toBeInstanceOf(AggregateError);
    expect((failure as AggregateError).errors).toHaveLength(manyFailing);
    for (const name of stuck) await strong.unsafe(`REVOKE USAGE ON SCHEMA public FROM ${name}_r`);
    expect(await sweep()).toBeUndefined();
    expect([await schemasLeft(held), await rolesLeft(held)]).toEqual([[], []]);
  }, 120_000);
});
