import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { sql } from "../../src/kit/sql.ts";
import { tables } from "../../src/store/tables/index.ts";
import { type SharedStore, sharedStore } from "../support/shares.ts";

const page = readFileSync("src/store/ROOM.md", "utf8");
const codes = (cell: string): string[] => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]!);

/** Tables, parameters and reason of each row of a section; without the middle where there is none. */
function rowsOf(section: string): { names: string[]; parameters: string[]; why: string }[] {
  const body = page.split(`## ${section}\n`)[1]!.split("\n## ")[0]!;
  return body.split("\n").flatMap((line) => {
    const cells = line.split("|").slice(1, -1);
    const names = codes(cells[0] ?? "");
    if (names.length === 0) return [];
    return { names, parameters: cells.length === 3 ? codes(cells[1]!) : [], why: cells.at(-1)!.trim() };
  });
}
const rows = [...rowsOf("`autovacuum` and `fillfactor`, a row a kind of table"), ...rowsOf("Tables without")];

let shared: SharedStore;
let parametersOf: Map<string, string[]>;
beforeAll(async () => {
  shared = await sharedStore("postgres");
  const found = await shared.bare.all<{ name: string; parameters: string | null }>(sql`
    SELECT relname AS name, array_to_string(reloptions, ' ') AS parameters FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname <> 'migrations'`);
  parametersOf = new Map(found.map(({ name, parameters }) => [name, (parameters ?? "").split(" ")]));
}, 120_000);
afterAll(() => shared?.close());

test("every table stands in one row, with a reason", () => {
  const names = rows.flatMap((row) => row.names);
  expect(names.toSorted()).toEqual(Object.keys(tables).toSorted());
  expect(rows.filter(({ why }) => why.length < 10)).toEqual([]);
});

test("and has the parameters that it says there, or none", () => {
  const said = rows.flatMap(({ names, parameters }) =>
    names.map((name) => [name, parameters.toSorted().join(" ")] as const),
  );
  const real = [...parametersOf].map(
    ([name, parameters]) => [name, parameters.toSorted().join(" ")] as const,
  );
  expect(Object.fromEntries(said)).toEqual(Object.fromEntries(real));
});
