import { afterAll, beforeAll } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { silentLog } from "../../src/kit/log.ts";
import { openLibsql } from "../../src/store/libsql.ts";
import { openPostgres } from "../../src/store/postgres.ts";
import { type Databases, sharedPostgres } from "../support/postgres.ts";
import { migrationConformance } from "./migrations.ts";
import { clock, type StoreUnderTest, storeConformance } from "./store.ts";

const folder = mkdtempSync(join(tmpdir(), "svc-store-"));
const urls = new Map<number, string>();
let server: Databases;

beforeAll(async () => {
  server = await sharedPostgres();
});
afterAll(async () => {
  for (const url of urls.values()) await server.dropDatabase(url);
  rmSync(folder, { recursive: true });
});

const subjects: StoreUnderTest[] = [
  ...(["libsql", "bun:sqlite"] as const).map((driver) => ({
    name: `libSQL (${driver})`,
    open: (database: number) =>
      openLibsql({
        file: join(folder, driver.replace(":", "-"), `${database}.db`),
        driver,
        clock,
        log: silentLog,
      }),
  })),
  {
    name: "Postgres",
    async open(database) {
      const url = urls.get(database) ?? (await server.createDatabase());
      urls.set(database, url);
      return openPostgres({ url, clock, log: silentLog });
    },
  },
];

for (const subject of subjects) {
  storeConformance(subject);
  migrationConformance(subject);
}
