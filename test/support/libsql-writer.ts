import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openLibsql } from "../../src/store/libsql.ts";
import type { DriverName } from "../../src/store/libsql-drivers.ts";

// Writes rows for as long as it lives, and prints the name of each one that was acknowledged.
const [file = "", driver = "libsql"] = process.argv.slice(2);
const store = await openLibsql({ file, driver: driver as DriverName, clock: systemClock(), log: silentLog });
await store.write((session) =>
  session.run(sql`CREATE TABLE IF NOT EXISTS acked (id TEXT PRIMARY KEY, text TEXT)`),
);

const lane = async (name: string) => {
  for (let place = 0; ; place++) {
    const id = `${name}-${place}`;
    await store.write((session) =>
      session.run(sql`INSERT INTO acked (id, text) VALUES (${id}, ${"x".repeat(400)})`),
    );
    process.stdout.write(`${id}\n`);
  }
};
await Promise.all(Array.from({ length: 8 }, (_, place) => lane(`${process.pid}-${place}`)));
