import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { sql } from "../../src/kit/sql.ts";
import { tables } from "../../src/store/tables/index.ts";
import { dependencies } from "../support/dependencies.ts";
import { partsOfPage, referencePath, withPart } from "../support/reference.ts";
import { startTestServer } from "../support/server.ts";

const page = await Bun.file(referencePath).text();

describe("the reference", () => {
  test("has settings, loops, tables, metrics, checks and dependencies as the code has them (`bun run refresh` writes them)", async () => {
    for (const [name, text] of Object.entries(await partsOfPage()))
      expect(withPart(page, name, text)).toBe(page);
  });

  test("names every metric that the code makes", async () => {
    const made = new Set<string>();
    for (const path of new Bun.Glob("src/**/*.ts").scanSync({ cwd: join(import.meta.dir, "../..") })) {
      const text = await Bun.file(join(import.meta.dir, "../..", path)).text();
      for (const match of text.matchAll(/name: "(svc_[a-z_]+)"/g)) made.add(match[1]!);
    }
    made.delete("svc_dashboard_token");
    expect([...made].filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
  });

  test("says of every table what ends its rows", async () => {
    const server = await startTestServer({ engine: "libsql" });
    try {
      const found = await server.running.domain.store.all<{ name: string }>(
        sql`SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name`,
      );
      const names = found.map(({ name }) => name).filter((name) => !/migration/.test(name));
      const known = Object.keys(tables);
      expect(
        names.filter((name) => !known.includes(name)),
        "tables without a row in store/tables/",
      ).toEqual([]);
      expect(
        known.filter((name) => !names.includes(name)),
        "rows of store/tables/ without a table",
      ).toEqual([]);
    } finally {
      await server.stop();
    }
  });

  test("gives a reason for every dependency", async () => {
    const manifest = await Bun.file(join(import.meta.dir, "../../package.json")).json();
    expect(Object.keys(dependencies).toSorted()).toEqual(Object.keys(manifest.dependencies).toSorted());
  });
});
