/** Databases of environments, and projections that the server folds by SQL. */
export const sqlProjections = {
  version: 31,
  name: "sql",
  compatible: true,
  statements: (): string[] => [
    // `name` is the schema and the prefix of the roles on PostgreSQL, and the file on libSQL. `made_of` says which views
    // it has. The passwords are empty on libSQL.
    `CREATE TABLE environment_databases (
      environment_id TEXT PRIMARY KEY, name TEXT NOT NULL, reader_sealed TEXT NOT NULL, writer_sealed TEXT NOT NULL,
      made_of TEXT NOT NULL)`,
    // What a projection of mode `sql` was made from, and what that was admitted as.
    `CREATE TABLE sql_projections (
      environment_id TEXT NOT NULL, name TEXT NOT NULL, table_name TEXT NOT NULL, table_sql TEXT NOT NULL,
      event_handlers TEXT NOT NULL, description TEXT NOT NULL, admitted TEXT NOT NULL,
      PRIMARY KEY (environment_id, name))`,
    "CREATE UNIQUE INDEX sql_projections_by_table ON sql_projections (environment_id, table_name)",
  ],
};
