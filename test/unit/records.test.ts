import { expect, test } from "bun:test";
import { camelCase, inCamelCase, recordJson, snakeCase, stated } from "../../src/kit/cases.ts";
import { columnsOf } from "../../src/kit/columns.ts";
import { countOf, render, type Sql, sql } from "../../src/kit/sql.ts";
import type { RowOf } from "../../src/store/tables/index.ts";

const row: RowOf<"kv_buckets", "id, ttl_ms, created_at"> = { id: "b", ttl_ms: null, created_at: 0 };
const textOf = (query: Sql) => render(query, () => "?", "libsql");

test("names change their case and come back", () => {
  expect(camelCase("last_event_at")).toBe("lastEventAt");
  expect(snakeCase("lastEventAt")).toBe("last_event_at");
  expect(inCamelCase(row)).toEqual({ id: "b", ttlMs: null, createdAt: 0 });
});

test("the type of a row follows from its table", () => {
  // @ts-expect-error a column that may be null is no number
  const ttl: number = row.ttl_ms;
  // @ts-expect-error there is no such column
  const none: RowOf<"kv_buckets", "id, colour"> = { id: "b", colour: "red" };
  expect([ttl, none.id]).toEqual([null as never, "b"]);
});

test("columns of a statement go by the fields of a row", () => {
  const runs: { runId: string | undefined; place: number | null }[] = [
    { runId: "r", place: 1 },
    { runId: undefined, place: null },
  ];
  expect(columnsOf(runs, { text: "runId", bigint: "place" })).toEqual({
    run_id: { array: ["r", null], type: "text" },
    place: { array: [1, null], type: "bigint" },
  });
  // @ts-expect-error a number is no text
  expect(Object.keys(columnsOf(runs, { text: "place" }))).toEqual(["place"]);
});

test("rows are counted up to a number", async () => {
  const asked: Sql[] = [];
  const reader = {
    one: async <Row extends object>(query: Sql) => {
      asked.push(query);
      return { count: 7 } as Row;
    },
  };
  expect(await countOf(reader, sql`FROM t WHERE id = ${1}`)).toBe(7);
  expect(await countOf(reader, sql`FROM t`, 10)).toBe(7);
  expect(asked.map((query) => textOf(query).text)).toEqual([
    "SELECT count(*) AS count FROM t WHERE id = ?",
    "SELECT count(*) AS count FROM (SELECT 1 FROM t LIMIT ?) counted",
  ]);
});

test("a record in JSON has names in snake_case, times as text and nothing empty", () => {
  const record = { id: "a", madeAt: 0, endedAt: null, isOver: false, position: 3 };
  expect(JSON.stringify(recordJson(record, "id madeAt endedAt isOver position"))).toBe(
    '{"id":"a","made_at":"1970-01-01T00:00:00.000Z","is_over":false,"position":3}',
  );
  expect(stated({ a: 1, b: undefined, c: null })).toEqual({ a: 1, c: null } as never);
});
