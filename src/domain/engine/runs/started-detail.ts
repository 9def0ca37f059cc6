import { type Sql, sql } from "../../../kit/sql.ts";

// What the history says of a lease, built in the statement, where the values are:
// {"attempt":2,"execution_seq":5,"worker_id":"w","deployment":"b"}.

/** Names of workers hold no control characters, and deployments nothing that JSON escapes. */
const worker = (lease: string, build: string): string =>
  `COALESCE(',"worker_id":"' || replace(replace(${lease}.worker_id, '\\', '\\\\'), '"', '\\"') || '"', '')
    || COALESCE(',"deployment":"' || ${build}.deployment || '"', '') || '}'`;

/** `lease` names a row with the execution's columns, `build` one with the deployment of its worker. */
export const startedDetail = (lease: string, build: string): Sql =>
  sql.raw(
    `'{"attempt":' || ${lease}.attempt || ',"execution_seq":' || ${lease}.execution_seq || ${worker(lease, build)}`,
  );

/** Of a run that is created with its lease. */
export const startedAtOnce = (alias: string): Sql =>
  sql.raw(`'{"attempt":1,"execution_seq":1' || ${worker(alias, alias)}`);
