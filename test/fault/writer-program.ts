import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openLibsql } from "../../src/store/libsql.ts";
import { openPostgres } from "../../src/store/postgres.ts";

// `writer-program.ts PLACE careless|careful`: writes numbers into table `numbers` of a file or a postgres:// URL, many at a
// time, and prints each once its commit was acknowledged.
const [place, manner] = process.argv.slice(2);
if (!place || !manner) throw new Error("usage: writer-program.ts PLACE careless|careful");

const careless = manner === "careless";
const options = { clock: systemClock(), log: silentLog };
const store = place.startsWith("postgres")
  ? await openPostgres({ ...options, url: place, acceptAsyncCommit: careless })
  : await openLibsql({ ...options, file: place, acceptLostCommits: careless });
await store.write((session) => session.run(sql`CREATE TABLE IF NOT EXISTS numbers (n BIGINT PRIMARY KEY)`));
process.stdout.write("ready\n");

let next = 0;
const callers = 8;
await Promise.all(
  Array.from({ length: callers }, async () => {
    for (;;) {
      const n = next++;
      await store.write((session) => session.run(sql`INSERT INTO numbers (n) VALUES (${n})`));
      process.stdout.write(`${n}\n`);
    }
  }),
);
