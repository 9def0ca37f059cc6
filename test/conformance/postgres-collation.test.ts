import { afterAll, beforeAll, expect, test } from "bun:test";
import { admitHandler } from "../../src/domain/state/query/definitions.ts";
import { loadParser } from "../../src/domain/state/query/selects.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { type Log, silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { parameterMark, tableMark } from "../../src/store/environment-databases.ts";
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

test("an equality finds its rows by the index of a table of any order", async () => {
  await loadParser();
  const { databaseUrl } = home.place;
  const store = await openStore({
    databaseUrl,
    migrations: [words, more],
    clock: systemClock(),
    log: silentLog,
  });
  const keys = [
    ...[":data->>'k'", "CAST(:data.k AS text)", "'order:' || (:data->>'k')", "lower(:data->>'k')"],
    ...["concat(:data->>'k', 'x')", "coalesce(:data->>'k', :data.k)", "upper(substr(:data->>'k', 1, 2))"],
    ...["CASE WHEN lower(:data->>'k') > 'a' THEN 'a' ELSE 'b' END", "nullif(:data->>'k', 'b')"],
  ];
  const conditions = keys.flatMap((key) => [`k = ${key}`, `${key} = k`, `k IN (${key}, 'b')`]);
  for (const order of ["", 'COLLATE "C"']) {
    const plans = await store.write(async (session) => {
      await session.run(
        sql`CREATE TEMP TABLE keyed (k TEXT ${sql.raw(order)} PRIMARY KEY, n INTEGER) ON COMMIT DROP`,
      );
      await session.run(sql`SET LOCAL enable_seqscan = off`);
      const found: string[] = [];
      for (const condition of conditions) {
        const text = `UPDATE keyed SET n = n + 1 WHERE ${condition}`;
        const admitted = admitHandler("postgres", { event: "order.placed", text, table: "keyed" });
        const run = admitted.paths.reduce(
          (all, path, at) =>
            all.replaceAll(
              parameterMark(at + 1),
              path === "data" ? `CAST('{"k":"B"}' AS jsonb)` : "CAST('B' AS text)",
            ),
          admitted.text.replaceAll(tableMark, "keyed"),
        );
        const lines = await session.all<Record<string, string>>(sql`EXPLAIN ${sql.raw(run)}`);
        if (!JSON.stringify(lines).includes("Index Cond")) found.push(condition);
      }
      return found;
    });
    expect(plans).toEqual([]);
  }
  await store.close();
});
