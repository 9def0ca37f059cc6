/**
 * `bun run bench:parked [--engine postgres|libsql] [--count 2000]`: `count` sleeping and `count` waiting runs on one node.
 * Rates of the first and the last loads (runs/s until all of it is parked), memory of the server for each parked run
 * (bytes), lateness of short sleeps and of 10,000 runs due in one moment (ms), and emits that start nothing: on an empty
 * server, beside the parked, and while the awaited event comes, in turns.
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
const turns = 5;
const kinds = ["sleep", "wait"] as const;

const residentBytes = (pid: number) =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))![1]) * 1024;

const load = ({ url, key }: Bench, event: string, seconds: number, more: object = {}) =>
  runToEnd("load.ts", { url, key, callers: 64, batch: 1, rate: 0, seconds, event, ...more });

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

/** Runs of a load that slept, by how late each woke, sorted. */
async function lateness(bench: Bench, sent: Record<string, number>, withinMs: number): Promise<number[]> {
  const late: number[] = [];
  for (const endAt = performance.now() + withinMs; late.length < sent.accepted!; await Bun.sleep(100)) {
    late.push(...(await bench.worker.tell<Told>()).lateness);
    if (performance.now() > endAt) throw new Error(`${sent.accepted} slept, ${late.length} woke`);
  }
  return late.sort((a, b) => a - b);
}

const naps = async (bench: Bench) => lateness(bench, await load(bench, "bench.nap", 4, { rate: 50 }), 15_000);

/** Ten thousand in batches of 100, early in a span of 20 s: see the worker. */
async function together(bench: Bench): Promise<number[]> {
  const spanMs = 20_000;
  await Bun.sleep(spanMs - (Date.now() % spanMs) + 100);
  const sent = await load(bench, "bench.together", 4, { rate: 25, batch: 100, callers: 8 });
  return lateness(bench, sent, 3 * spanMs);
}

const emitsPerS = async (bench: Bench) => {
  const sent = await load(bench, "bench.nobody", 2);
  return sent.accepted! / sent.seconds!;
};

/** The same while the event that all the waiting wait for is emitted 50 times a second, each time for none of them. */
async function besideSignals(bench: Bench, event: string): Promise<number> {
  const [rate] = await Promise.all([emitsPerS(bench), load(bench, event, 2.5, { rate: 50, callers: 4 })]);
  return rate;
}

async function measure(engine: string, bench: Bench, empty: Bench): Promise<void> {
  const say = (what: string, values: number | number[]) => {
    const each = [values].flat();
    const spread = each.length > 1 ? `   ${each.map((one) => one.toFixed(0)).join(" ")}` : "";
    console.log(`${engine.padEnd(9)} ${what.padEnd(52)} ${median(each).toFixed(1).padStart(10)}${spread}`);
  };
  // What is compiled on the first runs is neither rate nor memory of what is parked.
  for (const kind of kinds) await park(bench, `bench.${kind}`);
  const before = residentBytes(bench.server.pid);
  let all = 0;
  for (const kind of kinds) {
    const rates: number[] = [];
    for (let parked = 0; parked < count || rates.length < 6; ) {
      const one = await park(bench, `bench.${kind}`);
      parked += one.parked;
      all += one.parked;
      rates.push(one.perS);
    }
    say(`${kind}: first loads, runs/s`, rates.slice(0, 3));
    say(`${kind}: last loads, runs/s`, rates.slice(-3));
  }
  say("runs parked", all);
  say("server memory for each, bytes", (residentBytes(bench.server.pid) - before) / all);
  const late = await naps(bench);
  say("wake-up lateness at 50/s, p50 ms", percentile(late, 0.5));
  say("wake-up lateness at 50/s, p95 ms", percentile(late, 0.95));
  const woken = await together(bench);
  say("due in one moment", woken.length);
  say("the last of them went on after, ms", woken.at(-1)!);
  // Taking turns, as the machine is not the same a minute later.
  const alone: number[] = [];
  const beside: number[] = [];
  const none: number[] = [];
  const signals: number[] = [];
  for (let turn = 0; turn < turns; turn++) {
    alone.push(await emitsPerS(empty));
    beside.push(await emitsPerS(bench));
    none.push(await besideSignals(bench, "bench.else"));
    signals.push(await besideSignals(bench, "bench.signal"));
  }
  say("other events on an empty server, emits/s", alone);
  say("other events beside the parked, emits/s", beside);
  say("  and 50/s of a name nobody waits for", none);
  say("  and 50/s of the name that is waited for", signals);
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
