/**
 * `bun run bench:projections [--engine postgres|libsql] [--rounds 3] [--events 60000]`
 *
 * Managed projections folded by one worker of the SDK from the first event to the last, beside single-row commits of the
 * same store with 64 callers; what a rebuild side by side costs emits; and how long 10,000 waits take to be answered by one
 * save. Medians over the rounds, and all of them.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startPostgres } from "../support/postgres.ts";
import { driftMax, median } from "./figures.ts";
import { runToEnd, startBench, startProgram, stopAll } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    rounds: { type: "string", default: "3" },
    events: { type: "string", default: "60000" },
  },
});
const rounds = Number(given.rounds);
const events = Number(given.events);
const floorSeconds = 2;
const emitSeconds = 6;
const waiters = 10_000;

type Place = { databaseUrl?: string; file?: string };

const shown = (values: readonly number[], digits: number) =>
  `${median([...values]).toFixed(digits)} (${values.map((value) => value.toFixed(digits)).join(", ")})`;
const drifted = (count: number) =>
  count > 0 ? `; floors of ${count} rounds differ by more than ${driftMax * 100} %` : "";

async function measure(engine: string, floor: Place, databaseUrl?: string): Promise<void> {
  const bench = await startBench(databaseUrl, { alone: true });
  const to = { url: bench.url, key: bench.key };
  const floorNow = async () => (await runToEnd("floor.ts", { ...floor, seconds: floorSeconds })).perS!;

  for (const partitions of [1, 50]) {
    const fold = { ...to, events, partitions };
    await runToEnd("projections-fold.ts", { ...fold, name: "none", task: "fill" });
    const found = { perS: [] as number[], ratio: [] as number[], floor: [] as number[], cpu: [] as number[] };
    let voids = 0;
    for (let round = 0; round < rounds; round++) {
      const before = await floorNow();
      const cpuBefore = bench.server.cpu();
      const { perS } = await runToEnd("projections-fold.ts", {
        ...fold,
        ...{ name: `fold_${partitions}_${round}`, task: "fold" },
      });
      found.cpu.push(((bench.server.cpu() - cpuBefore) / events) * 1e6);
      const after = await floorNow();
      if (Math.abs(before - after) / ((before + after) / 2) > driftMax) voids++;
      found.perS.push(perS!);
      found.floor.push((before + after) / 2);
      found.ratio.push((2 * perS!) / (before + after));
    }
    console.log(
      `${engine}, one worker, ${partitions} partition${partitions > 1 ? "s" : ""}:
  ${shown(found.perS, 0)} events/s (target >= 20000), floor ${shown(found.floor, 0)}/s, ratio ${shown(found.ratio, 2)}, server CPU ${shown(found.cpu, 0)} us an event${drifted(voids)}`,
    );
  }
  await measureRebuild(engine, to);
  const waited = { ...to, events: waiters, partitions: 1, name: "waited", task: "wait" };
  const took = [];
  for (let round = 0; round < rounds; round++)
    took.push((await runToEnd("projections-fold.ts", waited)).seconds! * 1_000);
  console.log(`${engine}, ${waiters} waits answered by one save: ${shown(took, 0)} ms after the emit`);
  await bench.stop();
}

/** Emits without and with a rebuild under way, in turns; the projection is folded by one worker all the time. */
async function measureRebuild(engine: string, to: { url: string; key: string }): Promise<void> {
  const name = "rebuilt";
  const fold = { ...to, events, partitions: 50, name };
  const worker = await startProgram("projections-fold.ts", { ...fold, task: "follow" }, { first: "ready" });
  const load = { ...to, callers: 64, batch: 1, rate: 0, event: "bench.projected50", customers: 50 };
  const emit = async () => {
    const sent = await runToEnd("load.ts", { ...load, seconds: emitSeconds });
    return sent.accepted! / sent.seconds!;
  };
  const found = {
    without: [] as number[],
    during: [] as number[],
    share: [] as number[],
    rebuilt: [] as number[],
  };
  await emit();
  for (let round = 0; round < rounds; round++) {
    const before = await emit();
    const rebuilding = runToEnd("projections-fold.ts", { ...fold, task: "rebuild" });
    const during = await emit();
    const { perS } = await rebuilding;
    const after = await emit();
    found.without.push((before + after) / 2);
    found.during.push(during);
    found.share.push((during / ((before + after) / 2)) * 100);
    found.rebuilt.push(perS!);
  }
  await worker.stop();
  console.log(
    `${engine}, emits (64 callers) beside a rebuild side by side:
  ${shown(found.during, 0)}/s, without it ${shown(found.without, 0)}/s, share ${shown(found.share, 0)} % (target >= 85); the rebuild folds ${shown(found.rebuilt, 0)} events/s`,
  );
}

// Each request that waits has a connection of its own.
process.env.BUN_CONFIG_MAX_HTTP_REQUESTS = "2000";
const wants = (engine: string) => given.engine === undefined || given.engine === engine;
const postgres = wants("postgres") ? await startPostgres() : undefined;
const folder = await mkdtemp(join(tmpdir(), "svc-floor-"));
console.log(`load of the machine at the start: ${loadavg()[0]!.toFixed(1)}`);
try {
  if (postgres) {
    const floor = { databaseUrl: await postgres.createDatabase() };
    await measure("postgres", floor, await postgres.createDatabase());
  }
  if (wants("libsql")) await measure("libsql", { file: join(folder, "floor.db") });
  console.log(`load of the machine at the end: ${loadavg()[0]!.toFixed(1)}`);
} finally {
  await stopAll();
  await postgres?.stop();
  await rm(folder, { recursive: true, force: true });
}
process.exit(0);
