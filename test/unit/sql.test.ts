import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { column, render, sql } from "../../src/kit/sql.ts";
import { libsqlSeams, renderLibsql } from "../../src/store/libsql-text.ts";
import { arrayLiteral, postgresSeams, renderPostgres } from "../../src/store/postgres-text.ts";

const numbered = (place: number) => `$${place}`;

describe("sql", () => {
  test("values become numbered parameters, also through nested fragments", () => {
    const filter = sql`a = ${1} AND ${sql`b = ${"two"}`}`;
    const query = sql`SELECT * FROM t WHERE ${filter} AND c IN ${sql.list([3, 4])} LIMIT ${5}`;
    expect(render(query, numbered, "test")).toEqual({
      text: "SELECT * FROM t WHERE a = $1 AND b = $2 AND c IN ($3, $4) LIMIT $5",
      values: [1, "two", 3, 4, 5],
    });
  });

  test("a text without fragments renders the same each time, with its own values", () => {
    const query = (id: string) => sql`SELECT ${id}, ${undefined}`;
    expect(render(query("a"), numbered, "test")).toEqual({ text: "SELECT $1, $2", values: ["a", null] });
    expect(render(query("b"), numbered, "test")).toEqual({ text: "SELECT $1, $2", values: ["b", null] });
    expect(render(query("b"), () => "?", "other").text).toBe("SELECT ?, ?");
  });

  test("lists, joins and conditions of nothing", () => {
    const text = (query: ReturnType<typeof sql>) => render(query, numbered, "test").text;
    expect(text(sql`a IN ${sql.list([])}`)).toBe("a IN (NULL)");
    expect(text(sql`a ${sql.where([])}`)).toBe("a ");
    expect(text(sql`a ${sql.where([sql`x = ${1}`, sql`y = ${2}`])}`)).toBe("a WHERE x = $1 AND y = $2");
    expect(text(sql.join([sql`a`, sql`b`], ", "))).toBe("a, b");
    expect(text(sql.empty)).toBe("");
  });

  test("long parts keep their values in place, with and without numbers", () => {
    const ids = Array.from({ length: 40 }, (_, place) => place);
    const query = sql`SELECT ${"first"} WHERE a IN ${sql.list(ids)} AND b = ${"last"}`;
    expect(render(query, numbered, "test").text).toEndWith("$41) AND b = $42");
    const plain = renderLibsql(query);
    expect(plain.text).toBe(`SELECT ? WHERE a IN (${ids.map(() => "?").join(", ")}) AND b = ?`);
    expect(plain.values).toEqual(["first", ...ids.map(BigInt), "last"]);
  });

  test("rowsFrom on Postgres is one array a column", () => {
    const rows = postgresSeams.rowsFrom("item", {
      id: column.text(["a", null]),
      n: column.bigint([1, null]),
    });
    expect(renderPostgres(sql`SELECT ${0} FROM ${rows}`)).toEqual({
      text: "SELECT $1 FROM unnest($2::text[], $3::bigint[]) WITH ORDINALITY AS item(id, n, ord)",
      values: [0, '{"a",NULL}', "{1,NULL}"],
    });
  });

  test("rowsFrom on libSQL has few texts for all counts, with little room beyond them", () => {
    const rows = (count: number) =>
      renderLibsql(
        sql`SELECT * FROM ${libsqlSeams.rowsFrom("item", { n: column.int(Array.from({ length: count }, () => 1)) })}`,
      ).text;
    expect(rows(5)).toBe(rows(6));
    expect(rows(6)).not.toBe(rows(7));
    expect(rows(0)).toBe(rows(1));
    const texts = new Set<string>();
    for (let count = 1; count <= 1_000; count++) {
      const text = rows(count);
      texts.add(text);
      const room = text.split("), (").length;
      expect(room).toBeGreaterThanOrEqual(count);
      expect(room).toBeLessThan(Math.max(3, 1.5 * count));
    }
    expect(texts.size).toBe(20);
  });

  test("what no engine knows is refused before a driver sees it", () => {
    expect(() => renderLibsql(sql`SELECT ${true as never}`)).toThrow("a boolean cannot be a parameter");
    expect(() => renderLibsql(sql`SELECT ${"a\0b"}`)).toThrow("U+0000");
    expect(() => renderLibsql(sql`SELECT ${column.text(["a\0b"])}`)).toThrow("U+0000");
  });

  test("an array literal holds any text", () => {
    const read = (literal: string) =>
      [...literal.slice(1, -1).matchAll(/"((?:[^"\\]|\\.)*)"|(NULL)/gs)].map(([, text, none]) =>
        none ? null : text?.replace(/\\(.)/gs, "$1"),
      );
    const cell = fc.option(fc.oneof(fc.string(), fc.constantFrom('"', "\\", '\\"', "NULL", "{", ",", "")), {
      nil: null,
    });
    fc.assert(
      fc.property(fc.array(cell), (cells) => {
        expect(read(arrayLiteral(column.text(cells)))).toEqual(cells);
      }),
    );
  });
});
