import { createHash, createHmac, pbkdf2 } from "node:crypto";
import { promisify } from "node:util";
import { Fault } from "../kit/fault.ts";
import { sql } from "../kit/sql.ts";
import { boundedName, gatheredName } from "./environment-databases.ts";
import { environmentViews } from "./environment-views.ts";
import { dropSchema, lostSchemas } from "./postgres-drops.ts";
import { lacksRight } from "./postgres-errors.ts";
import { type Session, type Store, StoreError } from "./store.ts";

/** What a query may gather in one value, and how large a value: PostgreSQL's own bound is a gigabyte. */
const gatheredRowsMax = 10_000;
const gatheredBytesMax = 16 * 1024 * 1024;
/** What each value needs beside its bytes. */
const placeBytes = 24;

const raise = (message: string): string => `RAISE EXCEPTION USING ERRCODE = '54000', MESSAGE = '${message}'`;

/** Statements that make both in a schema, as the server's own role; `search_path` finds them there. */
const wallsOf = (schema: string): readonly string[] => [
  `CREATE OR REPLACE FUNCTION ${schema}.${boundedName}(value anyelement) RETURNS anyelement
    LANGUAGE plpgsql STABLE PARALLEL SAFE AS $do$ BEGIN
    IF pg_catalog.pg_column_size(value) > ${gatheredBytesMax} THEN
      ${raise(`a value has more than ${gatheredBytesMax} bytes`)};
    END IF;
    RETURN value; END $do$`,
  `CREATE OR REPLACE FUNCTION ${schema}.svc_gather(state bigint[], value anyelement, other text) RETURNS bigint[]
    LANGUAGE plpgsql STABLE PARALLEL SAFE AS $do$ BEGIN
    state[1] := state[1] + 1;
    state[2] := state[2] + ${placeBytes} + coalesce(pg_catalog.octet_length(value::text), 0)
      + coalesce(pg_catalog.octet_length(other), 0);
    IF state[1] > ${gatheredRowsMax} THEN
      ${raise(`more than ${gatheredRowsMax} rows are gathered in one value`)};
    END IF;
    IF state[2] > ${gatheredBytesMax} THEN
      ${raise(`more than ${gatheredBytesMax} bytes are gathered in one value`)};
    END IF;
    RETURN state; END $do$`,
  `CREATE OR REPLACE AGGREGATE ${schema}.${gatheredName}(anyelement, text)
    (SFUNC = ${schema}.svc_gather, STYPE = bigint[], INITCOND = '{0,0}')`,
];

const iterations = 4096;

/** What PostgreSQL keeps of a password: sent instead of it, so that no log of the server has the password. */
async function scramVerifier(password: string, salt: Uint8Array): Promise<string> {
  const salted = await promisify(pbkdf2)(password, salt, iterations, 32, "sha256");
  const keyOf = (name: string) => createHmac("sha256", salted).update(name).digest();
  const stored = createHash("sha256").update(keyOf("Client Key")).digest("base64");
  const server = keyOf("Server Key").toString("base64");
  return `SCRAM-SHA-256$${iterations}:${Buffer.from(salt).toString("base64")}$${stored}:${server}`;
}

/** What an environment has in the database: a schema of this name, one role that reads and one that folds. */
export interface EnvironmentLogins {
  name: string;
  reader: Login;
  writer: Login;
}

export interface Login {
  role: string;
  password: string;
}

export interface Sealing {
  /** Throws `not_found` for an environment that is gone, and keeps one that is there. */
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  /** A text that cannot be guessed. */
  secret: () => string;
  seal: (place: string, text: string) => string;
  unseal: (place: string, sealed: string) => Promise<string>;
}

interface DatabaseRow {
  environment_id: string;
  name: string;
  reader_sealed: string;
  writer_sealed: string;
  made_of: string;
}

export const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;
const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;

/** Where the cursors of a schema's tables stand; no projection can have such a name. */
export const foldsTable = "svc@folds";

const roleSettings = "NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION CONNECTION LIMIT 100";

/**
 * Functions that every role may call by default, and that sleep, lock, write large objects, or run a text as
 * a query. The server keeps who may call them for each database apart.
 */
const harmfulFunctions =
  `^(pg_sleep.*|pg_advisory_.*|pg_try_advisory_.*|lo_.*|lowrite|loread|pg_notify|dblink.*
  |query_to_xml.*|cursor_to_xml.*|table_to_xml.*|schema_to_xml.*|database_to_xml.*|pg_export_snapshot
  |pg_logical_.*|pg_ls_.*|pg_read_.*|pg_stat_file|pg_current_logfile|ts_stat|ts_rewrite)$`.replaceAll(
    /\s/g,
    "",
  );

/** The first letters of all names of one database of the server: roles belong to the whole server. */
export const databasePrefix = (database: string): string =>
  `svc_${createHash("sha256").update(database).digest("hex").slice(0, 8)}_`;

