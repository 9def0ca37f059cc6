import type { Clock } from "../kit/clock.ts";
import type { Ids } from "../kit/ids.ts";
import type { Log } from "../kit/log.ts";
import { noMetrics } from "../kit/metrics.ts";
import { sql } from "../kit/sql.ts";
import { openLibsql } from "./libsql.ts";
import type { DriverName } from "./libsql-drivers.ts";
import { type Migration, migrate } from "./migrate.ts";
import { openPostgres, type PostgresOptions } from "./postgres.ts";
import { Primary } from "./postgres-primary.ts";
import { recordServer, requireSameServer } from "./primary-record.ts";
import { schema } from "./schema.ts";
import type { Store } from "./store.ts";

export interface OpenStoreOptions extends Omit<Partial<PostgresOptions>, "url" | "clock" | "log"> {
  clock: Clock;
  log: Log;
  /** `postgres://…`; several nodes may share it. */
  databaseUrl?: string | undefined;
  /** The libSQL database file, for one process; used when there is no `databaseUrl`. */
  file?: string | undefined;
  driver?: DriverName;
  /** Instead of those that this version has beside its base. */
  migrations?: readonly Migration[];
  /** Puts something around the store before anybody has it, for tests that watch what is asked of it. */
  around?: (store: Store) => Store;
}

/** A migration may build an index over all that is there. */
const migrationStatementMs = 60 * 60 * 1000;

/** The engine that the settings name, migrated. */
export async function openStore({ around, ...options }: OpenStoreOptions): Promise<Store> {
  const store = await openMigrated(options);
  return around?.(store) ?? store;
}

async function openMigrated(options: Omit<OpenStoreOptions, "around">): Promise<Store> {
  const { clock, log, databaseUrl, file, driver, migrations = schema.migrations, ...rest } = options;
  if (databaseUrl !== undefined) {
    const primary = rest.primary ?? new Primary({ url: databaseUrl, clock, log });
    const postgres = { ...rest, url: databaseUrl, clock, log, primary };
    const patient = await openPostgres({
      ...postgres,
      metrics: noMetrics,
      poolSize: 1,
      hotPoolSize: 1,
      limits: { ...rest.limits, statementMs: migrationStatementMs, idleInTransactionMs: 60_000 },
    });
    const { lineage } = primary;
    try {
      await requireSameServer(patient, lineage);
      await migrate(patient, { ...schema, migrations }, { clock, log });
      if (lineage.known) await recordServer(patient, lineage.known, clock.now());
    } finally {
      await patient.close();
    }
    return openPostgres(postgres);
  }
  if (file === undefined) throw new Error("a store needs a database URL or a file");
  const store = await openLibsql({ file, clock, log, ...(driver && { driver }) });
  try {
    await migrate(store, { ...schema, migrations }, { clock, log });
    return store;
  } catch (error) {
    await store.close();
    throw error;
  }
}

const stored = sql`SELECT value FROM installation WHERE name = 'id'`;

/** `ins_…`: the same at every node over this database, and after a restore. The first start makes it. */
export async function installationOf(store: Pick<Store, "one" | "write">, ids: Ids): Promise<string> {
  const known = await store.one<{ value: string }>(stored);
  if (known) return known.value;
  await store.write((session) =>
    session.run(sql`INSERT INTO installation (name, value) VALUES ('id', ${ids.next("ins")})
      ON CONFLICT (name) DO NOTHING`),
  );
  // Another node may have been first.
  return (await store.one<{ value: string }>(stored))!.value;
}
