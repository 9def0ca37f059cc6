import { FlushPace } from "../../src/kit/combine-lane.ts";
import { combineLanes, combinePaceMs, flushItemsMax } from "../../src/kit/flush-queue.ts";
import { percentile } from "./figures.ts";
import { Disk, Pool, Timeline } from "./simulated-time.ts";

/** What things cost, in ms of one core unless it says otherwise. */
export interface Costs {
  /** Of a node for a run: its emit, its answer and its job, its report. */
  emitMs: number;
  handMs: number;
  reportMs: number;
  /** Of a node for each flush, and for each hint that it hears. */
  nodeFlushMs: number;
  hintMs: number;
  /** Of PostgreSQL for each flush, and for each run in one of emits and in one of reports. */
  storeFlushMs: number;
  storeEmitMs: number;
  storeReportMs: number;
  /** One sync of the disk, which all commits share that wait for it. */
  syncMs: number;
  /** Of a worker for a run, and the way to it and back. */
  workerMs: number;
  wayMs: number;
  /** Of NATS for one hint to one node. */
  busMs: number;
}

export interface Cluster {
  nodes: number;
  postgresCores: number;
  environments: number;
  /** The share of all runs that the busiest environment has; the others have the rest in equal parts. */
  hottest: number;
  costs: Costs;
  /** Cores that nodes, workers and PostgreSQL share, as on the machine of the bench; without it each has its own. */
  sharedCores?: number;
}

export interface Load {
  runsPerS: number;
  seconds: number;
  seed: number;
  /** They come one after the other in equal times, as those of the bench; else whenever chance has it. */
  isEven?: boolean;
}

export interface Outcome {
  offered: number;
  /** Runs that ended within the time, of those that came. */
  completed: number;
  /** From the emit to the end of the run, and to the answer of the emit. */
  p50Ms: number;
  p99Ms: number;
  ackP50Ms: number;
  /** Busy time of each resource, as a share of what it has. */
  utilisation: Record<string, number>;
  /** The resource that is busiest. */
  first: string;
  flushes: number;
  /** What the resources worked in all, and what the runs and flushes cost: equal once all is done. */
  workedMs: number;
  askedMs: number;
  /** Flushes that began while their lane had one under way, or a pause. */
  earlyFlushes: number;
  /** Runs that ended in all, those behind the time too. */
  ended: number;
  /** The shortest time from the emit of a run to its answer. */
  leastWaitMs: number;
}

interface Run {
  environment: number;
  cameAt: number;
}

interface Lane {
  kind: "emit" | "report";
  node: Pool;
  waiting: Run[];
  isFlushing: boolean;
  pace: FlushPace;
  pausedUntil: number;
}

/** Numbers from 0 to 1 by a seed: mulberry32. */
export function chanceOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

class Simulation {
  readonly #time = new Timeline();
  readonly #chance: () => number;
  readonly #cluster: Cluster;
  readonly #load: Load;
  readonly #nodes: Pool[];
  readonly #lanes: Record<"emit" | "report", Lane>[][];
  readonly #heads: Pool[];
  readonly #postgres: Pool;
  readonly #workers: Pool;
  readonly #bus: Pool;
  readonly #disk: Disk;
  readonly #shared: Pool[];
  readonly #runMs: number[] = [];
  readonly #ackMs: number[] = [];
  #offered = 0;
  #completed = 0;
  #flushes = 0;
  #askedMs = 0;
  #earlyFlushes = 0;