const sealedAt = (name: string, which: string) => `environment_databases/${name}/${which}`;

/** Throws `failed_precondition` that says which right of our own is missing. */
async function requireRights(session: Session): Promise<{ database: string; isSuper: boolean }> {
  const row = await session.one<{
    role: string;
    database: string;
    roles: boolean;
    super: boolean;
    may: boolean;
  }>(
    sql`SELECT current_user AS role, current_database() AS database, rolcreaterole AS roles, rolsuper AS super,
      has_database_privilege(current_database(), 'CREATE') AS may FROM pg_roles WHERE rolname = current_user`,
  );
  if (!row) throw new Error("the database does not know its own user");
  const lacks = (grant: string) =>
    new Fault(
      "failed_precondition",
      `SQL over an environment needs a role and a schema of its own, and the server's role may not make them: ${grant}`,
    );
  if (!row.super && !row.roles) throw lacks(`ALTER ROLE ${quoted(row.role)} CREATEROLE`);
  if (!row.super && !row.may)
    throw lacks(`GRANT CREATE ON DATABASE ${quoted(row.database)} TO ${quoted(row.role)}`);
  return { database: row.database, isSuper: row.super };
}

/** Takes from all roles but the server's own the functions that environments must not call. */
async function revokeHarmful(store: Store): Promise<void> {
  await store.write((session) =>
    session.run(
      sql.raw(`DO $do$ DECLARE one regprocedure; BEGIN
        FOR one IN SELECT oid::regprocedure FROM pg_proc WHERE proname ~ ${literal(harmfulFunctions)}
          AND has_function_privilege('public', oid, 'EXECUTE') LOOP
          EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', one, current_user);
          EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', one);
        END LOOP; END $do$`),
    ),
  );
}

/** Makes and repairs the schemas and roles of environments, as the server's own role. */
export class PostgresRoles {
  readonly #store: Store;
  readonly #sealing: Sealing;
  readonly #known = new Map<string, Promise<EnvironmentLogins>>();
  #revoked: Promise<void> | undefined;

  constructor(store: Store, sealing: Sealing) {
    this.#store = store;
    this.#sealing = sealing;
  }

  of(environmentId: string): Promise<EnvironmentLogins> {
    const found = this.#known.get(environmentId);
    if (found) return found;
    const made = this.#make(environmentId);
    this.#known.set(environmentId, made);
    made.catch(() => this.#known.delete(environmentId));
    return made;
  }

  /** The next call looks again: a login was refused, or the environment is gone. */
  forget(environmentId: string): void {
    this.#known.delete(environmentId);
  }

  async exists(environmentId: string): Promise<boolean> {
    const row = await this.#store.one(
      sql`SELECT name FROM environment_databases WHERE environment_id = ${environmentId}`,
    );
    return row !== undefined;
  }

  /** Drops schemas and roles of unknown environments. Throws at its end what could not be dropped. */
  async sweep(): Promise<number> {
    const troubles: unknown[] = [];
    let gone = 0;
    for await (const name of lostSchemas(this.#store))
      try {
        await dropSchema(this.#store, name);
        gone++;
      } catch (error) {
        // One schema that cannot be dropped must not keep the others; a database that is away fails for all.
        await this.#store.ping();
        troubles.push(error);
      }
    if (gone > 0) this.#known.clear();
    if (troubles.length > 0)
      throw new AggregateError(troubles, "some schemas of deleted environments could not be dropped");
    return gone;
  }

  async #make(environmentId: string): Promise<EnvironmentLogins> {
    try {
      const made = await this.#store.write((session) => this.#setUp(session, environmentId));
      if (made.isSuper) await this.#revokeOnce();
      return made.logins;
    } catch (error) {
      if (!(error instanceof StoreError) || !lacksRight(error)) throw error;
      const { detail } = error;
      throw new Fault("failed_precondition", `the database refuses to make a role or a schema: ${detail}`);
    }
  }

  async #revokeOnce(): Promise<void> {
    this.#revoked ??= revokeHarmful(this.#store);
    try {
      await this.#revoked;
    } catch (error) {
      this.#revoked = undefined;
      throw error;
    }
  }

  async #setUp(session: Session, environmentId: string) {
    await this.#sealing.shareEnvironment(session, environmentId);
    const { database, isSuper } = await requireRights(session);
    const row = await this.#row(session, environmentId, database);
    const { name } = row;
    const opened = await this.#open(row);
    const logins = opened ?? (await this.#renew(session, row));
    const there = await session.one<{ roles: number; schemas: number }>(sql`SELECT
      (SELECT count(*) FROM pg_roles WHERE rolname IN (${`${name}_r`}, ${`${name}_w`})) AS roles,
      (SELECT count(*) FROM pg_namespace WHERE nspname = ${name}) AS schemas`);
    const hasRoles = Number(there?.roles) === 2;
    if (!hasRoles || !opened) await this.#makeRoles(session, logins, isSuper);
    const views = environmentViews("postgres", {
      base: (table) => table,
      environment: literal(environmentId),
    });
    const madeOf = createHash("sha256")
      .update(JSON.stringify([views, wallsOf("")]))
      .digest("hex")
      .slice(0, 32);
    if (!hasRoles || Number(there?.schemas) === 0 || row.made_of !== madeOf) {
      await makeSchema(session, name, views);
      await session.run(
        sql`UPDATE environment_databases SET made_of = ${madeOf} WHERE environment_id = ${environmentId}`,
      );
    }
    return { logins, isSuper };
  }

  async #row(session: Session, environmentId: string, database: string): Promise<DatabaseRow> {
    const random = createHash("sha256").update(this.#sealing.secret()).digest("hex").slice(0, 16);
    await session.run(sql`INSERT INTO environment_databases
        (environment_id, name, reader_sealed, writer_sealed, made_of)
      VALUES (${environmentId}, ${databasePrefix(database) + random}, '', '', '')
      ON CONFLICT (environment_id) DO NOTHING`);
    const row = await session.one<DatabaseRow>(sql`SELECT environment_id, name, reader_sealed, writer_sealed,
      made_of FROM environment_databases WHERE environment_id = ${environmentId} ${session.seams.holdRow}`);
    return row!;
  }

  /** Undefined where the passwords cannot be read: sealed under a key that is gone, or never made. */
  async #open({ name, reader_sealed, writer_sealed }: DatabaseRow): Promise<EnvironmentLogins | undefined> {
    if (reader_sealed === "") return undefined;
    try {
      const { unseal } = this.#sealing;
      const [reader, writer] = await Promise.all([
        unseal(sealedAt(name, "reader"), reader_sealed),
        unseal(sealedAt(name, "writer"), writer_sealed),
      ]);
      return loginsOf(name, reader, writer);
    } catch {
      return undefined;
    }
  }

