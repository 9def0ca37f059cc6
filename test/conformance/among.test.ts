import { expect, test } from "bun:test";
import { column, sql } from "../../src/kit/sql.ts";
import { engines } from "../support/server.ts";
import { sharedStore } from "../support/shares.ts";

test.each(engines)(
  "among finds the rows of a list by their key, whatever the statistics, on %s",
  async (engine) => {
    const { bare: store, close } = await sharedStore(engine);
    try {
      await store.write(async (session) => {
        await session.run(sql`CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT NOT NULL)`);
        for (let n = 0; n < 5; n++)
          await session.run(sql`INSERT INTO things (id, n) VALUES (${`t${n}`}, ${n})`);
      });
      const { among } = store.seams;
      const found = async (where: ReturnType<typeof among>) =>
        (await store.all<{ id: string }>(sql`SELECT id FROM things WHERE ${where} ORDER BY id`)).map(
          ({ id }) => id,
        );
      expect(await found(sql`id ${among(column.text(["t3", "none", "t1", "t3"]))}`)).toEqual(["t1", "t3"]);
      expect(await found(sql`n ${among(column.bigint([4, 0, 99]))}`)).toEqual(["t0", "t4"]);
      expect(await found(sql`id ${among(column.text([]))}`)).toEqual([]);

      const explain = sql.raw(engine === "postgres" ? "EXPLAIN" : "EXPLAIN QUERY PLAN");
      const plan = await store.all(
        sql`${explain} SELECT n FROM things WHERE id ${among(column.text(["t3", "t1"]))}`,
      );
      expect(JSON.stringify(plan)).toContain(engine === "postgres" ? "Index Cond: (id = ANY" : "(id=?)");
    } finally {
      await close();
    }
  },
);

test.each(engines)(
  "rowOf and chosen go by the key alone, before the table has statistics, on %s",
  async (engine) => {
    const { bare: store, close } = await sharedStore(engine);
    try {
      await store.write(async (session) => {
        await session.run(sql`CREATE TABLE things (id TEXT, at BIGINT, PRIMARY KEY (id, at))`);
        for (let at = 0; at < 200; at++)
          await session.run(sql`INSERT INTO things (id, at) VALUES (${`t${at}`}, ${at})`);
      });
      const { rowOf, chosen, rowsFrom } = store.seams;
      const asked = rowsFrom("i", { id: column.text(["t3", "none", "t1"]) });
      const on = sql.raw("e.id = i.id");
      const joined = (left?: "left") =>
        sql`SELECT i.ord, e.at FROM ${asked} ${rowOf("things", "e", on, left)}`;
      expect((await store.all<{ at: number }>(joined())).map(({ at }) => at).sort()).toEqual([1, 3]);
      expect(await store.all(sql`${joined("left")} ORDER BY i.ord`)).toEqual([
        { ord: 1, at: 3 },
        { ord: 2, at: null },
        { ord: 3, at: 1 },
      ]);
      const deletion = sql`DELETE FROM things WHERE ${chosen("things", ["id", "at"], sql`WHERE id > ${"t95"} LIMIT 2`)}`;
      const explain = sql.raw(engine === "postgres" ? "EXPLAIN" : "EXPLAIN QUERY PLAN");
      const planOf = async (query: typeof deletion) =>
        JSON.stringify(await store.all(sql`${explain} ${query}`));
      const byKey = engine === "postgres" ? "Index Cond: (id = i.id)" : "SEARCH e USING";
      expect(await planOf(joined())).toContain(byKey);
      expect(await planOf(deletion)).toContain(engine === "postgres" ? "Tid Scan" : "SEARCH things USING");
      expect(await store.write((session) => session.run(deletion))).toBe(2);
    } finally {
      await close();
    }
  },
);

test.each(engines)("objectOf makes one object of names and texts, on %s", async (engine) => {
  const { bare: store, close } = await sharedStore(engine);
  try {
    const rows = store.seams.rowsFrom("v", {
      name: column.text(["b", "a"]),
      value: column.text(['"', "\u202e"]),
    });
    const [row] = await store.all<{ made: string }>(
      sql`SELECT CAST(${store.seams.objectOf}(v.name, v.value) AS TEXT) AS made FROM ${rows}`,
    );
    expect(JSON.parse(row!.made)).toEqual({ a: "\u202e", b: '"' });
  } finally {
    await close();
  }
});
