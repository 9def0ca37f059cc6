/**
 * `bun run bench:realtime [--only fan-out|patterns|latency] [--subscribers 1000,10000] [--rounds 3]`
 *
 * Fan-out: deliveries per CPU second of the server, beside those of a bare Bun server and of the ws library that send
 * frames of the same size in the same round. The store is PostgreSQL, a process of its own; so are the readers.
 */
import { parseArgs } from "node:util";
import { startNats } from "../support/nats.ts";
import { startPostgres } from "../support/postgres.ts";
import { stopAll } from "./processes.ts";
import { fanOut } from "./realtime-fan-out.ts";
import { latencyBetweenNodes } from "./realtime-latency.ts";
import { patterns } from "./realtime-patterns.ts";

const { values: given } = parseArgs({
  options: {
    only: { type: "string" },
    subscribers: { type: "string", default: "1000,10000" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "10" },
  },
});
const wants = (name: string) => given.only === undefined || given.only === name;

const postgres = await startPostgres();
try {
  if (wants("patterns")) await patterns();
  if (wants("fan-out"))
    for (const count of given.subscribers.split(",").map(Number))
      await fanOut({ count, rounds: Number(given.rounds), databaseUrl: await postgres.createDatabase() });
  if (wants("latency")) {
    const nats = await startNats();
    try {
      const databaseUrl = await postgres.createDatabase();
      await latencyBetweenNodes({ databaseUrl, natsUrl: nats.url, seconds: Number(given.seconds) });
    } finally {
      await nats.stop();
    }
  }
} finally {
  await stopAll();
  await postgres.stop();
}
process.exit(0);
