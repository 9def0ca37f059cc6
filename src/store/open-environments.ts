import type { EnvironmentDatabases } from "./environment-databases.ts";
import { LibsqlEnvironments } from "./libsql-environments.ts";
import { PostgresEnvironments, type PostgresEnvironmentsOptions } from "./postgres-environments.ts";

export interface OpenEnvironmentsOptions extends Omit<PostgresEnvironmentsOptions, "url"> {
  databaseUrl: string | undefined;
  file: string;
}

/** The databases of environments in the same place as the store. */
export function openEnvironmentDatabases(options: OpenEnvironmentsOptions): EnvironmentDatabases {
  const { databaseUrl, file, ...rest } = options;
  if (databaseUrl !== undefined) return new PostgresEnvironments({ ...rest, url: databaseUrl });
  const { store, clock, sealing } = rest;
  return new LibsqlEnvironments({ store, clock, file, ...sealing });
}
