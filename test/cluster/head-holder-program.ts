import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openPostgres } from "../../src/store/postgres.ts";

// A node that holds the head of an environment when it is frozen: `head-holder-program.ts DATABASE_URL ENVIRONMENT`. It says
// "held" once it does, and waits there; the position that it has taken must never be seen.
const [url, environmentId] = process.argv.slice(2);
if (!url || !environmentId) throw new Error("usage: head-holder-program.ts DATABASE_URL ENVIRONMENT");

const store = await openPostgres({ url, clock: systemClock(), log: silentLog, poolSize: 1, hotPoolSize: 1 });
await store.write(async (session) => {
  await session.run(sql`UPDATE heads SET position = position + 1 WHERE environment_id = ${environmentId}`);
  process.stdout.write("held\n");
  await new Promise(() => {});
});
