import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { Fault } from "../../src/kit/fault.ts";
import { column, type Sql, sql } from "../../src/kit/sql.ts";
import { type Flush, raiseMark, type Session, type Store, StoreError } from "../../src/store/store.ts";
import { livedTime } from "../support/lived.ts";
import { togetherConformance } from "./store-together.ts";

export interface StoreUnderTest {
  name: string;
  /** A database that is empty when it is first opened; the same one again for the same number. */
  open(database: number): Promise<Store>;
}

export const clock = systemClock();

export async function troubleOf(promise: Promise<unknown>): Promise<StoreError> {
  const error = await promise.then(
    () => new Error("nothing was thrown"),
    (error: unknown) => error,
  );
  if (error instanceof StoreError) return error;
  throw error;
}

interface Thing {
  id: string;
  n: number | null;
  text: string | null;
}

const tables = [
  "CREATE TABLE things (id TEXT PRIMARY KEY, n BIGINT, text TEXT)",
  "CREATE TABLE counters (id TEXT PRIMARY KEY, n BIGINT NOT NULL)",
];

/** Adds rows that have no negative number; answers the ids that it added. A text on each engine, one meaning. */
const addThings: Flush<Thing[], { id: string; ord: number }> = {
  name: "things.add",
  postgres: (things, seams) => sql`
    WITH item AS (SELECT * FROM ${rowsOf(things, seams)} WHERE item.n IS NULL OR item.n >= 0),
      added AS (INSERT INTO things (id, n, text) SELECT id, n, text FROM item ORDER BY id RETURNING id)
    SELECT item.id, item.ord FROM added JOIN item ON item.id = added.id
    WHERE CASE WHEN added.id = 'refuse' THEN ${raiseMark("refused:", sql.raw("added.id"))} ELSE 1 END = 1
    ORDER BY item.ord`,
  libsql(session, things) {
    const items = session.all<Thing & { ord: number }>(sql`
      SELECT id, n, text, ord FROM ${rowsOf(things, session.seams)} WHERE n IS NULL OR n >= 0 ORDER BY ord`);
    for (const item of items) {
      if (item.id === "refuse") throw new StoreError("marked", "refused:refuse");
      session.run(sql`INSERT INTO things (id, n, text) VALUES (${item.id}, ${item.n}, ${item.text})`);
    }
    return items.map(({ id, ord }) => ({ id, ord }));
  },
};

const rowsOf = (things: Thing[], seams: Store["seams"]): Sql =>
  seams.rowsFrom("item", {
    id: column.text(things.map((thing) => thing.id)),
    n: column.bigint(things.map((thing) => thing.n)),
    text: column.text(things.map((thing) => thing.text)),
  });

const texts = [
  "",
  " ",
  "12",
  "1.50",
  "0x10",
  "null",
  "NULL",
  "true",
  '{"a":[1,"b"]}',
  '["x"]',
  '"quoted"',
  "it's",
  'a "b" \\ c \\" {,}',
  "line\nline\ttab\r",
  "ünïcødé 漢字 👩‍👩‍👧 \u0001\u001f",
  "\\u0000",
  "$1 ? :a @b",
  "x".repeat(70_000),
];
const numbers = [0, 1, -1, 2 ** 31, -(2 ** 31), 2 ** 53 - 1, -(2 ** 53 - 1)];

