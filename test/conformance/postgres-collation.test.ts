import { afterAll, beforeAll, expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Migration } from "../../src/store/migrate.ts";
import { openStore } from "../../src/store/open.ts";
import { type Databases, sharedPostgres } from "../support/postgres.ts";

let postgres: Databases;
let databaseUrl: string;

beforeAll(async () => {
  postgres = await sharedPostgres();
  databaseUrl = await postgres.createDatabase({ icuLocale: "en-US" });
});
afterAll(() => postgres.dropDatabase(databaseUrl));

const words: Migration = {
  version: 1,
  name: "words",
  statements: [
    "CREATE TABLE words (word TEXT PRIMARY KEY, note TEXT)",
    "CREATE INDEX words_note ON words (note)",
  ],
};
const more: Migration = { version: 2, name: "more", statements: ["ALTER TABLE words ADD COLUMN other TEXT"] };

const open = (migrations: readonly Migration[]) =>
  openStore({ databaseUrl, migrations, clock: systemClock(), log: silentLog });

test("texts sort by their bytes in a database of any locale, also those of before and those that come later", async () => {
  // As a program left it that knew nothing of this.
  const admin = new Bun.SQL(databaseUrl, { max: 1 });
  await admin.unsafe("CREATE TABLE old (word TEXT PRIMARY KEY)");
  await admin.unsafe("INSERT INTO old VALUES ('b'), ('A'), ('a'), ('Z'), ('ä'), ('_')");
  await admin.close();

  const first = await open([words]);
  expect(await first.all(sql`SELECT word FROM old ORDER BY word`)).toEqual(
    ["A", "Z", "_", "a", "b", "ä"].map((word) => ({ word })),
  );
  await first.close();

  const second = await open([words, more]);
  const odd = await second.all(sql`SELECT a.attname AS name FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid JOIN pg_collation l ON l.oid = a.attcollation
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'i') AND a.attnum > 0 AND l.collname <> 'C'`);
  expect(odd).toEqual([]);
  await second.close();
});
