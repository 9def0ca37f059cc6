/**
 * `bun run bench:webhooks [--engine postgres|libsql] [--rounds 3] [--seconds 4]`
 *
 * Signed webhooks over HTTP with 64 callers, each beside emits of as many callers right before and after. Medians over the
 * rounds, and all of them.
 */
import { parseArgs } from "node:util";
import { startPostgres } from "../support/postgres.ts";
import { callerOf } from "../support/server.ts";
import { driftMax, median } from "./figures.ts";
import { runToEnd, startBench, stopAll, treeCpu } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "4" },
  },
});
const rounds = Number(given.rounds);
const seconds = Number(given.seconds);
const target = 0.5;
const secret = "a secret of the provider";

const shown = (values: readonly number[], digits: number) =>
  `${median(values).toFixed(digits)} (${values.map((value) => value.toFixed(digits)).join(", ")})`;

/** CPU microseconds of server and database for each request: they say what a busy machine hides. */
async function costing(cpu: () => number, load: () => Promise<Record<string, number>>) {
  const before = cpu();
  const answer = await load();
  return { ...answer, cost: ((cpu() - before) * 1e6) / answer.accepted! } as Record<string, number>;
}

async function measure(engine: string, database?: { url: string; pid: number }): Promise<void> {
  const bench = await startBench(database?.url, { alone: true });
  const cpu = () => bench.server.cpu() + treeCpu(database?.pid);
  const { rpc } = callerOf(
    () => bench.url,
    () => bench.key,
  );
  const source = { event_prefix: "bench", preset: "generic-hmac", verify_secret: secret };
  const { body } = await rpc("WebhookService", "CreateWebhookSource", source);
  const hook = { path: `/api/v1/webhooks/${body.id}?token=${body.ingest_token}`, secret };
  const load = {
    url: bench.url,
    key: bench.key,
    rate: 0,
    event: "bench.sent",
    callers: 64,
    batch: 1,
    seconds,
  };
  const emits = () => costing(cpu, () => runToEnd("load.ts", load));
  const webhooks = () => costing(cpu, () => runToEnd("load.ts", { ...load, hook }));
  const perS = ({ accepted, seconds: took }: Record<string, number>) => accepted! / took!;
  await emits();
  await webhooks();
  const found = {
    webhooks: [] as number[],
    emits: [] as number[],
    ratio: [] as number[],
    p95: [] as number[],
    cost: [] as number[],
    emitCost: [] as number[],
  };
  let voids = 0;
  for (let round = 0; round < rounds; round++) {
    const before = await emits();
    const received = await webhooks();
    const after = await emits();
    const emitted = (perS(before) + perS(after)) / 2;
    if (Math.abs(perS(before) - perS(after)) / emitted > driftMax) voids++;
    if (received.refused! > 0) throw new Error(`${received.refused} webhooks were refused`);
    found.webhooks.push(perS(received));
    found.emits.push(emitted);
    found.ratio.push(perS(received) / emitted);
    found.p95.push(received.p95!);
    found.cost.push(received.cost!);
    found.emitCost.push((before.cost! + after.cost!) / 2);
  }
  console.log(`${engine}: ${shown(found.webhooks, 0)} webhooks/s, p95 ${shown(found.p95, 1)} ms; ${shown(found.emits, 0)} emits/s;
  ratio ${shown(found.ratio, 2)} (target >= ${target}); CPU ${shown(found.cost, 0)} us a webhook, ${shown(found.emitCost, 0)} us an emit${voids > 0 ? `; emits before and after ${voids} rounds differ by more than ${driftMax * 100} %` : ""}`);
  await bench.stop();
}

const wants = (engine: string) => given.engine === undefined || given.engine === engine;
const postgres = wants("postgres") ? await startPostgres() : undefined;
try {
  if (postgres) await measure("postgres", { url: await postgres.createDatabase(), pid: postgres.pid() });
  if (wants("libsql")) await measure("libsql");
} finally {
  await stopAll();
  await postgres?.stop();
}
process.exit(0);
