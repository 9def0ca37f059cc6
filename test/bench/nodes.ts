import { parseArgs } from "node:util";
import { startNats } from "../support/nats.ts";
import { startPostgres } from "../support/postgres.ts";
import { type Bench, runToEnd, startBench, stopAll } from "./processes.ts";

// bun run bench:nodes [--rounds N] [--seconds N] [--nodes N] [--callers N]: what several nodes accept together, in relation to one
// before and another after, with the same callers in all and on the same cores. A round whose two lone figures differ by more than
// 15 % is void. Each node first has the whole load for `warmUpS`: a server that still compiles most of its code is slower.
const { values: given } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "5" },
    nodes: { type: "string", default: "3" },
    callers: { type: "string", default: "64" },
  },
});
const rounds = Number(given.rounds);
const seconds = Number(given.seconds);
const callers = Number(given.callers);
const warmUpS = 10;
const driftMax = 0.15;

const [postgres, nats] = await Promise.all([startPostgres(), startNats()]);
const databaseUrl = await postgres.createDatabase();
const first = await startBench(databaseUrl, { natsUrl: nats.url, alone: true });
const nodes: Bench[] = [first];
while (nodes.length < Number(given.nodes))
  nodes.push(await startBench(databaseUrl, { natsUrl: nats.url, alone: true, keyFile: first.keyFile }));

async function accepted(asked: readonly Bench[]): Promise<number> {
  const url = asked.map((node) => node.url).join(",");
  const load = { url, key: first.key, callers, seconds, rate: 0, batch: 1, event: "bench.nobody" };
  const sent = await runToEnd("load.ts", load);
  if (sent.broken! > 0 || sent.refused! > 0) throw new Error(JSON.stringify(sent));
  return sent.accepted! / sent.seconds!;
}

try {
  for (let warmed = 0; warmed < warmUpS; warmed += seconds) for (const node of nodes) await accepted([node]);
  await accepted(nodes);
  const ratios: number[] = [];
  for (let round = 1; ratios.length < rounds && round <= 3 * rounds; round++) {
    const before = await accepted([nodes[round % nodes.length]!]);
    const together = await accepted(nodes);
    const after = await accepted([nodes[(round + 1) % nodes.length]!]);
    const alone = (before + after) / 2;
    const isVoid = Math.abs(before - after) / alone > driftMax;
    if (!isVoid) ratios.push(together / alone);
    console.log(
      `events/s of one node ${Math.round(before)} and ${Math.round(after)}, of ${nodes.length} together ${Math.round(together)}: ${(together / alone).toFixed(2)}${isVoid ? " (void)" : ""}`,
    );
  }
  ratios.sort((a, b) => a - b);
  const median = ratios[Math.floor(ratios.length / 2)];
  console.log(`median ${median?.toFixed(2) ?? "none"}, target >= 0.8`);
} finally {
  await Promise.all(nodes.map((node) => node.stop()));
  await Promise.all([postgres.stop(), nats.stop()]);
  await stopAll();
}
process.exit(0);
