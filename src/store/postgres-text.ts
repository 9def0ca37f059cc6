import { type Bound, type Rendered, render, type Sql, type SqlArray, sql } from "../kit/sql.ts";
import { every, namesOf } from "./names.ts";
import type { Seams } from "./store.ts";

/** An array as PostgreSQL reads it from text; the library's own serializer costs several times as much. */
function textArray(values: SqlArray["array"]): string {
  let text = "{";
  for (let place = 0; place < values.length; place++) {
    if (place > 0) text += ",";
    const value = values[place];
    if (value === null || value === undefined) text += "NULL";
    else {
      let escaped = typeof value === "string" ? value : String(value);
      // Two plain searches are half the time of one regular expression.
      if (escaped.includes("\\")) escaped = escaped.replaceAll("\\", "\\\\");
      if (escaped.includes('"')) escaped = escaped.replaceAll('"', '\\"');
      text += `"${escaped}"`;
    }
  }
  return `${text}}`;
}

const numberArray = (values: SqlArray["array"]): string =>
  `{${values.includes(null) ? values.map((value) => value ?? "NULL").join() : values.join()}}`;

export function arrayLiteral(column: SqlArray): string {
  return column.type === "text" ? textArray(column.array) : numberArray(column.array);
}

const mark = (place: number) => `$${place}`;

export function renderPostgres(query: Sql): { text: string; values: Bound[] } {
  const { text, values }: Rendered = render(query, mark, "postgres");
  return {
    text,
    values: values.map((value) =>
      typeof value === "object" && value !== null && "array" in value ? arrayLiteral(value) : value,
    ),
  };
}

const arrayTypes = { text: "text[]", bigint: "bigint[]", int: "int[]", float: "float8[]" } as const;

export const postgresSeams: Seams = {
  engine: "postgres",
  skipLocked: sql.raw("FOR UPDATE SKIP LOCKED"),
  holdRow: sql.raw("FOR UPDATE"),
  shareRow: sql.raw("FOR SHARE"),
  objectOf: sql.raw("json_object_agg"),
  rowsFrom(alias, columns) {
    const names = Object.keys(columns);
    const arrays = names.map((name) => columns[name] as SqlArray);
    const casts = arrays.map((column) => `::${arrayTypes[column.type]}`);
    const end = `) WITH ORDINALITY AS ${alias}(${[...names, "ord"].join(", ")})`;
    return {
      strings: arrays
        .map((_, place) => (place === 0 ? "unnest(" : `${casts[place - 1]}, `))
        .concat(`${casts.at(-1)}${end}`),
      values: arrays,
    };
  },
  among: (values) =>
    sql`= ANY (ARRAY(SELECT i.value FROM ${postgresSeams.rowsFrom("i", { value: values })}))`,
  byKey: (name, values) => sql`AND ${sql.raw(name)} ${postgresSeams.among(values)}`,
  rowOf: (table, alias, on, left) => sql`${sql.raw(left ? "LEFT JOIN" : "JOIN")} LATERAL (
    SELECT ${sql.raw(`${alias}.* FROM ${table} ${alias}`)} WHERE ${on} LIMIT 1) ${sql.raw(alias)} ON true`,
  chosen: (table, _key, which) => sql`ctid = ANY (ARRAY(SELECT ctid FROM ${sql.raw(table)} ${which}))`,
  firstOfEach: ({ places, table, columns, where, order, lock = sql.empty }) => sql`SELECT d.*, p.ord AS turn
    FROM ${places} CROSS JOIN LATERAL (SELECT ${columns} FROM ${sql.raw(table)} d WHERE ${where} ORDER BY ${order}
      LIMIT p.quota ${lock}) d`,
  firstOfPlace: ({ table, alias, columns, where, order, limit }) => sql`CROSS JOIN LATERAL (
    SELECT ${columns} FROM ${sql.raw(`${table} ${alias}`)} WHERE ${where} ORDER BY ${order} LIMIT ${limit}) ${sql.raw(alias)}`,
  firstOfKeys({ table, columns, key, order = [], where = every, after }) {
    const first = (behind: Sql) => sql`(SELECT ${namesOf("d", columns)} FROM ${sql.raw(table)} d
      WHERE ${where} ${behind} ORDER BY ${namesOf("d", [...key, ...order])} LIMIT 1)`;
    const behind = (place: Sql) => sql`AND (${namesOf("d", key)}) > (${place})`;
    const asked = after?.map((value) => sql`${value}`);
    return sql`found AS (${first(asked ? behind(sql.join(asked, ", ")) : sql.empty)}
      UNION ALL
      SELECT n.* FROM found CROSS JOIN LATERAL ${first(behind(namesOf("found", key)))} n)`;
  },
};
