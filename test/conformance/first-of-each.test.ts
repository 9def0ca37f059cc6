import { expect, test } from "bun:test";
import { column, sql } from "../../src/kit/sql.ts";
import { engines } from "../support/server.ts";
import { sharedStore } from "../support/shares.ts";

test.each(engines)(
  "firstOfEach answers as many rows of each place as its quota says, in order, on %s",
  async (engine) => {
    const { bare: store, close } = await sharedStore(engine);
    try {
      await store.write(async (session) => {
        await session.run(
          sql`CREATE TABLE things (id TEXT PRIMARY KEY, place TEXT NOT NULL, n BIGINT NOT NULL)`,
        );
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