export function storeConformance(subject: StoreUnderTest): void {
  describe(`store on ${subject.name}`, () => {
    let store: Store;
    let made = 0;
    const insert = (session: Session, id: string, n: number | null = 0, text: string | null = null) =>
      session.run(sql`INSERT INTO things (id, n, text) VALUES (${id}, ${n}, ${text})`);
    const thing = (id: string) => store.one<Thing>(sql`SELECT id, n, text FROM things WHERE id = ${id}`);
    const idsLike = async (prefix: string) =>
      (await store.all<Thing>(sql`SELECT id FROM things WHERE id LIKE ${`${prefix}%`} ORDER BY id`)).map(
        (row) => row.id,
      );
    const newCounter = async () => {
      const id = `counter-${++made}`;
      await store.write((session) => session.run(sql`INSERT INTO counters (id, n) VALUES (${id}, 0)`));
      return id;
    };

    beforeAll(async () => {
      store = await subject.open(0);
      await store.write(async (session) => {
        for (const table of tables) await session.run(sql.raw(table));
      });
    });
    afterAll(() => store.close());

    test("a write is seen when it resolves", async () => {
      const answer = await store.write(async (session) => {
        expect(await insert(session, "seen", 5, "five")).toBe(1);
        expect(await session.one<Thing>(sql`SELECT n FROM things WHERE id = ${"seen"}`)).toEqual({
          n: 5,
        } as Thing);
        return "answer";
      });
      expect(answer).toBe("answer");
      expect(await thing("seen")).toEqual({ id: "seen", n: 5, text: "five" });
    });

    test("a write that throws leaves nothing", async () => {
      const broken = new Error("changed its mind");
      const write = store.write(async (session) => {
        await insert(session, "undone");
        throw broken;
      });
      expect(await write.catch((error) => error)).toBe(broken);
      expect(await thing("undone")).toBeUndefined();
    });

    test("a statement that fails undoes its write, also when the failure is swallowed", async () => {
      const trouble = await troubleOf(
        store.write(async (session) => {
          await insert(session, "swallowed");
          await insert(session, "swallowed").catch(() => {});
          return "went on";
        }),
      );
      expect(trouble.trouble).toBe("unique");
      expect(await thing("swallowed")).toBeUndefined();
    });

    test("reads see committed rows only", async () => {
      let release = () => {};
      const held = new Promise<void>((resolve) => {
        release = resolve;
      });
      const write = store.write(async (session) => {
        await insert(session, "uncommitted");
        await held;
      });
      try {
        for (let round = 0; round < 5; round++) expect(await thing("uncommitted")).toBeUndefined();
      } finally {
        release();
      }
      await write;
      expect(await thing("uncommitted")).toBeDefined();
    });

    test("statements that are not awaited one by one still run in order, before the commit", async () => {
      await store.write(async (session) => {
        void insert(session, "order-1");
        await Promise.all([
          session.run(sql`UPDATE things SET n = 1 WHERE id = ${"order-1"}`),
          session.run(sql`UPDATE things SET n = n + 1 WHERE id = ${"order-1"}`),
        ]);
        void session.run(sql`UPDATE things SET n = n * 10 WHERE id = ${"order-1"}`);
      });
      expect((await thing("order-1"))?.n).toBe(20);
    });

    test("a session ends with its write", async () => {
      const leaked = await store.write(async (session) => session);
      await expect(insert(leaked, "leaked")).rejects.toThrow("after its transaction");
      expect(await thing("leaked")).toBeUndefined();
    });

    test("values come back as they went in, one by one and as columns", async () => {
      const things = [
        ...texts.map((text, place) => ({ id: `value-t${String(place).padStart(2, "0")}`, n: null, text })),
        ...numbers.map((n, place) => ({ id: `value-n${place}`, n, text: null })),
        { id: "value-zero", n: null, text: null },
      ].sort((a, b) => (a.id < b.id ? -1 : 1));
      await store.write(async (session) => {
        for (const { id, n, text } of things) await insert(session, `one-${id}`, n, text);
        await session.run(
          sql`INSERT INTO things (id, n, text) SELECT item.id, item.n, item.text FROM ${rowsOf(things, session.seams)}`,
        );
      });
      const read = (prefix: string) =>
        store.all<Thing>(sql`SELECT id, n, text FROM things WHERE id LIKE ${`${prefix}value-%`} ORDER BY id`);
      expect(await read("")).toEqual(things);
      expect(await read("one-")).toEqual(things.map((row) => ({ ...row, id: `one-${row.id}` })));
    });

    test("a text answers by its own values, in whatever ways it was asked before", async () => {
      await store.write((session) => insert(session, "by-value-a"));
      const query = (id: string) => sql`SELECT id FROM things WHERE id = ${`by-value-${id}`}`;
      const countsBy = async (asked: Pick<Session, "all" | "one">) => {
        const all = async (id: string) => (await asked.all<Thing>(query(id))).length;
        const one = async (id: string) => ((await asked.one<Thing>(query(id))) ? 1 : 0);
        const counts: number[] = [];
        for (const ask of [all, one, all, all, one, one]) counts.push(await ask("a"), await ask("b"));
        for (const ask of [all, one]) counts.push(await ask("a"), await one("b"), await one("a"));
        return counts;
      };
      const right = [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1];
      expect([await countsBy(store), await store.write(countsBy)]).toEqual([right, right]);
    });

    test("a number is whole or not as it was given, also where no column says so", async () => {
      const seven = await store.one(
        sql`SELECT CAST(${7} AS BIGINT) / 2 AS half, length(CAST(${7} AS TEXT)) AS size`,
      );
      expect(seven).toEqual({ half: 3, size: 1 });
      const { seams } = store;
      const rows = await store.all(
        sql`SELECT item.a / 2 AS a, item.b / 2 AS b FROM ${seams.rowsFrom("item", { a: column.bigint([7]), b: column.float([7]) })}`,
      );
      expect(rows).toEqual([{ a: 3, b: 3.5 }]);
    });

    test("counts and sums are numbers; bytes are bytes", async () => {
      const row = await store.one<{ count: number; total: number }>(
        sql`SELECT count(*) AS count, sum(n) AS total FROM ${store.seams.rowsFrom("item", { n: column.bigint([1, 2, 39]) })}`,
      );
      expect(row).toEqual({ count: 3, total: 42 });
      const type = store.engine === "postgres" ? "BYTEA" : "BLOB";
      await store.write((session) => session.run(sql.raw(`CREATE TABLE bytes_${++made} (b ${type})`)));
      const table = sql.raw(`bytes_${made}`);
      const bytes = new Uint8Array([0, 1, 255, 39, 92]);
      await store.write((session) => session.run(sql`INSERT INTO ${table} (b) VALUES (${bytes})`));
      const [back] = await store.all<{ b: Uint8Array }>(sql`SELECT b FROM ${table}`);
      expect(back?.b).toBeInstanceOf(Uint8Array);
      expect([...(back?.b ?? [])]).toEqual([...bytes]);
    });

    test("U+0000 in a text is a caller's mistake, alone and in a column", async () => {
      const fault = await store.write((session) => insert(session, "zero\0")).catch((error) => error);
      expect(fault).toBeInstanceOf(Fault);
      expect(fault.kind).toBe("invalid_argument");
      const flushed = await store.flush(addThings, [{ id: "z", n: 0, text: "a\0b" }]).catch((error) => error);
      expect(flushed).toBeInstanceOf(Fault);
    });

    test("rowsFrom gives rows of any count in order, and none for none", async () => {
      for (const count of [0, 1, 2, 3, 5, 48, 49, 64, 65, 7_000]) {
        const ids = Array.from({ length: count }, (_, place) => `row ${place}`);
        const rows = await store.all<{ id: string; ord: number }>(
          sql`SELECT item.id, item.ord FROM ${store.seams.rowsFrom("item", { id: column.text(ids), n: column.bigint(ids.map((_, place) => place)), f: column.float(ids.map(() => 0.5)) })} ORDER BY item.ord`,
        );
        expect(rows.map((row) => row.id)).toEqual(ids);
        expect(rows.map((row) => row.ord)).toEqual(ids.map((_, place) => place + 1));
      }
    });

    test("a flush answers its rows and keeps the rest, and is counted", async () => {
      const before = store.flushCount();
      const rows = await store.flush(addThings, [
        { id: "flush-b", n: 1, text: "b" },
        { id: "flush-x", n: -1, text: "falls out" },
        { id: "flush-a", n: null, text: null },
      ]);
      expect(rows).toEqual([
        { id: "flush-b", ord: 1 },
        { id: "flush-a", ord: 3 },
      ]);
      expect(await idsLike("flush-")).toEqual(["flush-a", "flush-b"]);
      expect(store.flushCount() - before).toBe(1);
    });

    test("a flush that fails leaves nothing, and says why", async () => {
      const twice = await troubleOf(
        store.flush(addThings, [
          { id: "twice-a", n: 0, text: null },
          { id: "twice-b", n: 0, text: null },
          { id: "twice-b", n: 0, text: null },
        ]),
      );
      expect(twice.trouble).toBe("unique");
      expect(twice.detail).toMatch(/things/);
      const refused = await troubleOf(
        store.flush(addThings, [
          { id: "mark-a", n: 0, text: null },
          { id: "refuse", n: 0, text: null },
        ]),
      );
      expect({ trouble: refused.trouble, detail: refused.detail }).toEqual({
        trouble: "marked",
        detail: "refused:refuse",
      });
      expect([...(await idsLike("twice-")), ...(await idsLike("mark-"))]).toEqual([]);
    });

    test("one failure among concurrent writes and flushes stays alone", async () => {
      const attempts = Array.from({ length: 60 }, (_, place) => {
        const id = `alone-${String(place).padStart(2, "0")}`;
        if (place % 7 === 3)
          return store.flush(addThings, [
            { id: `${id}x`, n: 0, text: null },
            { id: "refuse", n: 0, text: null },
          ]);
        if (place % 5 === 2)
          return store.write(async (session) => {
            await insert(session, `${id}y`);
            throw new Error("no");
          });
        if (place % 2 === 0) return store.write((session) => insert(session, id));
        return store.flush(addThings, [{ id, n: 0, text: null }]);
      });
      const settled = await Promise.allSettled(attempts);
      const expected = settled.flatMap((_, place) =>
        place % 7 === 3 || place % 5 === 2 ? [] : `alone-${String(place).padStart(2, "0")}`,
      );
      expect(await idsLike("alone-")).toEqual(expected);
      expect(settled.filter((one) => one.status === "fulfilled")).toHaveLength(expected.length);
    });

    test("a row that is held is not changed by another: no increment is lost", async () => {
      const id = await newCounter();
      const increment = () =>
        store.write(async (session) => {
          const row = await session.one<{ n: number }>(
            sql`SELECT n FROM counters WHERE id = ${id} ${session.seams.holdRow}`,
          );
          await session.run(sql`UPDATE counters SET n = ${(row?.n ?? 0) + 1} WHERE id = ${id}`);
        });
      await Promise.all(Array.from({ length: 40 }, increment));
      expect(await store.one(sql`SELECT n FROM counters WHERE id = ${id}`)).toEqual({ n: 40 });
    });

    togetherConformance(() => store, newCounter);

    test("takers that skip what others hold take each row once, and do not wait", async () => {
      const prefix = `take-${++made}-`;
      await store.write(async (session) => {
        for (let place = 0; place < 30; place++) await insert(session, `${prefix}${place}`);
      });
      const taken: string[] = [];
      const take = () =>
        store.write(async (session) => {
          const rows = await session.all<Thing>(
            sql`SELECT id FROM things WHERE id LIKE ${`${prefix}%`} AND n = 0 ORDER BY id LIMIT 5 ${session.seams.skipLocked}`,
          );
          for (const { id } of rows) {
            await session.run(sql`UPDATE things SET n = 1 WHERE id = ${id}`);
            taken.push(id);
          }
          return rows.length;
        });
      for (let left = 30; left > 0; ) {
        const counts = await Promise.all([take(), take(), take()]);
        left -= counts.reduce((all, count) => all + count);
      }
      expect(taken.length).toBe(30);
      expect(new Set(taken).size).toBe(30);
    });

    test("a write that idles is cut, and those behind it go on", async () => {
      const lived = await livedTime();
      const idle = store.write(async (session) => {
        await insert(session, "idle");
        await new Promise(() => {});
      });
      const behind = store.write((session) => insert(session, "behind-idle"));
      const trouble = await troubleOf(idle);
      expect(trouble.trouble).toBe("unavailable");
      await behind;
      expect(lived.now()).toBeLessThan(2_500);
      await lived.stop();
      expect(await thing("idle")).toBeUndefined();
      expect(await thing("behind-idle")).toBeDefined();
    });

    test("the store answers, and knows what time it is", async () => {
      await store.ping();
      const [before, now, after] = [clock.now(), await store.now(), clock.now()];
      expect(now).toBeGreaterThan(before - 1_000);
      expect(now).toBeLessThan(after + 1_000);
    });

    test("a closed store rejects, and what was under way is done", async () => {
      const other = await subject.open(1);
      await other.write((session) => session.run(sql.raw(tables[0] as string)));
      const last = other.write((session) => insert(session, "last"));
      await Promise.all([last, other.close()]);
      expect((await troubleOf(other.all(sql`SELECT 1`))).trouble).toBe("unavailable");
      expect((await troubleOf(other.write((session) => insert(session, "late")))).trouble).toBe(
        "unavailable",
      );
      expect((await troubleOf(other.flush(addThings, []))).trouble).toBe("unavailable");
      expect((await troubleOf(other.ping())).trouble).toBe("unavailable");
      await other.close();
    });
  });
}
