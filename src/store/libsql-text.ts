import { Fault } from "../kit/fault.ts";
import { type Bound, render, type Sql, type SqlArray, sql } from "../kit/sql.ts";
import { every, namesOf } from "./names.ts";
import type { Seams } from "./store.ts";

/** SQLite would cut the text there, and Postgres refuses it. */
function requireNoZero(text: string): string {
  if (text.includes("\0")) throw new Fault("invalid_argument", "text must not contain the character U+0000");
  return text;
}

/** What a driver may get. The libsql client ends the process over a boolean, and binds numbers as floats. */
function bind(value: unknown): Bound {
  switch (typeof value) {
    case "string":
      return requireNoZero(value);
    case "number":
      return Number.isSafeInteger(value) ? BigInt(value) : value;
    case "bigint":
      return value;
    case "object":
      if (value === null || value instanceof Uint8Array) return value;
      if ("array" in value) return jsonArray(value as SqlArray);
  }
  throw new TypeError(`a ${typeof value} cannot be a parameter`);
}

function jsonArray(column: SqlArray): string {
  if (column.type === "text") for (const text of column.array) if (text !== null) requireNoZero(String(text));
  return JSON.stringify(column.array);
}

// Parameters need no numbers here, so a part renders to the same text wherever it stands.
const mark = () => "?";

export function renderLibsql(query: Sql): { text: string; values: Bound[] } {
  const { text, values } = render(query, mark, "libsql");
  return { text, values: values.map(bind) };
}

/** SQLite takes 32,766 parameters a statement; beyond this many the rows travel as JSON. */
const parametersMax = 16_000;

const rowTexts = new Map<string, readonly string[]>();

/** The count of rows rounded up to a power of two or to three quarters of one. */
function roomFor(count: number): number {
  let room = 1;
  while (room < count) room *= 2;
  const less = (room * 3) / 4;
  return room >= 4 && count <= less ? less : room;
}

/**
 * `VALUES` with a parameter a cell: a third of the time of `json_each`. The rows that the rounded count adds
 * are cut off by `ord`, so that a handful of prepared statements serve every count.
 */
function rowsOfCells(alias: string, names: string[], arrays: SqlArray[], count: number): Sql {
  const room = roomFor(count);
  const types = arrays.map((column) => column.type);
  const key = `${alias}(${names.map((name, place) => `${name} ${types[place]}`).join()})${room}`;
  let strings = rowTexts.get(key);
  if (!strings) {
    const cell = (place: number) =>
      types[place] === "float" ? `CAST(column${place + 1} AS REAL)` : `column${place + 1}`;
    const ord = `column${names.length + 1}`;
    const chosen = names.map((name, place) => `${cell(place)} AS ${name}`).join(", ");
    const parts = [`(SELECT ${chosen}, ${ord} AS ord FROM (VALUES (`];
    for (let row = 1; row <= room; row++) {
      for (let place = 1; place < names.length; place++) parts.push(", ");
      parts.push(row < room ? `, ${row}), (` : `, ${row})) WHERE ${ord} <= `);
    }
    parts.push(`) AS ${alias}`);
    strings = parts;
    rowTexts.set(key, strings);
  }
  const values: (string | number | null)[] = [];
  for (let row = 0; row < room; row++) for (const column of arrays) values.push(column.array[row] ?? null);
  values.push(count);
  return { strings, values };
}

function rowsOfJson(alias: string, names: string[], arrays: SqlArray[], count: number): Sql {
  const rows = Array.from({ length: count }, (_, row) => arrays.map((column) => column.array[row] ?? null));
  for (const row of rows) for (const value of row) if (typeof value === "string") requireNoZero(value);
  const cells = names.map((name, place) => {
    const value = `value ->> ${place}`;
    return `${arrays[place]?.type === "float" ? `CAST(${value} AS REAL)` : value} AS ${name}`;
  });
  return sql`(SELECT ${sql.raw(cells.join(", "))}, key + 1 AS ord FROM json_each(${JSON.stringify(rows)})) AS ${sql.raw(alias)}`;
}

export const libsqlSeams: Seams = {
  engine: "libsql",
  skipLocked: sql.empty,
  holdRow: sql.empty,
  shareRow: sql.empty,
  objectOf: sql.raw("json_group_object"),
  rowsFrom(alias, columns) {
    const names = Object.keys(columns);
    const arrays = names.map((name) => columns[name] as SqlArray);
    const count = Math.max(0, ...arrays.map((column) => column.array.length));
    return 2 * count * names.length <= parametersMax
      ? rowsOfCells(alias, names, arrays, count)
      : rowsOfJson(alias, names, arrays, count);
  },
  among: (values) => sql`IN (SELECT i.value FROM ${libsqlSeams.rowsFrom("i", { value: values })})`,
  byKey: () => sql.empty,
  rowOf: (table, alias, on, left) => sql`${sql.raw(`${left ?? ""} JOIN ${table} ${alias}`)} ON ${on}`,
  chosen(table, key, which) {
    const names = sql.raw(key.join(", "));
    return sql`(${names}) IN (SELECT ${names} FROM ${sql.raw(table)} ${which})`;
  },
  firstOfEach({ places, table, columns, where, order, most }) {
    const of = sql.raw(table);
    // A limit may name no column here: so many at most are read of each, and those beyond its quota left out.
    return sql`SELECT ${columns}, p.ord AS turn FROM ${places} CROSS JOIN ${of} d ON d.rowid IN (
      SELECT n.place FROM (SELECT d.rowid AS place, row_number() OVER (ORDER BY ${order}) AS nth FROM ${of} d
        WHERE ${where} ORDER BY ${order} LIMIT ${most}) n WHERE n.nth <= p.quota)`;
  },
  firstOfPlace({ table, alias, where, order, limit }) {
    const [of, rowid] = [sql.raw(`${table} ${alias}`), sql.raw(`${alias}.rowid`)];
    return sql`CROSS JOIN ${of} ON ${rowid} IN (
      SELECT ${rowid} FROM ${of} WHERE ${where} ORDER BY ${order} LIMIT ${limit})`;
  },
  firstOfKeys({ table, columns, key, order = [], where = every, after }) {
    const of = sql.raw(table);
    const next = (behind: string) => sql`(SELECT d.rowid FROM ${of} d WHERE ${where} ${sql.raw(behind)}
      ORDER BY ${namesOf("d", [...key, ...order])} LIMIT 1)`;
    const nexts = key.map((name, place) =>
      next(
        `${key
          .slice(0, place)
          .map((same) => `AND d.${same} = l.${same} `)
          .join("")}AND d.${name} > l.${name}`,
      ),
    );
    const behind = sql`SELECT COALESCE(${sql.join(nexts.reverse(), ", ")}, NULL)`;
    const asked = after?.map((value, place) => sql`${value} AS ${sql.raw(key[place]!)}`);
    return sql`at(id) AS (
        ${asked ? sql`${behind} FROM (SELECT ${sql.join(asked, ", ")}) l` : sql`SELECT ${next("")}`}
        UNION ALL
        ${behind} FROM at CROSS JOIN ${of} l ON l.rowid = at.id),
      found AS (SELECT ${namesOf("d", columns)} FROM at CROSS JOIN ${of} d ON d.rowid = at.id)`;
  },
};
