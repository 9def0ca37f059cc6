/**
 * `bun run bench:topics [--engine postgres|libsql] [--rounds 3] [--seconds 5]`
 *
 * Messages of a developer topic that are stored a second, over HTTP, beside what the same store commits for callers that come
 * together without a server in between; each round stands between two such floors. Medians over the rounds.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startPostgres } from "../support/postgres.ts";
import { driftMax, type Figures, median } from "./figures.ts";
import { runToEnd, startBench, stopAll, treeCpu } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "5" },
  },
});
const rounds = Number(given.rounds);
const seconds = Number(given.seconds);
const floorSeconds = 2;

const shapes = [
  { name: "one by one, 64 callers", callers: 64, batch: 1, target: 0.5 },
  { name: "batches of 100, 8 callers", callers: 8, batch: 100, target: 0.8 },
];

async function measure(engine: string, place: { databaseUrl?: string; file?: string }, databaseUrl?: string) {
  const bench = await startBench(databaseUrl, { alone: true });
  const load = { url: bench.url, key: bench.key, rate: 0, event: "", topic: "bench" };
  await runToEnd("load.ts", { ...load, callers: 64, batch: 1, seconds: 2 });
  for (const { name, callers, batch, target } of shapes) {
    const found: Figures[] = [];
    for (let round = 0; round < rounds; round++) {
      const floorNow = () => runToEnd("floor-coalesced.ts", { ...place, seconds: floorSeconds });
      const before = await floorNow();
      const cpuBefore = bench.server.cpu();
      const storeBefore = treeCpu(postgresPid);
      const sent = await runToEnd("load.ts", { ...load, callers, batch, seconds });
      const per1000 = (cpuS: number) => (cpuS / sent.accepted!) * 1_000;
      const serverCpu = per1000(bench.server.cpu() - cpuBefore);
      const storeCpu = per1000(treeCpu(postgresPid) - storeBefore);
      const after = await floorNow();
      const floor = (before.perS! + after.perS!) / 2;
      const perS = sent.accepted! / sent.seconds!;
      const drift = Math.abs(before.perS! - after.perS!) / floor;
      found.push({
        ratio: perS / floor,
        perS,
        floor,
        drift,
        p50: sent.p50!,
        p95: sent.p95!,
        serverCpu,
        storeCpu,
      });
    }
    const of = (figure: string) => median(found.map((one) => one[figure]!));
    const voids = found.filter((one) => one.drift! > driftMax).length;
    console.log(
      `${engine}, topics ${name}: ${of("perS").toFixed(0)}/s, coalesced floor ${of("floor").toFixed(0)}/s, ratio ${of("ratio").toFixed(2)} (target >= ${target}), p50 ${of("p50").toFixed(1)} ms, p95 ${of("p95").toFixed(1)} ms, CPU s for 1,000: server ${of("serverCpu").toFixed(3)}, PostgreSQL ${of("storeCpu").toFixed(3)}${voids > 0 ? `; floors of ${voids} rounds differ by more than ${driftMax * 100} %` : ""}`,
    );
  }
  await bench.stop();
}

let postgresPid: number | undefined;
const wants = (engine: string) => given.engine === undefined || given.engine === engine;
const postgres = wants("postgres") ? await startPostgres() : undefined;
const folder = await mkdtemp(join(tmpdir(), "svc-floor-"));
try {
  if (postgres) {
    postgresPid = postgres.pid();
    await measure(
      "postgres",
      { databaseUrl: await postgres.createDatabase() },
      await postgres.createDatabase(),
    );
  }
  if (wants("libsql")) await measure("libsql", { file: join(folder, "floor.db") });
} finally {
  await stopAll();
  await postgres?.stop();
  await rm(folder, { recursive: true, force: true });
}
process.exit(0);
