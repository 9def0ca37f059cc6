import { expect, test } from "bun:test";
import { column, sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { engines } from "../support/server.ts";
import { sharedStore } from "../support/shares.ts";

/** Things of three places, of which each has its number. */
const fill = (store: Store): Promise<void> =>
  store.write(async (session) => {
    await session.run(sql`CREATE TABLE things (id TEXT PRIMARY KEY, place TEXT NOT NULL, n BIGINT NOT NULL)`);
    for (const [place, count] of [
      ["a", 9],
      ["b", 2],
      ["c", 9],
    ] as const)
      for (let n = 0; n < count; n++)
        await session.run(
          sql`INSERT INTO things (id, place, n) VALUES (${`${place}${n}`}, ${place}, ${100 - n})`,
        );
  });

test.each(engines)(
  "firstOfEach answers as many rows of each place as its quota says, in order, on %s",
  async (engine) => {
    const { bare: store, close } = await sharedStore(engine);
    try {
      await fill(store);
      const query = store.seams.firstOfEach({
        places: store.seams.rowsFrom("p", {
          place: column.text(["a", "none", "b", "c"]),
          quota: column.bigint([3, 5, 5, 1]),
        }),
        table: "things",
        columns: sql.raw("d.id, d.n"),
        where: sql`d.place = p.place AND d.n > ${90}`,
        order: sql.raw("d.n"),
        most: 5,
      });
      const rows = await store.all<{ id: string; n: number; turn: number }>(query);
      expect(rows.map(({ turn, n }) => `${turn}:${n}`).sort()).toEqual([
        ...["1:92", "1:93", "1:94"],
        ...["3:100", "3:99"],
        "4:92",
      ]);
    } finally {
      await close();
    }
  },
);

test.each(engines)(
  "firstOfPlace answers the first rows of each place, firstOfKeys the first of each key, on %s",
  async (engine) => {
    const { bare: store, close } = await sharedStore(engine);
    try {
      await fill(store);
      const places = store.seams.rowsFrom("p", { place: column.text(["a", "none", "c"]) });
      const first = store.seams.firstOfPlace({
        ...{ table: "things", alias: "t", columns: sql.raw("t.place, t.n") },
        ...{ where: sql`t.place = p.place AND t.n > ${92}`, order: sql.raw("t.n"), limit: 2 },
      });
      const some = await store.all(sql`SELECT p.ord, t.n FROM ${places} ${first} ORDER BY p.ord, t.n`);
      expect(some).toEqual([
        { ord: 1, n: 93 },
        { ord: 1, n: 94 },
        { ord: 3, n: 93 },
        { ord: 3, n: 94 },
      ]);
      const keysOf = (more: { after?: string[] }, key = ["place"]) =>
        store.all<{ place: string; n: number }>(
          sql`WITH RECURSIVE ${store.seams.firstOfKeys({
            ...{
              table: "things",
              columns: ["id", "place", "n"],
              key,
              order: ["n"],
              where: sql`d.n > ${92}`,
              ...more,
            },
          })} SELECT place, n FROM found ORDER BY place, n`,
        );
      expect(await keysOf({})).toEqual([
        { place: "a", n: 93 },
        { place: "b", n: 99 },
        { place: "c", n: 93 },
      ]);
      expect((await keysOf({ after: ["a"] })).map(({ place }) => place)).toEqual(["b", "c"]);
      expect(await keysOf({ after: ["c"] })).toEqual([]);
      const pairs = (await keysOf({ after: ["b", "zz"] }, ["place", "id"])).map(({ n }) => n);
      expect(pairs).toEqual([93, 94, 95, 96, 97, 98, 99, 100]);
    } finally {
      await close();
    }
  },
);
