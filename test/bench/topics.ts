/**
 * `bun run bench:topics [--engine postgres|libsql] [--rounds 3] [--seconds 5]`
 *
 * Messages of a developer topic that are stored a second: by the service itself, beside what the same store commits for
 * callers that come together with nothing around it, and over HTTP, beside a bare Bun.serve that parses as much and stores
 * nothing. Each round stands between two floors of the store. Medians over the rounds.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startPostgres } from "../support/postgres.ts";
import { driftMax, type Figures, median } from "./figures.ts";
import { runToEnd, startBench, startProgram, stopAll, treeCpu } from "./processes.ts";

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

type Place = { databaseUrl?: string; file?: string };

async function measure(engine: string, { floor, service }: { floor: Place; service: Place }, url?: string) {
  const bench = await startBench(url, { alone: true });
  const bare = await startProgram("publish-bare.ts", {}, { first: "url " });
  const load = { url: bench.url, key: bench.key, rate: 0, event: "", topic: "bench" };
  await runToEnd("load.ts", { ...load, callers: 64, batch: 1, seconds: 2 });
  for (const { name, callers, batch, target } of shapes) {
    const found: Figures[] = [];
    for (let round = 0; round < rounds; round++) {
      const floorNow = () => runToEnd("floor-coalesced.ts", { ...floor, seconds: floorSeconds });
      const before = (await floorNow()).perS!;
      const own = (await runToEnd("topics-service.ts", { ...service, callers, batch, seconds })).perS!;
      const after = (await floorNow()).perS!;
      const cpuBefore = bench.server.cpu();
      const storeBefore = treeCpu(postgresPid);
      const sent = await runToEnd("load.ts", { ...load, callers, batch, seconds });
      const per1000 = (cpuS: number) => (cpuS / sent.accepted!) * 1_000;
      const serverCpu = per1000(bench.server.cpu() - cpuBefore);
      const storeCpu = per1000(treeCpu(postgresPid) - storeBefore);
      const empty = await runToEnd("load.ts", {
        ...load,
        url: bare.line.slice(4),
        callers,
        batch,
        seconds: 2,
      });
      const floorPerS = (before + after) / 2;
      const perS = sent.accepted! / sent.seconds!;
      const barePerS = empty.accepted! / empty.seconds!;
      found.push({
        own,
        floor: floorPerS,
        ratio: own / floorPerS,
        drift: Math.abs(before - after) / floorPerS,
        perS,
        bare: barePerS,
        httpRatio: perS / barePerS,
        storeRatio: perS / floorPerS,
        p50: sent.p50!,
        p95: sent.p95!,
        serverCpu,
        storeCpu,
      });
    }
    const of = (figure: string) => median(found.map((one) => one[figure]!));
    const voids = found.filter((one) => one.drift! > driftMax).length;
    console.log(
      `${engine}, topics ${name}:
  service: ${of("own").toFixed(0)}/s, coalesced floor ${of("floor").toFixed(0)}/s, ratio ${of("ratio").toFixed(2)} (target >= ${target})${voids > 0 ? `; floors of ${voids} rounds differ by more than ${driftMax * 100} %` : ""}
  over HTTP: ${of("perS").toFixed(0)}/s, ${of("storeRatio").toFixed(2)} of the coalesced floor, ${of("httpRatio").toFixed(2)} of a bare Bun.serve (${of("bare").toFixed(0)}/s), p50 ${of("p50").toFixed(1)} ms, p95 ${of("p95").toFixed(1)} ms, CPU s for 1,000: server ${of("serverCpu").toFixed(3)}, PostgreSQL ${of("storeCpu").toFixed(3)}`,
    );
  }
  await bench.stop();
  await bare.stop();
}

let postgresPid: number | undefined;
const wants = (engine: string) => given.engine === undefined || given.engine === engine;
const postgres = wants("postgres") ? await startPostgres() : undefined;
const folder = await mkdtemp(join(tmpdir(), "svc-floor-"));
try {
  if (postgres) {
    postgresPid = postgres.pid();
    const floor = { databaseUrl: await postgres.createDatabase() };
    const service = { databaseUrl: await postgres.createDatabase() };
    await measure("postgres", { floor, service }, await postgres.createDatabase());
  }
  if (wants("libsql"))
    await measure("libsql", {
      floor: { file: join(folder, "floor.db") },
      service: { file: join(folder, "service.db") },
    });
} finally {
  await stopAll();
  await postgres?.stop();
  await rm(folder, { recursive: true, force: true });
}
process.exit(0);
