import type { EnvironmentDatabases } from "./environment-databases.ts";
import { LibsqlEnvironments } from "./libsql-environments.ts";
import { PostgresEnvironments, type PostgresEnvironmentsOptions } from "./postgres-environments.ts";

export interface OpenEnvironmentsOptions extends Omit<PostgresEnvironmentsOptions, "primary"> {
  /** Of a store on PostgreSQL. */
  primary: PostgresEnvironmentsOptions["primary"] | undefined;
  file: string;
}

/** The databases of environments in the same place as the store. */
export function openEnvironmentDatabases(options: OpenEnvironmentsOptions): EnvironmentDatabases {
  const { primary, file, ...rest } = options;
  if (primary) return new PostgresEnvironments({ ...rest, primary });
  const { store, clock, sealing } = rest;
  return new LibsqlEnvironments({ store, clock, file, ...sealing });
}
