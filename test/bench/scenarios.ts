import { type Engine, type Figures, median, percentile, type Target } from "./figures.ts";
import { growthOf, sizeOf } from "./growth.ts";
import { type Bench, machineCpu, type Runtime, runOnNode, runToEnd, treeCpu } from "./processes.ts";

export interface Place {
  engine: Engine;
  bench: Bench;
  postgresPid: number | undefined;
  /** `--seconds`: how long a scenario loads; undefined leaves each its own. */
  seconds: number | undefined;
}

export interface Scenario {
  name: string;
  /** Of `--only`; a letter stands for all that share it. */
  letter: string;
  about: string;
  /** A worker of its own, with strict steps, on this runtime. */
  strictOn?: Runtime;
  run: (place: Place) => Promise<Figures>;
  /** The figure that `ratio` puts in relation to the floor. */
  relative?: string;
  /** One caller: its rounds stand beside the floor of one caller, too. */
  isLone?: true;
  /** On a store with many ended runs, by a server that is started for each round; the strict ones have a start of their own. */
  grown?: true;
  targets: readonly Target[];
}

interface Load {
  callers?: number;
  seconds: number;
  rate?: number;
  batch?: number;
  customers?: number;
  event: string;
  /** By the SDK, on Node. */
  bySdk?: true;
}

const load = (place: Place, { seconds, bySdk, ...more }: Load) => {
  const { url, key } = place.bench;
  const usual = { callers: 64, rate: 0, batch: 1 };
  const options = { url, key, ...usual, ...more, seconds: place.seconds ?? seconds };
  return bySdk ? runOnNode("load-sdk.ts", options) : runToEnd("load.ts", options);
};

/** CPU seconds of every process that takes part, from here until asked. */
function cpuSince({ bench, postgresPid }: Place) {
  const look = () => ({
    server: bench.server.cpu(),
    worker: bench.worker.cpu(),
    postgres: treeCpu(postgresPid),
    own: process.cpuUsage(),
    machine: machineCpu(),
    at: performance.now(),
  });
  const before = look();
  return (count: number, loadCpuS: number): Figures => {
    const after = look();
    const own = after.own.user + after.own.system - before.own.user - before.own.system;
    const spent = (name: "server" | "worker" | "postgres" | "machine") => after[name] - before[name];
    const ours = spent("server") + spent("worker") + spent("postgres") + loadCpuS + own / 1e6;
    const per1000 = (cpuS: number) => (cpuS / count) * 1000;
    return {
      serverCpuS: per1000(spent("server")),
      workerCpuS: per1000(spent("worker")),
      ...(postgresPid !== undefined && { postgresCpuS: per1000(spent("postgres")) }),
      loadCpuS: per1000(loadCpuS),
      // Cores that the rest of the machine took, kernel threads included: the less, the more the figures are worth.
      elsewhereCores: (spent("machine") - ours) / ((after.at - before.at) / 1000),
    };
  };
}

const requireHeld = (sent: Figures) => {
  if (sent.broken! > 0) throw new Error(`the server hung up on ${sent.broken} callers`);
  return sent;
};

/** Slow is a figure, stuck is a failure: runs may take so long after the load, but not stand still for so long. */
const drainMsMax = 120_000;
const stillMsMax = 10_000;

/** Load on the function of three steps until the last run is acknowledged as completed. */
export async function runs(place: Place, wanted: Load): Promise<Figures> {
  const { server, worker } = place.bench;
  await Promise.all([server.tell(), worker.tell()]);
  const sizeBefore = await sizeOf(place.bench.store);
  const spent = cpuSince(place);
  const sent = requireHeld(await load(place, wanted));
  const latencies: number[] = [];
  let lastAt = 0;
  const drainAt = performance.now() + drainMsMax;
  let movedAt = performance.now();
  while (latencies.length < sent.accepted! && performance.now() < Math.min(drainAt, movedAt + stillMsMax)) {
    await Bun.sleep(50);
    const told = await worker.tell<{ lastAt: number; latencies: number[] }>();
    if (told.latencies.length > 0) movedAt = performance.now();
    for (const ms of told.latencies) latencies.push(ms);
    lastAt = told.lastAt;
  }
  const done = latencies.length;
  if (done !== sent.accepted) {
    const still = ((performance.now() - movedAt) / 1000).toFixed(1);
    throw new Error(`${sent.accepted} runs were accepted, ${done} completed, the last ${still} s ago`);
  }
  const cpu = spent(done, sent.cpuS!);
  const lag = await server.tell<{ p99: number; max: number }>();
  latencies.sort((a, b) => a - b);
  return {
    runsPerS: done / ((lastAt - sent.startedAt!) / 1000),
    p50: percentile(latencies, 0.5),
    p95: percentile(latencies, 0.95),
    p99: percentile(latencies, 0.99),
    ...cpu,
    lagP99: lag.p99,
    lagMax: lag.max,
    // How far completion fell behind acceptance.
    drainS: Math.max(0, (lastAt - sent.startedAt!) / 1000 - sent.seconds!),
    ...growthOf(sizeBefore, await sizeOf(place.bench.store), done),
    refused: sent.refused!,
    late: sent.late!,
    count: done,
  };
}

