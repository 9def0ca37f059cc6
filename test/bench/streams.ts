/**
 * `bun run bench:streams [--engine postgres|libsql] [--rounds 3] [--seconds 4]`
 *
 * Appends to streams of entities over Connect JSON, each beside single-row commits of the same store with 64 callers, taken
 * right before and after; and reading a long stream by the iterator of the SDK. Medians over the rounds, and all of them.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startPostgres } from "../support/postgres.ts";
import { driftMax, median } from "./figures.ts";
import { runToEnd, startBench, stopAll } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "4" },
  },
});
const rounds = Number(given.rounds);
const seconds = Number(given.seconds);
const floorSeconds = 2;
const readEvents = 100_000;

const shapes = [
  { name: "64 callers, 10,000 streams", callers: 64, batch: 1, streams: 10_000, target: 0.7 },
  { name: "64 callers, one stream at any version", callers: 64, batch: 1, streams: 1, target: 0.3 },
  { name: "8 callers, batches of 100, 10,000 streams", callers: 8, batch: 100, streams: 10_000, target: 2.5 },
  { name: "8 callers, batches of 100, one stream", callers: 8, batch: 100, streams: 1, target: 0.3 },
];

type Place = { databaseUrl?: string; file?: string };

const shown = (values: readonly number[], digits: number) =>
  `${median([...values]).toFixed(digits)} (${values.map((value) => value.toFixed(digits)).join(", ")})`;

async function measure(engine: string, floor: Place, url?: string): Promise<void> {
  const bench = await startBench(url, { alone: true });
  const load = { url: bench.url, key: bench.key, rate: 0, event: "bench.appended" };
  await runToEnd("load.ts", { ...load, callers: 64, batch: 1, streams: 1_000, seconds: 2 });
  const floorNow = async () => (await runToEnd("floor.ts", { ...floor, seconds: floorSeconds })).perS!;
  for (const { name, target, ...shape } of shapes) {
    const found = { perS: [] as number[], floor: [] as number[], ratio: [] as number[], p95: [] as number[] };
    let voids = 0;
    for (let round = 0; round < rounds; round++) {
      const before = await floorNow();
      const sent = await runToEnd("load.ts", { ...load, ...shape, seconds });
      const after = await floorNow();
      const floorPerS = (before + after) / 2;
      if (Math.abs(before - after) / floorPerS > driftMax) voids++;
      const perS = sent.accepted! / sent.seconds!;
      found.perS.push(perS);
      found.floor.push(floorPerS);
      found.ratio.push(perS / floorPerS);
      found.p95.push(sent.p95!);
    }
    console.log(
      `${engine}, ${name}:
  ${shown(found.perS, 0)} appends/s, floor ${shown(found.floor, 0)}/s, ratio ${shown(found.ratio, 2)} (target >= ${target}), p95 ${shown(found.p95, 1)} ms${voids > 0 ? `; floors of ${voids} rounds differ by more than ${driftMax * 100} %` : ""}`,
    );
  }
  const read = { url: bench.url, key: bench.key, events: readEvents };
  await runToEnd("streams-read.ts", { ...read, fill: true });
  const perS: number[] = [];
  for (let round = 0; round < rounds; round++) perS.push((await runToEnd("streams-read.ts", read)).perS!);
  console.log(
    `${engine}, reading ${readEvents} events of a stream by the SDK: ${shown(perS, 0)}/s (target >= 100000)`,
  );
  await bench.stop();
}

const wants = (engine: string) => given.engine === undefined || given.engine === engine;
const postgres = wants("postgres") ? await startPostgres() : undefined;
const folder = await mkdtemp(join(tmpdir(), "svc-floor-"));
try {
  if (postgres) {
    const floor = { databaseUrl: await postgres.createDatabase() };
    await measure("postgres", floor, await postgres.createDatabase());
  }
  if (wants("libsql")) await measure("libsql", { file: join(folder, "floor.db") });
} finally {
  await stopAll();
  await postgres?.stop();
  await rm(folder, { recursive: true, force: true });
}
process.exit(0);