  async #renew(session: Session, { environment_id, name }: DatabaseRow): Promise<EnvironmentLogins> {
    const { secret, seal } = this.#sealing;
    const logins = loginsOf(name, secret(), secret());
    await session.run(sql`UPDATE environment_databases
      SET reader_sealed = ${seal(sealedAt(name, "reader"), logins.reader.password)},
        writer_sealed = ${seal(sealedAt(name, "writer"), logins.writer.password)}
      WHERE environment_id = ${environment_id}`);
    return logins;
  }

  async #makeRoles(session: Session, logins: EnvironmentLogins, isSuper: boolean): Promise<void> {
    for (const { role, password } of [logins.reader, logins.writer]) {
      const there = await session.one(sql`SELECT 1 AS there FROM pg_roles WHERE rolname = ${role}`);
      const verifier = await scramVerifier(password, Buffer.from(this.#sealing.secret()).subarray(0, 16));
      await session.run(
        sql.raw(
          there
            ? `ALTER ROLE ${quoted(role)} PASSWORD ${literal(verifier)}`
            : `CREATE ROLE ${quoted(role)} LOGIN ${roleSettings} PASSWORD ${literal(verifier)}`,
        ),
      );
      if (isSuper) await session.run(sql.raw(`ALTER ROLE ${quoted(role)} SET temp_file_limit = '256MB'`));
    }
  }
}

const loginsOf = (name: string, reader: string, writer: string): EnvironmentLogins => ({
  name,
  reader: { role: `${name}_r`, password: reader },
  writer: { role: `${name}_w`, password: writer },
});

/** Views belong to the server's role, which alone may read what they stand on. */
async function makeSchema(session: Session, name: string, views: Record<string, string>): Promise<void> {
  const [schema, reader, writer] = [name, `${name}_r`, `${name}_w`].map(quoted);
  const run = (text: string) => session.run(sql.raw(text));
  await run(`CREATE SCHEMA IF NOT EXISTS ${schema}`);
  await run(`GRANT USAGE ON SCHEMA ${schema} TO ${reader}`);
  await run(`GRANT USAGE, CREATE ON SCHEMA ${schema} TO ${writer}`);
  for (const [view, text] of Object.entries(views)) {
    await run(`DROP VIEW IF EXISTS ${schema}.${quoted(view)}`);
    await run(`CREATE VIEW ${schema}.${quoted(view)} WITH (security_barrier = true) AS ${text}`);
    await run(`GRANT SELECT ON ${schema}.${quoted(view)} TO ${reader}`);
  }
  for (const wall of wallsOf(schema!)) await run(wall);
  const folds = `${schema}.${quoted(foldsTable)}`;
  await run(`CREATE TABLE IF NOT EXISTS ${folds} (table_name TEXT PRIMARY KEY, position BIGINT NOT NULL,
    is_shown BOOLEAN NOT NULL)`);
  await run(`GRANT SELECT, INSERT, UPDATE, DELETE ON ${folds} TO ${writer}`);
}