/** Events of which nothing is worked on. */
async function events(place: Place, wanted: Omit<Load, "event"> & { event?: string }): Promise<Figures> {
  const { server } = place.bench;
  await server.tell();
  const sizeBefore = await sizeOf(place.bench.store);
  const spent = cpuSince(place);
  const sent = requireHeld(await load(place, { event: "bench.nobody", ...wanted }));
  const { workerCpuS, ...cpu } = spent(sent.accepted!, sent.cpuS!);
  const lag = await server.tell<{ p99: number }>();
  const { accepted, seconds, p50, p95, p99, refused } = sent as Record<string, number>;
  return {
    eventsPerS: accepted! / seconds!,
    p50: p50!,
    p95: p95!,
    p99: p99!,
    ...cpu,
    lagP99: lag.p99,
    ...growthOf(sizeBefore, await sizeOf(place.bench.store), accepted!),
    refused: refused!,
    count: accepted!,
  };
}

/** Runs that wait for a worker, of a function that none serves. */
async function queue(place: Place): Promise<Figures> {
  const { url, key } = place.bench;
  const answer = await fetch(`${url}/svc.v1.SvcService/RegisterFunction`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify({ id: "bench-queued", triggers: [{ event: "bench.queued" }] }),
  });
  if (!answer.ok) throw new Error(await answer.text());
  return events(place, { event: "bench.queued", seconds: 5 });
}

/** The first repetition, and how the ones behind it differ. */
async function fromTheStart(place: Place, event: string): Promise<Figures> {
  const each: number[] = [];
  for (let number = 0; number < 4; number++) each.push((await runs(place, { event, seconds: 4 })).runsPerS!);
  const [first, ...later] = each;
  const usual = median(later);
  return {
    runsPerS: usual,
    firstPerS: first!,
    firstShare: first! / usual,
    slowestShare: Math.min(...later) / usual,
  };
}

const both = (value: number) => ({ postgres: value, libsql: value });
const event = "bench.run";

const strict = { event: "bench.strict" };

/** Each step is stored before the next one begins: five commits a run, one after the other. */
const strictScenarios = (strictOn: Runtime, letter: string): Scenario[] => [
  {
    ...{ name: `strict-${strictOn}`, letter, strictOn },
    about: `runs of three strict steps, ${strictOn} worker, 64 callers, as many as go`,
    run: (place) => runs(place, { ...strict, seconds: 6 }),
    relative: "runsPerS",
    targets: [{ figure: "ratio", of: "least", value: both(0.12) }],
  },
  {
    ...{ name: `strict-latency-${strictOn}`, letter, strictOn },
    about: `strict, ${strictOn} worker, 20 runs/s; from sending the emit to the ack of the last report, ms`,
    // The slowest hundredth of 200 runs would be two of them.
    run: (place) => runs(place, { ...strict, rate: 20, callers: 8, seconds: 30 }),
    targets: [
      { figure: "p50", of: "most", value: both(8) },
      { figure: "p95", of: "most", value: both(14) },
      { figure: "p99", of: "most", value: both(20) },
    ],
  },
  {
    ...{ name: `strict-steady-${strictOn}`, letter, strictOn },
    about: `strict, ${strictOn} worker, 800 runs/s; CPU seconds for 1,000 runs, ms`,
    run: (place) => runs(place, { ...strict, rate: 800, seconds: 8 }),
    targets: [
      { figure: "p50", of: "most", value: both(40) },
      { figure: "late", of: "most", value: both(10) },
      { figure: "drainS", of: "most", value: both(1) },
    ],
  },
];

