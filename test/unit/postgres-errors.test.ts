import { expect, test } from "bun:test";
import { toPostgresTrouble } from "../../src/store/postgres-errors.ts";
import { markEnd, markPrefix } from "../../src/store/store.ts";

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
  expect(["53100", "55P03", "22001", "54000", "42P01"].map(troubleOf)).toEqual([
    ...["full", "lock_timeout", "refused", "refused", undefined],
  ]);
});
