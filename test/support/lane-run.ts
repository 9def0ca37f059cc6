import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { engineVariable } from "./engines.ts";
import type { ProcessRun } from "./junit.ts";
import { type Batch, batchesOf, type Lane, type Share } from "./lanes.ts";
import { startNats } from "./nats.ts";
import { startPostgres } from "./postgres.ts";

export interface LaneRun {
  lane: Lane;
  runs: ProcessRun[];
  seconds: number;
  /** Of its test processes and what they waited for; its own PostgreSQL and NATS are not in it. */
  computedSeconds: number;
}

export interface LaneOptions {
  root: string;
  /** Where reports and what the processes say are kept for the time of the run. */
  folder: string;
  /** Further arguments of `bun test`. */
  extra: readonly string[];
}

/** What a lane can do without that claims nothing about power cuts. */
const fastPostgres = { fsync: "off", full_page_writes: "off" };

/** All files of one lane, against a PostgreSQL and a NATS of its own; each process is told of when it ends. */
export async function runLane(lane: Lane, shares: readonly Share[], options: LaneOptions): Promise<LaneRun> {
  const startedAt = performance.now();
  const waiting = batchesOf(lane, shares);
  const done: LaneRun = { lane, runs: [], seconds: 0, computedSeconds: 0 };
  if (waiting.length === 0) return done;
  const [postgres, nats] = await Promise.all([
    startPostgres(lane.fsync ? {} : { settings: fastPostgres }),
    startNats(),
  ]);
  const places = { SVC_TEST_POSTGRES_URL: postgres.url, SVC_TEST_NATS_URL: nats.url };
  const count = waiting.length;
  const work = async () => {
    for (let batch = waiting.shift(); batch; batch = waiting.shift()) {
      const place = count - waiting.length;
      const { run, computedSeconds } = await runBatch(batch, `${lane.name}-${place}`, places, options);
      done.runs.push(run);
      done.computedSeconds += computedSeconds;
    }
  };
  try {
    await Promise.all(Array.from({ length: lane.width }, work));
  } finally {
    await Promise.all([postgres.stop(), nats.stop()]);
  }
  done.seconds = (performance.now() - startedAt) / 1_000;
  return done;
}

async function runBatch(
  { engine, files }: Batch,
  name: string,
  places: Record<string, string>,
  { root, folder, extra }: LaneOptions,
): Promise<{ run: ProcessRun; computedSeconds: number }> {
  const report = join(folder, `${name}.xml`);
  // To a file and not to a pipe: what a test left running may hold a pipe open.
  const said = join(folder, `${name}.log`);
  const { [engineVariable]: _, ...environment } = process.env;
  const child = Bun.spawn(
    [
      process.execPath,
      "test",
      // Of tests and hooks that set none: with six processes on two cores a second of work takes several.
      "--timeout=60000",
      "--reporter=junit",
      `--reporter-outfile=${report}`,
      ...extra,
      ...files.map((path) => `./${path}`),
    ],
    {
      cwd: root,
      env: { ...environment, ...places, ...(engine && { [engineVariable]: engine }) },
      stdio: ["ignore", Bun.file(said), Bun.file(said)],
    },
  );
  const exit = await child.exited;
  const about = engine ? `${name} (${engine})` : name;
  console.log(`\n=== ${about}\n${await readFile(said, "utf8").catch(() => "")}`);
  const xml = existsSync(report) ? await readFile(report, "utf8") : "";
  return {
    run: { about, files, exit, xml },
    computedSeconds: Number(child.resourceUsage()?.cpuTime.total ?? 0) / 1e6,
  };
}