export const scenarios: readonly Scenario[] = [
  {
    name: "runs",
    letter: "a",
    about: "durable runs of three steps, 64 callers, as many as go",
    run: (place) => runs(place, { event, seconds: 6 }),
    relative: "runsPerS",
    targets: [
      { figure: "ratio", of: "least", value: { postgres: 0.25, libsql: 0.7 } },
      { figure: "lagP99", of: "most", value: both(10) },
    ],
  },
  {
    name: "steady",
    letter: "b",
    about: "800 runs/s; CPU seconds for 1,000 runs, ms",
    run: (place) => runs(place, { event, rate: 800, seconds: 8 }),
    targets: [
      { figure: "serverCpuS", of: "most", value: { postgres: 0.3, libsql: 0.35 } },
      { figure: "workerCpuS", of: "most", value: both(0.15) },
      { figure: "postgresCpuS", of: "most", value: { postgres: 0.2, libsql: undefined } },
      { figure: "lagP99", of: "most", value: both(10) },
    ],
  },
  {
    name: "lines",
    letter: "b",
    about: "800 runs/s of which each writes ten lines; beside `steady`",
    run: (place) => runs(place, { event: "bench.lines", rate: 800, seconds: 8 }),
    targets: [],
  },
  {
    name: "latency",
    letter: "c",
    about: "20 runs/s; from sending the emit to the ack of the last report, ms",
    run: (place) => runs(place, { event, rate: 20, callers: 8, seconds: 10 }),
    targets: [
      { figure: "p50", of: "most", value: both(8) },
      { figure: "p95", of: "most", value: both(15) },
    ],
  },
  {
    name: "one",
    letter: "d",
    about: "events, one caller",
    isLone: true,
    run: (place) => events(place, { callers: 1, seconds: 5 }),
    relative: "eventsPerS",
    targets: [],
  },
  {
    name: "callers",
    letter: "d",
    about: "events, 64 callers",
    run: (place) => events(place, { seconds: 5 }),
    relative: "eventsPerS",
    targets: [{ figure: "ratio", of: "least", value: { postgres: 1.2, libsql: 1.3 } }],
  },
  {
    name: "program",
    letter: "d",
    about: "events, 64 callers in one program by the SDK on Node",
    run: (place) => events(place, { seconds: 5, bySdk: true }),
    relative: "eventsPerS",
    targets: [{ figure: "ratio", of: "least", value: both(1.5) }],
  },
  {
    name: "program-lone",
    letter: "d",
    about: "events, one caller by the SDK on Node",
    run: (place) => events(place, { callers: 1, seconds: 5, bySdk: true }),
    targets: [],
  },
  {
    name: "batches",
    letter: "d",
    about: "events in batches of 100, 8 callers",
    run: (place) => events(place, { callers: 8, batch: 100, seconds: 5 }),
    relative: "eventsPerS",
    targets: [{ figure: "ratio", of: "least", value: { postgres: 3, libsql: 4 } }],
  },
  {
    name: "queued",
    letter: "d",
    about: "events that queue a run which no worker takes, 64 callers",
    run: queue,
    relative: "eventsPerS",
    targets: [{ figure: "ratio", of: "least", value: both(0.8) }],
  },
  {
    name: "grown",
    letter: "g",
    about: "durable runs from the start of a server on a grown store, 64 callers, four times",
    grown: true,
    run: (place) => fromTheStart(place, event),
    relative: "runsPerS",
    targets: [{ figure: "firstShare", of: "least", value: both(0.85) }],
  },
  {
    name: "lone",
    letter: "g",
    about: "events on a grown store, one caller, ms",
    grown: true,
    isLone: true,
    run: (place) => events(place, { callers: 1, seconds: 5 }),
    targets: [
      { figure: "p50", of: "most", value: both(0.5) },
      { figure: "p99", of: "most", value: both(1.5) },
    ],
  },
  {
    name: "grown-strict",
    letter: "g",
    about: "strict runs from the start of a server on a grown store, Node worker, 64 callers, four times",
    grown: true,
    strictOn: "node",
    run: (place) => fromTheStart(place, strict.event),
    relative: "runsPerS",
    targets: [{ figure: "firstShare", of: "least", value: both(0.85) }],
  },
  ...strictScenarios("bun", "e"),
  ...strictScenarios("node", "n"),
];
