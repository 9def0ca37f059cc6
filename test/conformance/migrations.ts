import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { type Migration, migrate, type StoreSchema } from "../../src/store/migrate.ts";
import type { Store } from "../../src/store/store.ts";
import { clock, type StoreUnderTest } from "./store.ts";

const first: Migration = { version: 1, name: "first", statements: ["CREATE TABLE landed (n BIGINT)"] };
const second: Migration = {
  version: 2,
  name: "second",
  statements: (engine) => [
    `INSERT INTO landed (n) VALUES (${engine.length})`,
    "ALTER TABLE landed ADD COLUMN m BIGINT",
  ],
};
const third: Migration = {
  version: 3,
  name: "third",
  statements: ["INSERT INTO landed (n) VALUES (3)"],
  compatible: true,
};

const base: StoreSchema["base"] = { statements: () => [], landed: () => [] };
const land = (store: Store, ...migrations: Migration[]) =>
  migrate(store, { base, migrations }, { clock, log: silentLog });

export function migrationConformance(subject: StoreUnderTest): void {
  describe(`migrations on ${subject.name}`, () => {
    let store: Store;
    const rows = async () => (await store.one<{ n: number }>(sql`SELECT count(*) AS n FROM landed`))?.n;
    const versions = async () =>
      (await store.all<{ version: number }>(sql`SELECT version FROM migrations ORDER BY version`)).map(
        (row) => row.version,
      );

    beforeAll(async () => {
      store = await subject.open(2);
    });
    afterAll(() => store.close());

    test("they land in order, once, whoever asks at the same time", async () => {
      await Promise.all([land(store, second, first), land(store, first, second), land(store, first, second)]);
      await land(store, first, second);
      expect(await versions()).toEqual([1, 2]);
      expect(await rows()).toBe(1);
    });

    test("one that fails leaves nothing of itself", async () => {
      const broken: Migration = {
        version: 3,
        name: "broken",
        statements: ["INSERT INTO landed (n) VALUES (9)", "INSERT INTO nowhere (n) VALUES (9)"],
      };
      await expect(land(store, first, second, broken)).rejects.toThrow("nowhere");
      expect(await versions()).toEqual([1, 2]);
      expect(await rows()).toBe(1);
    });

    test("two statements in one text are refused", async () => {
      const two: Migration = { version: 3, name: "two", statements: ["SELECT ';' ; SELECT 2"] };
      await expect(land(store, first, second, two)).rejects.toThrow("0003_two holds two statements");
    });

    test("a landed one that was edited is refused by name", async () => {
      const edited = { ...second, statements: ["SELECT 1"] };
      await expect(land(store, first, edited)).rejects.toThrow("0002_second has changed since it landed");
      await expect(land(store, first, { ...second, name: "renamed" })).rejects.toThrow(
        "0002_renamed has changed",
      );
    });

    test("two of one version are refused", async () => {
      await expect(land(store, first, second, { ...third, version: 2 })).rejects.toThrow("version 2");
    });

    test("a newer database is refused, unless what is new works with older programs", async () => {
      await expect(land(store, first)).rejects.toThrow("0002_second is unknown here");
      await land(store, first, second, third);
      await land(store, first, second);
      expect(await versions()).toEqual([1, 2, 3]);
    });
  });
}
