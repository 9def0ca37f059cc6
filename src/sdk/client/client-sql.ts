import { type TimeoutOption, timeoutNames, withUnits } from "../wire/duration.ts";
import { type Message, text } from "../wire/read.ts";
import { safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";

/** `timeout` is at most 30 s; default 5 s. */
export interface SqlOptions extends TimeoutOption {
  /** At most 10,000; default 1,000. */
  maxRows?: number;
}

export interface SqlResult<Row = Record<string, string | null>> {
  columns: string[];
  /** By column, each value as text. Of columns with the same name the last one. */
  rows: Row[];
  /** Rows were left out, by `maxRows` or because they are too large together. */
  truncated: boolean;
}

/** An answer may come as late as its query may take. */
const slackMs = 10_000;
const timeoutMsDefault = 5_000;

export interface SqlCalls {
  /**
   * Asks the environment's data: `runs`, `steps`, `events`, `functions` and the tables of its SQL
   * projections. One SELECT, in the dialect of the server's store.
   */
  sql<Row = Record<string, string | null>>(query: string, options?: SqlOptions): Promise<SqlResult<Row>>;
}

export const sqlCalls = (transport: Transport): SqlCalls => ({
  async sql<Row>(query: string, given: SqlOptions = {}) {
    const { maxRows, timeoutMs = timeoutMsDefault } = withUnits("sql", given, timeoutNames);
    const message = { query, timeoutMs, ...(maxRows !== undefined && { maxRows }) };
    const options = { ...safe, timeoutMs: timeoutMs + slackMs };
    const answer = await transport.rpc<Message>("QueryService/ExecuteSQL", message, options);
    const columns = (answer.columns ?? []) as string[];
    const rows = ((answer.rows ?? []) as Message[]).map(({ values, nulls }) => {
      const isNull = new Set((nulls ?? []) as number[]);
      const given = (values ?? []) as unknown[];
      return Object.fromEntries(columns.map((name, at) => [name, isNull.has(at) ? null : text(given[at])]));
    });
    return { columns, rows: rows as Row[], truncated: answer.truncated === true };
  },
});
