import { expect, test } from "bun:test";
import { toLibsqlTrouble } from "../../src/store/libsql-drivers.ts";
import { toPostgresTrouble } from "../../src/store/postgres-errors.ts";
import { isOfItem, isOfRow, markEnd, markPrefix, StoreError } from "../../src/store/store.ts";

const refusal = (message: string) => toPostgresTrouble(Object.assign(new Error(message), { code: "22P02" }));

test.each([
  ['invalid input syntax for type bigint: "', '"'],
  ["ungültige Eingabesyntax für Typ bigint: »", "«"],
  ["syntaxe en entrée invalide pour le type bigint : « ", " »"],
  ['bigint 型に不正な入力構文です: "', '"'],
])("a mark is read from what a server says in its own language: %s…", (before, after) => {
  const mark = 'quota_spent:env_"1"';
  expect(refusal(`${before}${markPrefix}${mark}${markEnd}${after}`)).toMatchObject({
    ...{ trouble: "marked", detail: mark },
  });
  expect(refusal(`${before}abc${after}`)).toMatchObject({ trouble: "refused" });
});

test("a server in trouble is not taken for a value that it refuses, nor for a mistake of one item", () => {
  const troubleOf = (code: string) => {
    const { trouble } = toPostgresTrouble(Object.assign(new Error("x"), { code })) as { trouble?: string };
    return trouble;
  };
  const found = ["53000", "53200", "53300", "53400", "58000", "58030", "57P01", "25006"].map(troubleOf);
  expect(new Set(found)).toEqual(new Set(["unavailable"]));
  expect(["53100", "55P03", "22001", "54000"].map(troubleOf)).toEqual([
    ...["full", "lock_timeout", "refused", "refused"],
  ]);
  expect(troubleOf("08006")).toBe("unavailable");
});

test("what no value explains is the state of the database: no row is given up for it", () => {
  const named = (named: (error: unknown) => unknown, code: string, message = "x") =>
    named(Object.assign(new Error(message), { code })) as StoreError;
  const all = [
    ...["42P01", "42501", "XX000", "XX001", "57014", "0A000"].map((code) => named(toPostgresTrouble, code)),
    ...["SQLITE_ERROR", "SQLITE_CORRUPT", "SQLITE_NOTADB"].map((code) => named(toLibsqlTrouble, code)),
  ];
  expect(new Set(all.map(({ trouble }) => trouble))).toEqual(new Set(["other"]));
  expect(all.map(isOfRow)).toEqual(all.map(() => false));
  // Of a flush the others are tried without it all the same.
  expect(all.map(isOfItem)).toEqual(all.map(() => true));
  const large = named(toPostgresTrouble, "XX000", "invalid memory alloc request size 1073741824");
  const misfit = named(toLibsqlTrouble, "SQLITE_ERROR", "malformed JSON");
  expect([large, misfit].map(({ trouble }) => trouble)).toEqual(["refused", "refused"]);
  expect([large, misfit, new TypeError("a defect")].map(isOfRow)).toEqual([true, true, true]);
  expect(toLibsqlTrouble(Object.assign(new Error("gone"), { code: "ENOENT" }))).not.toBeInstanceOf(
    StoreError,
  );
});
