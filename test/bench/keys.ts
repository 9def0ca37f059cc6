/**
 * `bun run bench:keys [--engine postgres|libsql] [--rounds 5] [--queued 50000]`: what a limit on a key of 1,000 values costs
 * (CPU seconds of the server and PostgreSQL for 1,000 runs at 400 runs/s, in relation to the same runs without it right
 * before and after), and how long runs of a light customer wait for their first execution (ms) while a heavy one keeps
 * `queued` runs waiting for the same worker.
 */
import { parseArgs } from "node:util";
import { startPostgres } from "../support/postgres.ts";
import { type Engine, median, percentile } from "./figures.ts";
import { type Bench, runToEnd, startBench, stopAll } from "./processes.ts";
import { type Place, runs } from "./scenarios.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    rounds: { type: "string", default: "5" },
    queued: { type: "string", default: "50000" },
  },
});
const rounds = Number(given.rounds);
const queued = Number(given.queued);
if (!(rounds >= 1 && rounds <= 20)) throw new Error("--rounds is from 1 to 20");
if (!(queued >= 0 && queued <= 200_000)) throw new Error("--queued is from 0 to 200000");

async function costOf(place: Place, event: string): Promise<number> {
  const figures = await runs(place, { event, rate: 400, seconds: 5, customers: 1_000 });
  return figures.serverCpuS! + (figures.postgresCpuS ?? 0);
}

async function costOfKeys(place: Place): Promise<void> {
  // What is compiled on the first runs, and the thousand rows of the keys, are not what is measured.
  for (const event of ["bench.run", "bench.keyed"]) await costOf(place, event);
  const ratios: number[] = [];
  let before = await costOf(place, "bench.run");
  for (let round = 0; round < rounds; round++) {
    const keyed = await costOf(place, "bench.keyed");
    const after = await costOf(place, "bench.run");
    ratios.push((2 * keyed) / (before + after));
    before = after;
  }
  const each = ratios.map((ratio) => ratio.toFixed(2)).join(" ");
  console.log(
    `${place.engine}: CPU of a run with a key to one without (1.15): ${median(ratios).toFixed(2)}   ${each}`,
  );
}

interface Told {
  heavy: number;
  lightWaits: number[];
}

async function waitsOfTheLight(engine: Engine, { url, key, worker }: Bench): Promise<void> {
  const load = (event: string, firstCustomer: number, seconds: number, rate: number, batch: number) =>
    runToEnd("load.ts", { url, key, event, firstCustomer, seconds, rate, batch, callers: 8 });
  let sent = 0;
  let begun = 0;
  const waits: number[] = [];
  const look = async () => {
    const told = await worker.tell<Told>();
    begun += told.heavy;
    waits.push(...told.lightWaits);
  };
  const heavy = async (most: number) => {
    await look();
    while (sent - begun < most) {
      sent += (await load("bench.heavy", 1, 2, 50, 100)).accepted!;
      await look();
    }
  };
  await heavy(queued);
  waits.length = 0;
  let light = 0;
  for (let turn = 0; turn < 4; turn++) {
    light += (await load("bench.light", 2, 5, 10, 1)).accepted!;
    await heavy(queued);
  }
  for (let tries = 0; waits.length < light && tries < 50; tries++) {
    await Bun.sleep(100);
    await look();
  }
  if (waits.length < light) throw new Error(`${light} light runs were accepted, ${waits.length} begun`);
  waits.sort((a, b) => a - b);
  const at = (share: number) => percentile(waits, share).toFixed(0);
  console.log(
    `${engine}: ${light} light runs beside ${sent - begun} heavy ones that wait: p50 ${at(0.5)} ms, p95 ${at(0.95)} ms (250), most ${at(1)} ms`,
  );
}

let failed = false;
for (const engine of ["postgres", "libsql"] as const) {
  if (given.engine !== undefined && given.engine !== engine) continue;
  const postgres = engine === "postgres" ? await startPostgres() : undefined;
  try {
    const bench = await startBench(await postgres?.createDatabase());
    await costOfKeys({ engine, bench, postgresPid: postgres?.pid(), seconds: undefined });
    await bench.stop();
    const shared = await startBench(await postgres?.createDatabase(), { worker: "fair-worker.ts" });
    await waitsOfTheLight(engine, shared);
    await shared.stop();
  } catch (error) {
    failed = true;
    console.error(`${engine}:`, error);
  } finally {
    await stopAll();
    await postgres?.stop();
  }
}
process.exit(failed ? 1 : 0);
