import type { Clock } from "../kit/clock.ts";
import {
  type Cell,
  cutOff,
  databaseSays,
  gatheredName,
  JsonText,
  type QueryAnswer,
  type QueryAsk,
  rowBytesMax,
  rowTooLarge,
  tookTooLong,
  tookTooMuch,
} from "./environment-databases.ts";
import type { PostgresClient, RawAnswer } from "./postgres-client.ts";
import { codeOf } from "./postgres-errors.ts";
import type { Seat } from "./seats.ts";

/** Bytes that one fetch should bring, and rows of the first one, of which nothing is known. */
const fetchBytes = 256 * 1024;
const firstRows = 4;
const fetchRowsMax = 1_000;
/** After a cancelled query the server has this long to say so. */
const cancelMs = 1_000;
const tooLargeMark = "svc row of ";

const types = {
  bool: 16,
  int8: 20,
  int2: 21,
  int4: 23,
  json: 114,
  float4: 700,
  float8: 701,
  numeric: 1700,
  jsonb: 3802,
};
const numbers: ReadonlySet<number> = new Set([
  ...[types.int8, types.int2, types.int4, types.float4, types.float8, types.numeric],
]);

/** A number where it says the same as the text. */
function numberOf(text: string): number | string {
  const value = Number(text);
  if (Number.isInteger(value) ? Number.isSafeInteger(value) : Number.isFinite(value) && text.length <= 17)
    return value;
  return text;
}

function cellOf(raw: Uint8Array | null, type: number): Cell {
  if (raw === null) return null;
  const text = Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength).toString("utf8");
  if (type === types.bool) return text === "t";
  if (numbers.has(type)) return numberOf(text);
  return type === types.json || type === types.jsonb ? new JsonText(text) : text;
}

/**
 * The query with a bound on its rows: a larger one is refused by the server, before it is sent. The cast of
 * the text to a number is what refuses.
 */
const bounded = ({ text, rowsMax }: QueryAsk): string =>
  `SELECT q.* FROM (${text}) AS q WHERE CASE WHEN octet_length(q::text) > ${rowBytesMax}
    THEN CAST('${tooLargeMark}' || octet_length(q::text) AS int) = 0 ELSE true END LIMIT ${rowsMax + 1}`;

/** A connection as the role of one environment. */
export class PostgresSeat implements Seat {
  readonly client: PostgresClient;
  readonly #clock: Clock;

  constructor(client: PostgresClient, clock: Clock) {
    this.client = client;
    this.#clock = clock;
  }

  usable(): boolean {
    return this.client.usable();
  }

  end(): void {
    this.client.destroy();
  }

  /** Rows come through a cursor, so that an answer without end is left where it is. */
  async query(ask: QueryAsk): Promise<QueryAnswer> {
    const { timeoutMs, signal } = ask;
    let isLate = false;
    const stop = () => {
      this.client.cancel();
      // One that does not give up is left to the server's own limits.
      endLate = this.#clock.after(cancelMs, () => this.client.destroy());
    };
    let endLate = () => {};
    const onTime = this.#clock.after(timeoutMs, () => {
      isLate = true;
      stop();
    });
    signal.addEventListener("abort", stop, { once: true });
    try {
      return await this.#read(ask, () => isLate || signal.aborted);
    } catch (error) {
      throw this.#faultOf(error, { isLate, isGone: signal.aborted, timeoutMs });
    } finally {
      onTime();
      endLate();
      signal.removeEventListener("abort", stop);
    }
  }

  async #read(ask: QueryAsk, isOver: () => boolean): Promise<QueryAnswer> {
    const { client } = this;
    await client.ask("BEGIN READ ONLY", [], false);
    try {
      await client.ask(`SET LOCAL statement_timeout = ${ask.timeoutMs}`, [], false);
      // Groups one after the other: what is gathered for each would be held for all of them.
      if (ask.text.includes(gatheredName)) await client.ask("SET LOCAL enable_hashagg = off", [], false);
      if (ask.isExplain) {
        const plan = await client.askRaw(`EXPLAIN (COSTS OFF) ${ask.text}`, ask.values);
        return { columns: columnsOf(plan), rows: plan.map((row) => cellsOf(plan, row)), isTruncated: false };
      }
      await client.askRaw(`DECLARE answer NO SCROLL CURSOR FOR ${bounded(ask)}`, ask.values);
      return await this.#fetch(ask, isOver);
    } finally {
      // Ends the cursor; nothing was written.
      if (client.usable()) await client.ask("ROLLBACK", [], false).catch(() => client.destroy());
    }
  }

  async #fetch({ rowsMax, bytesMax, timeoutMs }: QueryAsk, isOver: () => boolean): Promise<QueryAnswer> {
    const rows: Cell[][] = [];
    let columns: string[] = [];
    let bytes = 0;
    let count = firstRows;
    for (;;) {
      if (isOver()) throw tookTooLong(timeoutMs);
      const some = await this.client.askRaw(`FETCH ${count} FROM answer`, []);
      columns = columnsOf(some);
      for (const row of some) {
        const own = row.reduce((sum, cell) => sum + (cell?.byteLength ?? 0), 0);
        bytes += own;
        if (rows.length === rowsMax || bytes > bytesMax) return { columns, rows, isTruncated: true };
        rows.push(cellsOf(some, row));
      }
      if (some.length < count) return { columns, rows, isTruncated: false };
      const fitting = Math.floor(fetchBytes / Math.max(1, bytes / rows.length));
      count = Math.max(1, Math.min(fitting, fetchRowsMax, count * 4));
    }
  }

  #faultOf(error: unknown, how: { isLate: boolean; isGone: boolean; timeoutMs: number }): unknown {
    const code = codeOf(error) ?? "";
    const message = String((error as Error).message);
    if (how.isGone) return cutOff();
    if (how.isLate || code === "57014") return tookTooLong(how.timeoutMs);
    if (code === "22P02" && message.includes(tooLargeMark)) return rowTooLarge();
    if (/^53|^54/.test(code)) return tookTooMuch(message);
    if (/^(42|22|21|0A|2201|3F|25)/.test(code)) return databaseSays("query", message);
    return error;
  }
}

const columnsOf = (answer: RawAnswer): string[] => (answer.columns ?? []).map(({ name }) => name);

const cellsOf = (answer: RawAnswer, row: (Uint8Array | null)[]): Cell[] =>
  row.map((cell, place) => cellOf(cell, answer.columns?.[place]?.type ?? 0));
