import { afterAll, describe, expect, test } from "bun:test";
import { linkSync, mkdtempSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openLibsql } from "../../src/store/libsql.ts";
import type { Flush, Store } from "../../src/store/store.ts";
import { until } from "../support/until.ts";
import { clock, troubleOf } from "./store.ts";

const folder = mkdtempSync(join(tmpdir(), "svc-libsql-"));
afterAll(() => rmSync(folder, { recursive: true }));

const add: Flush<{ id: string; text?: string }, { id: string }> = {
  name: "rows.add",
  postgres: () => sql.empty,
  libsql: (session, { id, text = "" }) =>
    session.all(sql`INSERT INTO rows (id, text) VALUES (${id}, ${text}) RETURNING id`),
};

for (const driver of ["libsql", "bun:sqlite"] as const) {
  describe(`libSQL by ${driver}`, () => {
    let made = 0;
    const newFile = () => join(folder, driver.replace(":", "-"), String(++made), "svc.db");
    const open = (file = newFile()) => openLibsql({ file, driver, clock, log: silentLog });
    const withRows = async (file?: string) => {
      const store = await open(file);
      await store.write((session) => session.run(sql`CREATE TABLE rows (id TEXT PRIMARY KEY, text TEXT)`));
      return store;
    };
    const ids = async (store: Store) =>
      (await store.all<{ id: string }>(sql`SELECT id FROM rows ORDER BY id`)).map((row) => row.id);
    const startWriter = (file: string) => {
      const child = Bun.spawn(
        [process.execPath, join(import.meta.dir, "../support/libsql-writer.ts"), file, driver],
        {
          stdout: "pipe",
          stderr: "inherit",
        },
      );
      let printed = "";
      const read = (async () => {
        const decoder = new TextDecoder();
        for await (const chunk of child.stdout) printed += decoder.decode(chunk);
      })();
      return {
        child,
        // The last line may have been cut.
        acked: () => printed.split("\n").slice(0, -1),
        async kill() {
          child.kill("SIGKILL");
          await child.exited;
          await read;
        },
      };
    };

    test("the file belongs to its owner alone", async () => {
      const file = newFile();
      const store = await withRows(file);
      for (const part of [file, `${file}-wal`]) expect(statSync(part).mode & 0o777).toBe(0o600);
      expect(statSync(join(file, "..")).mode & 0o777).toBe(0o700);
      await expect(open(file)).rejects.toThrow(`open in this process (${process.pid})`);
      const [alias, twin] = [`${file}.alias`, `${file}.twin`];
      symlinkSync(file, alias);
      await expect(open(alias)).rejects.toThrow(`open in this process (${process.pid})`);
      // The refusal changed nothing for the one that holds it.
      await store.flush(add, { id: "still" });
      await store.close();
      const again = await open(file);
      expect(await ids(again)).toEqual(["still"]);
      await again.close();
      const byAlias = await open(alias);
      await expect(open(file)).rejects.toThrow("open in this process");
      await byAlias.close();
      linkSync(file, twin);
      await expect(open(twin)).rejects.toThrow("has a second name");
    });

    test("kill -9 loses no acknowledged row; until then nobody else gets the file", async () => {
      const file = newFile();
      for (let round = 1; round <= 2; round++) {
        const writer = startWriter(file);
        await until(() => writer.acked().length > 200, { about: "acknowledged rows" });
        const refusal = await open(file).catch((error: Error) => error.message);
        expect(refusal).toContain(`is open in process ${writer.child.pid}`);
        await writer.kill();
        const store = await open(file);
        const there = await store.all<{ id: string }>(sql`SELECT id FROM acked`);
        const known = new Set(there.map((row) => row.id));
        expect(writer.acked().filter((id) => !known.has(id))).toEqual([]);
        expect(await store.one(sql`PRAGMA integrity_check`)).toEqual({ integrity_check: "ok" });
        await store.close();
      }
    }, 90_000);

    test("callers at the same time share a commit", async () => {
      const store = await withRows();
      const count = async () => (await store.one<{ n: number }>(sql`SELECT count(*) AS n FROM rows`))!.n;
      let most = 0;
      // The first of all may find the writer idle, and go alone.
      for (let round = 0; round < 4; round++) {
        const before = await count();
        const waits = Array.from({ length: 64 }, (_, place) => {
          const wait = store.flush(add, { id: `row-${round}-${place}` });
          // When the first resolves, all of its group are there: they came with one commit.
          return place === 0 ? wait.then(count).then((n) => (most = Math.max(most, n - before))) : wait;
        });
        await Promise.all(waits);
      }
      expect(most).toBeGreaterThan(1);
      expect(await ids(store)).toHaveLength(256);
      await store.close();
    });

    test("one that idles is undone alone: those before it in the group commit", async () => {
      const store = await withRows();
      const before = store.flush(add, { id: "before" });
      const idle = store.write(async (session) => {
        await session.run(sql`INSERT INTO rows (id) VALUES ('idle')`);
        await new Promise(() => {});
      });
      const after = store.flush(add, { id: "after" });
      expect((await troubleOf(idle)).detail).toContain("rolled back");
      await Promise.all([before, after]);
      expect(await ids(store)).toEqual(["after", "before"]);
      await store.close();
    });

    test("a full disk fails what it undid, and the store goes on", async () => {
      const store = await withRows();
      const pages = await store.one<{ page_count: number }>(sql`PRAGMA page_count`);
      await store.write((session) =>
        session.run(sql.raw(`PRAGMA max_page_count = ${(pages?.page_count ?? 0) + 5}`)),
      );
      const text = "x".repeat(3_000);
      const settled = await Promise.allSettled(
        Array.from({ length: 20 }, (_, place) => store.flush(add, { id: `full-${place}`, text })),
      );
      const refused = settled.flatMap((one) => (one.status === "rejected" ? [one.reason.trouble] : []));
      expect(refused.length).toBeGreaterThan(0);
      expect(new Set(refused)).toEqual(new Set(["full"]));
      expect(await ids(store)).toHaveLength(20 - refused.length);
      await store.write((session) => session.run(sql`DELETE FROM rows`));
      await store.flush(add, { id: "room again" });
      expect(await ids(store)).toEqual(["room again"]);
      await store.close();
    });

    test("more texts than are kept prepared still run", async () => {
      const store = await withRows();
      for (let count = 1; count <= 1_200; count++) {
        await store.all(
          sql`SELECT id FROM rows WHERE id IN ${sql.list(Array.from({ length: count }, (_, n) => n))}`,
        );
      }
      expect(await store.all(sql`SELECT id FROM rows WHERE id IN ${sql.list(["a"])}`)).toEqual([]);
      await store.close();
    }, 90_000);
  });
}