  constructor(cluster: Cluster, load: Load) {
    const { nodes, postgresCores, environments, costs, sharedCores } = cluster;
    this.#cluster = cluster;
    this.#load = load;
    this.#chance = chanceOf(load.seed);
    const pool = (size: number) => new Pool(this.#time, size);
    this.#nodes = Array.from({ length: nodes }, () => pool(1));
    const lane = (kind: Lane["kind"], node: Pool): Lane => ({
      ...{ kind, node, waiting: [], isFlushing: false, pace: new FlushPace(), pausedUntil: -1 },
    });
    this.#lanes = this.#nodes.map((node) =>
      Array.from({ length: combineLanes }, () => ({
        emit: lane("emit", node),
        report: lane("report", node),
      })),
    );
    this.#heads = Array.from({ length: environments }, () => pool(1));
    this.#postgres = pool(postgresCores);
    this.#shared = sharedCores === undefined ? [] : [pool(sharedCores)];
    // On machines of their own there are as many as are needed.
    this.#workers = pool(sharedCores === undefined ? Number.POSITIVE_INFINITY : 1);
    this.#bus = pool(1);
    this.#disk = new Disk(this.#time, costs.syncMs);
  }

  outcome(): Outcome {
    const { seconds, runsPerS, isEven } = this.#load;
    const endMs = seconds * 1_000;
    const next = () => {
      const wait = ((isEven ? 1 : -Math.log(1 - this.#chance())) * 1_000) / runsPerS;
      this.#time.after(wait, () => {
        if (this.#time.now >= endMs) return;
        this.#arrive();
        next();
      });
    };
    next();
    this.#time.runUntil(endMs);
    const utilisation = this.#utilisation(endMs);
    const completed = this.#completed;
    this.#time.runUntil(Number.POSITIVE_INFINITY);
    const sorted = (values: number[]) => values.sort((a, b) => a - b);
    const [runMs, ackMs] = [sorted(this.#runMs), sorted(this.#ackMs)];
    const pools = [...this.#nodes, this.#postgres, this.#workers, this.#bus];
    return {
      offered: this.#offered,
      completed,
      ...{ p50Ms: percentile(runMs, 0.5), p99Ms: percentile(runMs, 0.99), ackP50Ms: percentile(ackMs, 0.5) },
      utilisation,
      first: Object.entries(utilisation).toSorted(([, a], [, b]) => b - a)[0]![0],
      flushes: this.#flushes,
      workedMs: pools.reduce((sum, { busyMs }) => sum + busyMs, 0),
      askedMs: this.#askedMs,
      earlyFlushes: this.#earlyFlushes,
      ended: this.#completed,
      leastWaitMs: ackMs[0] ?? 0,
    };
  }

  #utilisation(overMs: number): Record<string, number> {
    const shareOf = ({ size }: Pool, busyMs: number) => busyMs / size / overMs;
    const most = (pools: readonly Pool[]) =>
      Math.max(...pools.map((pool) => shareOf(pool, pool.heldUntil())));
    const nodes = this.#nodes.reduce((sum, pool) => sum + pool.heldUntil(), 0) / this.#nodes.length / overMs;
    return {
      "event loops of nodes": nodes,
      "cores of PostgreSQL": shareOf(this.#postgres, this.#postgres.heldUntil()),
      "head of the busiest environment": most(this.#heads),
      "sync of the disk": this.#disk.busyUntil() / overMs,
      ...(this.#nodes.length > 1 && { NATS: shareOf(this.#bus, this.#bus.heldUntil()) }),
      ...(this.#shared.length > 0 && { "cores that all share": most(this.#shared) }),
    };
  }

  #use(pool: Pool, ms: number, done: () => void): void {
    this.#askedMs += ms;
    pool.hold(ms, done, this.#shared[0]);
  }

  #arrive(): void {
    const { hottest, environments, costs } = this.#cluster;
    const isHot = environments === 1 || this.#chance() < hottest;
    const environment = isHot ? 0 : 1 + Math.floor(this.#chance() * (environments - 1));
    const place = Math.floor(this.#chance() * this.#nodes.length);
    const run: Run = { environment, cameAt: this.#time.now };
    this.#offered++;
    this.#use(this.#nodes[place]!, costs.emitMs, () => this.#submit([run], place, "emit"));
  }

  /** Of one environment. */
  #submit(runs: readonly Run[], place: number, kind: Lane["kind"]): void {
    const lane = this.#lanes[place]![runs[0]!.environment % combineLanes]![kind];
    lane.waiting.push(...runs);
    this.#pump(lane, place);
  }

  /** As `kit/combine.ts` does: a flush begins when the lane is free and its pace lets it. */
  #pump(lane: Lane, place: number): void {
    if (lane.isFlushing || lane.waiting.length === 0) return;
    const { now } = this.#time;
    const pauseMs = lane.pace.pauseMs(now, lane.waiting.length, combinePaceMs);
    if (pauseMs > 0) {
      if (lane.pausedUntil > now) return;
      lane.pausedUntil = now + pauseMs;
      this.#time.after(pauseMs, () => this.#pump(lane, place));
      return;
    }
    this.#flush(lane, place);
  }

  #flush(lane: Lane, place: number): void {
    const { costs } = this.#cluster;
    const runs = lane.waiting.splice(0, flushItemsMax);
    if (
      lane.isFlushing ||
      lane.pace.pauseMs(this.#time.now, lane.waiting.length + runs.length, combinePaceMs) > 0
    )
      this.#earlyFlushes++;
    lane.isFlushing = true;
    lane.pace.began(this.#time.now, runs.length);
    this.#flushes++;
    const isEmit = lane.kind === "emit";
    const storeMs = costs.storeFlushMs + runs.length * (isEmit ? costs.storeEmitMs : costs.storeReportMs);
    // Heads are locked in one order, all before the first write, and held to the commit.
    const environments = isEmit
      ? [...new Set(runs.map(({ environment }) => environment))].sort((a, b) => a - b)
      : [];
    const heads = environments.map((environment) => this.#heads[environment]!);
    this.#use(lane.node, costs.nodeFlushMs, () =>
      takeAll(heads, () =>
        this.#use(this.#postgres, storeMs, () =>
          this.#disk.sync(() => {
            for (const head of heads) head.release();
            lane.isFlushing = false;
            lane.pace.ended(this.#time.now, lane.waiting.length, isEmit);
            this.#pump(lane, place);
            if (isEmit) this.#hint(place, environments.length);
            if (!isEmit) this.#end(runs);
            else for (const some of byEnvironment(runs)) this.#handOut(some, place);
          }),
        ),
      ),
    );
  }

  #hint(from: number, count: number): void {
    const { costs } = this.#cluster;
    for (const [place, node] of this.#nodes.entries())
      if (place !== from)
        this.#use(this.#bus, count * costs.busMs, () => this.#use(node, count * costs.hintMs, () => {}));
  }

  #end(runs: readonly Run[]): void {
    this.#completed += runs.length;
    for (const { cameAt } of runs) this.#runMs.push(this.#time.now - cameAt);
  }

  /** Runs of one flush and environment go to a worker of it together, and come back as one exchange. */
  #handOut(runs: readonly Run[], place: number): void {
    const { costs } = this.#cluster;
    const node = this.#nodes[place]!;
    const all = (ms: number) => ms * runs.length;
    this.#use(node, all(costs.handMs), () => {
      for (const { cameAt } of runs) this.#ackMs.push(this.#time.now - cameAt);
      this.#time.after(costs.wayMs / 2, () =>
        this.#use(this.#workers, all(costs.workerMs), () =>
          this.#time.after(costs.wayMs / 2, () =>
            this.#use(node, all(costs.reportMs), () => this.#submit(runs, place, "report")),
          ),
        ),
      );
    });
  }
}

function byEnvironment(runs: readonly Run[]): Run[][] {
  const groups = new Map<number, Run[]>();
  for (const run of runs) {
    const group = groups.get(run.environment);
    if (group) group.push(run);
    else groups.set(run.environment, [run]);
  }
  return [...groups.values()];
}

/** Takes one pool after the other, in the order given. */
function takeAll(pools: readonly Pool[], done: () => void): void {
  const [first, ...rest] = pools;
  if (first) first.take(() => takeAll(rest, done));
  else done();
}

/** One cluster under a load, on a clock of its own. */
export const simulate = (cluster: Cluster, load: Load): Outcome => new Simulation(cluster, load).outcome();
