/**
 * `bun run bench:retention [--engine postgres|libsql] [--stored 3000000] [--rate 500] [--seconds 10]`
 *
 * Live runs beside the deletion of a third of what is stored, which is older than the rest. Windows before it, while it goes
 * on, and behind it; what each run then adds to the store says whether the room came back.
 */
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startPostgres } from "../support/postgres.ts";
import { removeFolder } from "../support/process.ts";
import { type Figures, median } from "./figures.ts";
import { grow } from "./grown.ts";
import { sizeOf } from "./growth.ts";
import { type BenchOptions, startBench, stopAll } from "./processes.ts";
import { runs } from "./scenarios.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string", default: "postgres" },
    stored: { type: "string", default: "3000000" },
    rate: { type: "string", default: "500" },
    seconds: { type: "string", default: "10" },
  },
});
const stored = Number(given.stored);
const old = Math.floor(stored / 3);
const rate = Number(given.rate);
const seconds = Number(given.seconds);
const windowsBefore = 3;
const windowsMax = 90;
/** PostgreSQL hands the room out again once autovacuum has been there. */
const windowsBehindMax = 12;
/** Of this time a quarter passes before the first look. */
const keptFor = "2m";
const timesMax = 2;

const postgres = given.engine === "postgres" ? await startPostgres() : undefined;
const databaseUrl = await postgres?.createDatabase();
const folder = await mkdtemp(join(tmpdir(), "svc-retention-"));
const file = join(folder, "svc.db");
const keyFile = join(folder, "key.json");

async function metric(url: string, key: string, line: string): Promise<number> {
  const answer = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${key}` } });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`/metrics: ${answer.status} ${text}`);
  return Number(
    text
      .split("\n")
      .find((one) => one.startsWith(line))
      ?.split(" ")
      .at(-1) ?? 0,
  );
}

interface Window extends Figures {
  /** Runs that expired within it. */
  gone: number;
}

/** A server with these settings, and windows of load on it for as long as `goesOn`. */
async function windowsOf(
  about: string,
  env: BenchOptions["env"] & object,
  goesOn: (seen: { expired: number; windows: readonly Window[] }) => boolean,
): Promise<Window[]> {
  const bench = await startBench(databaseUrl, {
    file,
    keyFile,
    env: { ...env, SVC_METRICS_ENABLED: "true" },
  });
  const place = { engine: postgres ? ("postgres" as const) : ("libsql" as const), bench, seconds };
  const load = () => runs({ ...place, postgresPid: postgres?.pid() }, { event: "bench.run", rate, seconds });
  const windows: Window[] = [];
  let expired = 0;
  try {
    // What is compiled on the first thousand runs is not what is measured.
    await load();
    for (let isOver = false; !isOver; ) {
      const seen = await load();
      const so = await metric(bench.url, bench.key, 'svc_expired_rows_total{what="runs"}');
      windows.push({ ...seen, gone: so - expired });
      expired = so;
      const bytes = (await sizeOf(bench.store)).stored;
      console.log(
        `${about}: p50 ${seen.p50!.toFixed(1)} p99 ${seen.p99!.toFixed(1)} ms at ${seen.runsPerS!.toFixed(0)} runs/s; ${expired} expired; ${(bytes / 1e9).toFixed(2)} GB, ${seen.storedKb!.toFixed(2)} kB a run`,
      );
      isOver = windows.length >= windowsMax || !goesOn({ expired, windows });
    }
  } finally {
    await bench.stop();
  }
  return windows;
}

try {
  const before = performance.now();
  await grow(databaseUrl === undefined ? { file } : { databaseUrl }, stored, old);
  console.log(`${stored} runs stored in ${((performance.now() - before) / 1_000).toFixed(0)} s`);
  const usual = await windowsOf(
    "before",
    { SVC_RUN_RETENTION: "30d" },
    ({ windows }) => windows.length < windowsBefore,
  );
  const all = await windowsOf("beside", { SVC_RUN_RETENTION: keptFor }, ({ expired }) => expired < old);
  const during = all.filter(({ gone }) => gone > 0);
  if (during.length === 0) throw new Error("nothing expired");
  const usualKb = median(usual.map(({ storedKb }) => storedKb!));
  /** A single window may have given back the end of a table. */
  const isBack = (windows: readonly Window[]) =>
    windows.length >= windowsBefore &&
    windows.slice(-windowsBefore).every(({ storedKb }) => storedKb! < usualKb / 2);
  const behind = await windowsOf(
    "behind",
    { SVC_RUN_RETENTION: "30d" },
    ({ windows }) => windows.length < windowsBehindMax && !isBack(windows),
  );
  const p99Of = (windows: readonly Window[]) => median(windows.map(({ p99 }) => p99!));
  const times = p99Of(during) / p99Of(usual);
  const worst = Math.max(...during.map(({ p99 }) => p99!)) / p99Of(usual);
  console.log(
    `p99 beside the deletion: ${times.toFixed(2)} times the usual by the median (target <= ${timesMax}), ${worst.toFixed(2)} in the worst window`,
  );
  console.log(
    isBack(behind)
      ? `new runs lie in the room of those deleted after ${behind.length * seconds} s`
      : `no new run lies in the room of those deleted within ${behind.length * seconds} s`,
  );
} finally {
  await stopAll();
  await postgres?.stop();
  await removeFolder(folder);
}
process.exit(0);
