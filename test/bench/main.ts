/**
 * `bun run bench [--engine postgres|libsql] [--only runs|steady|latency|one|callers|batches] [--rounds 3] [--seconds 5]`
 *
 * Every figure stands between two floors taken in the same round (floor, run, floor): single-row commits with 64 callers.
 * A round whose floors differ by more than 15 % is void and repeated once. Medians over the rounds.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startPostgres } from "../support/postgres.ts";
import { type Bench, runToEnd, startBench, stopAll, treeCpu } from "./processes.ts";

type Engine = "postgres" | "libsql";
type Figures = Record<string, number>;

const option = (name: string, fallback: string) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : (process.argv[at + 1] ?? fallback);
};
const rounds = Number(option("rounds", "3"));
const seconds = Number(option("seconds", "5"));
const onlyEngine = option("engine", "");
const onlyScenario = option("only", "");
const floorSeconds = 2;
const driftMax = 0.15;

interface Place {
  engine: Engine;
  bench: Bench;
  postgresPid: number | undefined;
  floor: () => Promise<number>;
}

/** What the lists of targets call good; `of` says whether a figure must be at least or at most that. */
interface Target {
  figure: string;
  of: "least" | "most";
  value: Record<Engine, number | undefined>;
}

interface Scenario {
  name: string;
  about: string;
  run: (place: Place) => Promise<Figures>;
  /** The figure that is put in relation to the floor. */
  relative?: string;
  targets: readonly Target[];
}

const both = (value: number) => ({ postgres: value, libsql: value });
const load = (place: Place, more: object) =>
  runToEnd("load.ts", {
    url: place.bench.url,
    key: place.bench.key,
    callers: 64,
    seconds,
    rate: 0,
    batch: 1,
    event: "bench.run",
    ...more,
  });

/** Load on the function of three steps until every run is done, with the CPU of each process meanwhile. */
async function measured(place: Place, more: object): Promise<Figures> {
  const { server, worker } = place.bench;
  await Promise.all([server.tell(), worker.tell()]);
  const cpu = () => ({ server: server.cpu(), worker: worker.cpu(), postgres: treeCpu(place.postgresPid) });
  const before = cpu();
  const startedAt = performance.now();
  const sent = await load(place, more);
  let done = 0;
  let latencies: Figures = {};
  for (let tries = 0; done < sent.accepted! && tries < 300; tries++) {
    const told = await worker.tell();
    done += told.done!;
    if (told.done! > 0 && tries === 0) latencies = told;
    if (done < sent.accepted!) await Bun.sleep(50);
  }
  const tookS = (performance.now() - startedAt) / 1000;
  const after = cpu();
  const lag = await server.tell();
  if (done !== sent.accepted) throw new Error(`${sent.accepted} runs were accepted, ${done} completed`);
  const per1000 = (name: keyof typeof after) => ((after[name] - before[name]) / done) * 1000;
  return {
    runsPerS: done / tookS,
    serverCpuS: per1000("server"),
    workerCpuS: per1000("worker"),
    postgresCpuS: per1000("postgres"),
    p50: latencies.p50 ?? 0,
    p95: latencies.p95 ?? 0,
    lagP99: lag.p99!,
    refused: sent.refused!,
  };
}

async function accepting(place: Place, more: object): Promise<Figures> {
  const sent = await load(place, { event: "bench.nobody", ...more });
  return { eventsPerS: sent.accepted! / sent.seconds!, refused: sent.refused! };
}

