/**
 * `bun run bench:parked [--engine postgres|libsql] [--count 2000]`: `count` sleeping and `count` waiting runs on one node.
 * Rates of the first and the last load (runs/s until all of it is parked), memory of the server for each parked run
 * (bytes), lateness of short sleeps (ms), and emits that start nothing beside
 * those on an empty server, in turns.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { startPostgres } from "../support/postgres.ts";
import { median, percentile } from "./figures.ts";
import { type Bench, runToEnd, startBench, stopAll } from "./processes.ts";

const { values: given } = parseArgs({
  options: { engine: { type: "string" }, count: { type: "string", default: "2000" } },
});
const count = Number(given.count);
if (!(count >= 100 && count <= 200_000)) throw new Error("--count is from 100 to 200000");
const stillMsMax = 10_000;
const turns = 3;
const kinds = ["sleep", "wait"] as const;

const residentBytes = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))![1]) * 1024;

const load = ({ url, key }: Bench, event: string, seconds: number, rate = 0) =>
  runToEnd("load.ts", { url, key, callers: 64, batch: 1, seconds, rate, event });

interface Told {
  parked: number;
  lateness: number[];
}

/** One load until the worker has seen all of it; answers how many, and how many a second. */
async function park(bench: Bench, event: string): Promise<{ parked: number; perS: number }> {
  await bench.worker.tell<Told>();
  const sent = await load(bench, event, 2);
  let parked = 0;
  for (let movedAt = performance.now(); parked < sent.accepted!; await Bun.sleep(20)) {
    const told = await bench.worker.tell<Told>();
    parked += told.parked;
    if (told.parked > 0) movedAt = performance.now();
    if (performance.now() - movedAt > stillMsMax)
      throw new Error(`${sent.accepted} accepted, ${parked} parked`);
  }
  const seconds = (performance.timeOrigin + performance.now() - sent.startedAt!) / 1000;
  return { parked, perS: parked / seconds };
}

async function lateness(bench: Bench): Promise<number[]> {
  await bench.worker.tell<Told>();
  const sent = await load(bench, "bench.nap", 4, 50);
  const late: number[] = [];
  for (const endAt = performance.now() + 15_000; late.length < sent.accepted!; await Bun.sleep(100)) {
    late.push(...(await bench.worker.tell<Told>()).lateness);
    if (performance.now() > endAt) throw new Error(`${sent.accepted} naps, ${late.length} woke`);
  }
  return late.sort((a, b) => a - b);
}

const emitsPerS = async (bench: Bench) => {
  const sent = await load(bench, "bench.nobody", 2);
  return sent.accepted! / sent.seconds!;
};

async function measure(engine: string, bench: Bench, empty: Bench): Promise<void> {
  const say = (what: string, value: number) =>
    console.log(`${engine.padEnd(9)} ${what.padEnd(44)} ${value.toFixed(1).padStart(10)}`);
  // What is compiled on the first runs is neither rate nor memory of what is parked.
  for (const kind of kinds) await park(bench, `bench.${kind}`);
  const before = residentBytes(bench.server.pid);
  let all = 0;
  for (const kind of kinds) {
    const rates: number[] = [];
    for (let parked = 0; parked < count || rates.length < 2; ) {
      const one = await park(bench, `bench.${kind}`);
      parked += one.parked;
      all += one.parked;
      rates.push(one.perS);
    }
    say(`${kind}: first load, runs/s`, rates[0]!);
    say(`${kind}: last load, runs/s`, rates.at(-1)!);
  }
  say("runs parked", all);
  say("server memory for each, bytes", (residentBytes(bench.server.pid) - before) / all);
  const late = await lateness(bench);
  say("wake-up lateness at 50/s, p50 ms", percentile(late, 0.5));
  say("wake-up lateness at 50/s, p95 ms", percentile(late, 0.95));
  // Taking turns, as the machine is not the same a minute later.
  const beside: number[] = [];
  const alone: number[] = [await emitsPerS(empty)];
  for (let turn = 0; turn < turns; turn++) {
    beside.push(await emitsPerS(bench));
    alone.push(await emitsPerS(empty));
  }
  say("other events on an empty server, emits/s", median(alone));
  say("  least", Math.min(...alone));
  say("  most", Math.max(...alone));
  say("other events beside the parked, emits/s", median(beside));
  say("  least", Math.min(...beside));
  say("  most", Math.max(...beside));
}

let failed = false;
for (const engine of ["postgres", "libsql"]) {
  if (given.engine !== undefined && given.engine !== engine) continue;
  const postgres = engine === "postgres" ? await startPostgres() : undefined;
  try {
    const bench = await startBench(await postgres?.createDatabase(), { worker: "parked-worker.ts" });
    const empty = await startBench(await postgres?.createDatabase(), { alone: true });
    await measure(engine, bench, empty);
    await empty.stop();
    await bench.stop();
  } catch (error) {
    failed = true;
    console.error(`${engine}:`, error);
  } finally {
    await stopAll();
    await postgres?.stop();
  }
}
process.exit(failed ? 1 : 0);
