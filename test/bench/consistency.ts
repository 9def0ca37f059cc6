/**
 * `bun run bench:consistency [--times 10000] [--lanes 8] [--nodes 2]`
 *
 * Appends at one node and reads a projection at another, so that the read shows the append, while a runner folds. Prints what the
 * reads took beside reads that wait for nothing; fails when one is stale.
 */
import { parseArgs } from "node:util";
import { startNats } from "../support/nats.ts";
import { startPostgres } from "../support/postgres.ts";
import { readsAfterWrites } from "../support/read-after-write.ts";
import { callerOf } from "../support/server.ts";
import { percentile } from "./figures.ts";
import { type Bench, startBench, stopAll } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    times: { type: "string", default: "10000" },
    lanes: { type: "string", default: "8" },
    nodes: { type: "string", default: "2" },
  },
});

const [postgres, nats] = await Promise.all([startPostgres(), startNats()]);
const databaseUrl = await postgres.createDatabase();
const first = await startBench(databaseUrl, { natsUrl: nats.url, alone: true });
const nodes: Bench[] = [first];
while (nodes.length < Number(given.nodes))
  nodes.push(await startBench(databaseUrl, { natsUrl: nats.url, alone: true, keyFile: first.keyFile }));

let stale = 0;
try {
  const called = nodes.map(({ url }) => ({
    ...{ url, adminKey: first.key },
    ...callerOf(
      () => url,
      () => first.key,
    ),
  }));
  const options = { name: "warm", times: 500, lanes: Number(given.lanes), clock: () => performance.now() };
  await readsAfterWrites(called, options);
  const found = await readsAfterWrites(called, { ...options, name: "folded", times: Number(given.times) });
  stale = found.stale;
  const shown = (values: number[]) => {
    const sorted = values.sort((a, b) => a - b);
    return `p50 ${percentile(sorted, 0.5).toFixed(1)} ms, p99 ${percentile(sorted, 0.99).toFixed(1)} ms`;
  };
  const added = (rank: number) =>
    (percentile(found.waitedMs, rank) - percentile(found.plainMs, rank)).toFixed(1);
  console.log(`${found.waitedMs.length} reads after writes over ${nodes.length} nodes, ${stale} stale
  with their sequence: ${shown(found.waitedMs)}
  without:             ${shown(found.plainMs)}
  added wait:          p50 ${added(0.5)} ms, p99 ${added(0.99)} ms`);
} finally {
  await Promise.all(nodes.map((node) => node.stop()));
  await Promise.all([postgres.stop(), nats.stop()]);
  await stopAll();
}
process.exit(stale === 0 ? 0 : 1);