const scenarios: readonly Scenario[] = [
  {
    name: "runs",
    about: "durable runs of three steps, 64 callers, as many as go",
    run: (place) => measured(place, {}),
    relative: "runsPerS",
    targets: [
      { figure: "ratio", of: "least", value: { postgres: 0.25, libsql: 0.7 } },
      { figure: "lagP99", of: "most", value: both(10) },
    ],
  },
  {
    name: "steady",
    about: "800 runs/s; CPU seconds for 1,000 runs",
    run: (place) => measured(place, { rate: 800, seconds: Math.max(seconds, 6) }),
    targets: [
      { figure: "serverCpuS", of: "most", value: both(0.4) },
      { figure: "workerCpuS", of: "most", value: both(0.35) },
      { figure: "postgresCpuS", of: "most", value: { postgres: 0.2, libsql: undefined } },
      { figure: "lagP99", of: "most", value: both(10) },
    ],
  },
  {
    name: "latency",
    about: "20 runs/s; trigger to last step, ms",
    run: (place) => measured(place, { rate: 20, callers: 8, seconds: Math.max(seconds, 6) }),
    targets: [
      { figure: "p50", of: "most", value: both(8) },
      { figure: "p95", of: "most", value: both(15) },
    ],
  },
  {
    name: "one",
    about: "events, one caller",
    run: (place) => accepting(place, { callers: 1 }),
    relative: "eventsPerS",
    targets: [],
  },
  {
    name: "callers",
    about: "events, 64 callers",
    run: (place) => accepting(place, {}),
    relative: "eventsPerS",
    targets: [{ figure: "ratio", of: "least", value: both(0.7) }],
  },
  {
    name: "batches",
    about: "events in batches of 100, 8 callers",
    run: (place) => accepting(place, { callers: 8, batch: 100 }),
    relative: "eventsPerS",
    targets: [{ figure: "ratio", of: "least", value: both(3) }],
  },
];

const median = (values: readonly number[]) =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;

/** One round between two floors; undefined when the machine changed its speed meanwhile. */
async function round(place: Place, scenario: Scenario): Promise<Figures | undefined> {
  const before = await place.floor();
  const figures = await scenario.run(place);
  const after = await place.floor();
  const floor = (before + after) / 2;
  const relative = scenario.relative === undefined ? {} : { ratio: figures[scenario.relative]! / floor };
  if (Math.abs(before - after) / floor > driftMax) return undefined;
  return { ...figures, ...relative, floor };
}

async function scenarioOf(place: Place, scenario: Scenario): Promise<void> {
  const kept: Figures[] = [];
  let voids = 0;
  for (let number = 0; number < rounds; number++) {
    const first = await round(place, scenario);
    const figures = first ?? (await round(place, scenario));
    voids += (first ? 0 : 1) + (figures ? 0 : 1);
    if (figures) kept.push(figures);
  }
  const names = Object.keys(kept[0] ?? {});
  const medians = Object.fromEntries(
    names.map((name) => [name, median(kept.map((figures) => figures[name]!))]),
  );
  const shown = names.map((name) => {
    const target = scenario.targets.find((one) => one.figure === name);
    const wanted = target?.value[place.engine];
    const value = medians[name]!;
    const text = value >= 100 ? value.toFixed(0) : value.toFixed(2);
    if (target === undefined || wanted === undefined) return `${name} ${text}`;
    const good = target.of === "least" ? value >= wanted : value <= wanted;
    return `${name} ${text} (${target.of === "least" ? ">=" : "<="} ${wanted}: ${good ? "yes" : "NO"})`;
  });
  const note = voids > 0 ? `, ${voids} void rounds` : "";
  console.log(
    `${place.engine.padEnd(8)}  ${scenario.about} [${kept.length} rounds${note}]\n          ${shown.join("  ")}`,
  );
  console.log(
    JSON.stringify({ engine: place.engine, scenario: scenario.name, rounds: kept.length, ...medians }),
  );
}

async function benchOf(engine: Engine): Promise<void> {
  const postgres = engine === "postgres" ? await startPostgres() : undefined;
  const folder = await mkdtemp(join(tmpdir(), "svc-floor-"));
  const floorUrl = await postgres?.createDatabase();
  const floor = async () => {
    const place = floorUrl === undefined ? { file: join(folder, "floor.db") } : { databaseUrl: floorUrl };
    return (await runToEnd("floor.ts", { ...place, seconds: floorSeconds })).perS!;
  };
  const bench = await startBench(await postgres?.createDatabase());
  const place: Place = { engine, bench, postgresPid: postgres?.pid(), floor };
  try {
    for (const scenario of scenarios)
      if (onlyScenario === "" || onlyScenario === scenario.name) await scenarioOf(place, scenario);
  } finally {
    await bench.stop();
    await postgres?.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

process.on("SIGINT", () => void stopAll().then(() => process.exit(130)));
try {
  for (const engine of ["postgres", "libsql"] as const)
    if (onlyEngine === "" || onlyEngine === engine) await benchOf(engine);
} finally {
  await stopAll();
}
process.exit(0);
