import { expect, test } from "bun:test";
import { orgOutlivedBy, tablesOfOrg } from "../../src/domain/access/tenancy/deletion-rows.ts";
import { ownedTables } from "../../src/domain/access/tenancy/purge-rows.ts";
import { isFrameToken } from "../../src/domain/realtime/pubsub/frames.ts";
import { sql } from "../../src/kit/sql.ts";
import { startTestServer } from "../support/server.ts";

/** Tables with the column that stand for an environment's absence, or outlive it on purpose. */
const outlives: readonly string[] = ["auth_audit"];

test("every table with an environment_id is purged with its environment, by an index", async () => {
  const server = await startTestServer({ engine: "libsql" });
  try {
    const { store } = server.running.domain;
    const tables = await store.all<{ name: string }>(sql`SELECT DISTINCT m.name FROM sqlite_schema m
      JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'environment_id' ORDER BY m.name`);
    const found = tables.map(({ name }) => name).filter((name) => !outlives.includes(name));
    const purged = ownedTables.map(({ name }) => name);
    expect(
      found.filter((name) => !purged.includes(name)),
      "tables with an environment_id that have no `purge` in store/tables/",
    ).toEqual([]);
    expect(
      purged.filter((name) => !found.includes(name)),
      "tables with `purge` in store/tables/ that have no environment_id",
    ).toEqual([]);
    expect(new Set(ownedTables.map(({ at }) => at)).size, "each has a place of its own").toBe(purged.length);
    for (const { name, key, ofRun } of ownedTables) {
      const columns = await store.all<{ name: string; pk: number }>(
        sql`SELECT name, pk FROM pragma_table_info(${name}) WHERE pk > 0 ORDER BY pk`,
      );
      expect({ name, key: columns.map((column) => column.name) }).toEqual({ name, key: [...key] });
      // Partial indexes may not serve: a row outside of one would never be found.
      const first = await store.all<{ name: string }>(sql`SELECT c.name FROM pragma_index_list(${name}) i
        JOIN pragma_index_info(i.name) c WHERE c.seqno = 0 AND i.partial = 0`);
      const ways = [key[0], ...first.map((column) => column.name)];
      expect({ name, ways }, "an index must begin with environment_id").toEqual({
        name,
        ways: expect.arrayContaining([ofRun ?? "environment_id"]),
      });
    }
  } finally {
    await server.stop();
  }
});

test("every table with an org_id goes with its org, or is said to outlive it", async () => {
  const server = await startTestServer({ engine: "libsql" });
  try {
    const tables = await server.running.domain.store.all<{
      name: string;
    }>(sql`SELECT m.name FROM sqlite_schema m
      JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'org_id' ORDER BY m.name`);
    expect([...tablesOfOrg, ...Object.keys(orgOutlivedBy)].sort()).toEqual(tables.map(({ name }) => name));
  } finally {
    await server.stop();
  }
});

test("only an id that is one literal subject token has a frame", () => {
  for (const id of ["env_default", "env_01h", "x".repeat(110)]) expect(isFrameToken(id)).toBe(true);
  for (const id of ["", "env.a", "env_*", ">", "env a", "env\n", "x".repeat(111), "é".repeat(56)])
    expect(isFrameToken(id)).toBe(false);
});
