import { existsSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { engineVariable } from "./engines.ts";
import { type ProcessRun, secondsOf } from "./junit.ts";
import type { Lane } from "./lanes.ts";
import { type NatsServer, startNats } from "./nats.ts";
import { type PostgresServer, startPostgres } from "./postgres.ts";
import { type Batch, keyOf } from "./schedule.ts";

export interface LaneRun {
  lane: Lane;
  runs: ProcessRun[];
  /** Of its processes, as if they had run one after the other. */
  seconds: number;
  /** Of its test processes and what they waited for. */
  computedSeconds: number;
  /** Of its PostgreSQL. */
  storedSeconds: number;
  times: Record<string, readonly [number, number]>;
}

export interface LaneOptions {
  root: string;
  /** Where reports and what the processes say are kept for the time of the run. */
  folder: string;
  /** Further arguments of `bun test`. */
  extra: readonly string[];
}

/**
 * What a lane can do without that claims nothing about power cuts. Tables are counted when a test asks for it: at any other moment
 * a plan would be judged by chance, and `operations/hot-plans` judges plans beneath whatever was counted.
 */
const fastPostgres = { fsync: "off", full_page_writes: "off", autovacuum: "off" };
const ticksASecond = 100;

/** What a process and those that it waited for have computed, in seconds; 0 of one that has ended. */
function computedBy(pid: number): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)!.split(" ");
    return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / ticksASecond;
  } catch {
    return 0;
  }
}

/** A lane with a PostgreSQL and a NATS of its own, which the first of its batches starts. */
export class OpenLane {
  readonly done: LaneRun;
  readonly #options: LaneOptions;
  #servers: Promise<[PostgresServer, NatsServer]> | undefined;
  #begun = 0;

  constructor(lane: Lane, options: LaneOptions) {
    this.#options = options;
    this.done = { lane, runs: [], seconds: 0, computedSeconds: 0, storedSeconds: 0, times: {} };
  }

  /** Runs the files of a batch in one process, and prints what it said when it ends. */
  async run({ engine, files }: Batch): Promise<void> {
    const { lane } = this.done;
    const { root, folder, extra } = this.#options;
    this.#servers ??= Promise.all([startPostgres(lane.fsync ? {} : { settings: fastPostgres }), startNats()]);
    const name = `${lane.name}-${++this.#begun}`;
    const [postgres, nats] = await this.#servers;
    const report = join(folder, `${name}.xml`);
    // To a file and not to a pipe: what a test left running may hold a pipe open.
    const said = join(folder, `${name}.log`);
    const { [engineVariable]: _, ...environment } = process.env;
    const places = { SVC_TEST_POSTGRES_URL: postgres.url, SVC_TEST_NATS_URL: nats.url };
    const startedAt = performance.now();
    const child = Bun.spawn(
      [
        process.execPath,
        "test",
        // Of tests and hooks that set none: beside others a second of work takes several.
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
    const seconds = (performance.now() - startedAt) / 1_000;
    const about = engine ? `${name} (${engine})` : name;
    console.log(`\n=== ${about}, ${seconds.toFixed(1)} s\n${await readFile(said, "utf8").catch(() => "")}`);
    const xml = existsSync(report) ? await readFile(report, "utf8") : "";
    const computed = Number(child.resourceUsage()?.cpuTime.total ?? 0) / 1e6;
    this.done.runs.push({ about, files, exit, xml });
    this.done.seconds += seconds;
    this.done.computedSeconds += computed;
    const took = secondsOf(xml);
    const sum = [...took.values()].reduce((all, one) => all + one, 0);
    // A share of what the process computed, by the file's share of its time.
    for (const [file, own] of took)
      this.done.times[keyOf({ lane: lane.name, file, ...(engine && { engine }) })] = [
        own,
        (computed * own) / sum,
      ];
  }

  async close(): Promise<void> {
    const [postgres, nats] = (await this.#servers?.catch(() => undefined)) ?? [];
    // Backends that are connected still are in no sum yet: the servers of tests are closed by now.
    if (postgres) this.done.storedSeconds = computedBy(postgres.pid());
    await Promise.all([postgres?.stop(), nats?.stop()]);
  }
}
