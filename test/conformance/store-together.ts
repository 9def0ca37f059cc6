import { expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";
import { troubleOf } from "./store.ts";

const insert = (session: Session, id: string) => session.run(sql`INSERT INTO things (id) VALUES (${id})`);

/** Statements that travel together: reads with the beginning of their transaction, the last write with its commit. */
export function togetherConformance(store: () => Store, newCounter: () => Promise<string>): void {
  const idsLike = async (prefix: string) =>
    (await store().all<{ id: string }>(sql`SELECT id FROM things WHERE id LIKE ${`${prefix}%`}`)).map(
      ({ id }) => id,
    );

  test("what is read together is read under the lock of its first, and the last write travels with the commit", async () => {
    const id = await newCounter();
    const increment = () =>
      store().write(async (session) => {
        const [, rows] = await session.together([
          sql`SELECT id FROM counters WHERE id = ${id} ${session.seams.holdRow}`,
          sql`SELECT n FROM counters WHERE id = ${id}`,
        ]);
        await session.last(sql`UPDATE counters SET n = ${Number(rows![0]!.n) + 1} WHERE id = ${id}`);
      });
    await Promise.all(Array.from({ length: 40 }, increment));
    expect(await store().one(sql`SELECT n FROM counters WHERE id = ${id}`)).toEqual({ n: 40 });
  });

  test("what is written together is written in its order, and undone together", async () => {
    const insertOf = (id: string) => sql`INSERT INTO things (id) VALUES (${id})`;
    const likeMany = sql`DELETE FROM things WHERE id LIKE 'many-%'`;
    const counts = await store().write((session) =>
      session.runAll([insertOf("many-1"), insertOf("many-2"), likeMany, insertOf("many-3"), likeMany]),
    );
    expect(counts).toEqual([1, 1, 2, 1, 1]);
    const refused = store().write(async (session) => {
      await session.runAll([insertOf("many-4"), insertOf("many-4"), insertOf("many-5")]);
    });
    expect((await troubleOf(refused)).trouble).toBe("unique");
    expect(await store().write((session) => session.runAll([]))).toEqual([]);
    expect(await idsLike("many-")).toEqual([]);
  });

  test("a last write that fails undoes the others; nothing is asked after it, and reads that fail undo too", async () => {
    const trouble = await troubleOf(
      store().write(async (session) => {
        await insert(session, "before-last");
        await session.last(sql`INSERT INTO things (id) VALUES ('before-last')`);
      }),
    );
    expect(trouble.trouble).toBe("unique");
    const late = store().write(async (session) => {
      await session.last(sql`INSERT INTO things (id) VALUES ('last')`);
      await insert(session, "after-last");
    });
    await expect(late).rejects.toThrow("after its last statement");
    const read = store().write(async (session) => {
      const wrong = sql`SELECT n FROM nowhere`;
      await session.together([sql`SELECT n FROM counters`, wrong, sql`SELECT n FROM things`]).catch(() => {});
      await insert(session, "after-wrong").catch(() => {});
    });
    await expect(read).rejects.toThrow("nowhere");
    expect(await idsLike("before-last")).toEqual([]);
    expect(await idsLike("last")).toEqual([]);
    expect(await idsLike("after-")).toEqual([]);
  });
}
