import { type Sql, sql } from "../../../kit/sql.ts";

// What the history says of a lease, built in the statement, where the values are: {"attempt":2,"execution_seq":5,"worker_id":"w"}.

/** Names of workers hold no control characters. */
const worker = (alias: string): string =>
  `COALESCE(',"worker_id":"' || replace(replace(${alias}.worker_id, '\\', '\\\\'), '"', '\\"') || '"', '') || '}'`;

export const startedDetail = (alias: string): Sql =>
  sql.raw(
    `'{"attempt":' || ${alias}.attempt || ',"execution_seq":' || ${alias}.execution_seq || ${worker(alias)}`,
  );

/** Of a run that is created with its lease. */
export const startedAtOnce = (alias: string): Sql =>
  sql.raw(`'{"attempt":1,"execution_seq":1' || ${worker(alias)}`);
