/**
 * `bun run bench:sql [--engine postgres|libsql] [--rounds 3] [--events 50000]`
 *
 * A SQL projection that is rebuilt over a log of so many events, by INSERT … ON CONFLICT on a thousand rows: events a second
 * from the request to the end. Medians over the rounds, and all of them.
 */
import { parseArgs } from "node:util";
import { sharedPostgres } from "../support/postgres.ts";
import { callerOf } from "../support/server.ts";
import { until } from "../support/until.ts";
import { median } from "./figures.ts";
import { startBench, stopAll } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    rounds: { type: "string", default: "3" },
    events: { type: "string", default: "50000" },
  },
});
const events = Number(given.events);
const batch = 100;
const target = 20_000;
const name = "bench";

async function measure(engine: string, url?: string): Promise<void> {
  const bench = await startBench(url, { alone: true });
  const { rpc } = callerOf(
    () => bench.url,
    () => bench.key,
  );
  for (let made = 0; made < events; made += batch) {
    const sent = await rpc("SvcService", "TriggerBatch", {
      events: Array.from({ length: batch }, (_, at) => ({
        event: "bench.sold",
        data: { id: `item${(made + at) % 1_000}`, total: at, note: "x".repeat(100) },
      })),
    });
    if (sent.status !== 200) throw new Error(JSON.stringify(sent.body));
  }
  const created = await rpc("ProjectionService", "CreateSQLProjection", {
    ...{ name, tableSql: "CREATE TABLE proj_bench (id text PRIMARY KEY, total numeric, n bigint)" },
    eventHandlers: {
      "bench.sold": `INSERT INTO proj_bench (id, total, n) VALUES (:data.id, :data.total, 1)
        ON CONFLICT (id) DO UPDATE SET total = proj_bench.total + excluded.total, n = proj_bench.n + 1`,
    },
  });
  if (created.status !== 200) throw new Error(JSON.stringify(created.body));
  const job = () => rpc("ProjectionService", "GetRebuildJob", { name });
  const perS: number[] = [];
  for (let round = 0; round < Number(given.rounds); round++) {
    await until(
      async () => (await rpc("ProjectionService", "GetProjectionStatus", { name })).body.lag === "0",
      {
        about: "the projection to catch up",
        deadlineMs: 120_000,
      },
    );
    const since = performance.now();
    await rpc("ProjectionService", "RebuildProjection", { name });
    await until(async () => (await job()).body.job?.status === "completed", {
      ...{ about: "the rebuild", deadlineMs: 300_000, everyMs: 10 },
    });
    perS.push((events * 1_000) / (performance.now() - since));
  }
  const shown = perS.map((one) => one.toFixed(0)).join(", ");
  console.log(`${engine}: ${median([...perS]).toFixed(0)} events/s (${shown}; target >= ${target})`);
}

try {
  if (given.engine !== "postgres") await measure("libsql");
  if (given.engine !== "libsql") {
    const databases = await sharedPostgres();
    const url = await databases.createDatabase();
    await measure("postgres", url);
    await stopAll();
    await databases.dropDatabase(url);
  }
} finally {
  await stopAll();
}
process.exit(0);
