import { afterAll, beforeAll, expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { type Log, silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Migration } from "../../src/store/migrate.ts";
import { openStore } from "../../src/store/open.ts";
import { emptyHome } from "../support/of-0.40.0.ts";
import type { Home } from "../support/server.ts";

let home: Home;
beforeAll(async () => {
  home = await emptyHome("postgres");
});
afterAll(() => home?.remove());

const words: Migration = {
  version: 900,
  name: "words",
  statements: [
    "CREATE TABLE words (word TEXT PRIMARY KEY, note TEXT)",
    "CREATE INDEX words_note ON words (note)",
    "INSERT INTO words SELECT CAST(word AS TEXT) FROM (VALUES ('b'), ('A'), ('a'), ('Z'), ('ä'), ('_')) AS v(word)",
  ],
};
const more: Migration = {
  version: 901,
  name: "more",
  statements: ["ALTER TABLE words ADD COLUMN other TEXT"],
};

test("texts sort by their bytes in a database of any locale, and no column is changed for that", async () => {
  const events: string[] = [];
  const log: Log = { ...silentLog, info: (name) => void events.push(name) };
  for (const migrations of [[words], [words, more]]) {
    const { databaseUrl } = home.place;
    const store = await openStore({ databaseUrl, migrations, clock: systemClock(), log });
    expect(await store.all(sql`SELECT word FROM words ORDER BY word`)).toEqual(
      ["A", "Z", "_", "a", "b", "ä"].map((word) => ({ word })),
    );
    const odd = await store.all(sql`SELECT c.relname, a.attname FROM pg_attribute a
      JOIN pg_class c ON c.oid = a.attrelid JOIN pg_collation l ON l.oid = a.attcollation
      WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind IN ('r', 'i') AND a.attnum > 0
        AND l.collname <> 'C'`);
    expect(odd).toEqual([]);
    await store.close();
  }
  expect(events).toEqual(["store.made", "store.migrated", "store.migrated"]);
});
