import { defaultEnvironmentId } from "../../src/domain/access/tenancy/rules.ts";
import { tenancy as openTenancy } from "../../src/domain/access/tenancy/service.ts";
import type { Ids } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { type Chance, chanceOf } from "../support/chance.ts";
import { overfullLanes } from "../support/engine-checkers.ts";
import { type Features, type Program, randomPrograms } from "../support/run-program.ts";
import { simulatedHub } from "./bus.ts";
import { type Burst, burst, emitSurely, signal } from "./callers.ts";
import { check, type Started } from "./check.ts";
import {
  append,
  checkFolds,
  disturb,
  type Folds,
  isFolded,
  keepRunners,
  registerFolds,
  watchFolds,
} from "./folds.ts";
import { type SimulatedNode, startNode } from "./node.ts";
import { letGoOn, type SteeredRun, steer } from "./people.ts";
import { simulatedDatabase } from "./store.ts";
import { type ProcessTime, processTime, simulatedTime, type Time } from "./time.ts";
import { leaseMs, strike } from "./troubles.ts";
import { checkUndone } from "./undo.ts";
import { startWorker, type WorkerWorld } from "./worker.ts";

/** A bug put in on purpose, to see that the simulator finds it. */
export type Plant = (store: Store, plain: Store) => Store;

export interface SimulationOptions {
  seed: string;
  features: Features;
  plant?: Plant | undefined;
  /** Told what happens, for a seed that is looked into. */
  say?: ((line: string) => void) | undefined;
}

export interface SimulationResult {
  /** What is wrong, in words; empty when every invariant holds. */
  faults: string[];
  runs: number;
  /** Virtual milliseconds. */
  elapsedMs: number;
  /** Of all history rows: equal for equal seeds. */
  digest: string;
}

/** All that programs may do. */
export const everything: Features = {
  waits: true,
  invokes: true,
  concurrency: true,
  debounce: true,
  cron: true,
  people: true,
  folds: true,
  undo: false,
};

/** The leader sends a heartbeat this often; after the second without one another node leads. */
const heartbeatEveryMs = 500;
const signLateMs = 3_000;
/** After the troubles are over, everything must end within this. */
const healMs = 20 * 60_000;

/** One world from one seed: nodes, workers and callers live through troubles; afterwards every promise is checked. */
export async function simulate({ seed, features, plant, say }: SimulationOptions): Promise<SimulationResult> {
  const chance = chanceOf(seed);
  const time = simulatedTime();
  const database = await simulatedDatabase(time);
  // What only some worlds have, so that the others stay small.
  const has = (feature: keyof Features) => features[feature] && chance.branch(feature).happens(0.5);
  const hasPeople = has("people");
  const hasFolds = features.folds && chance.branch("folds").happens(0.3);
  const programs = randomPrograms(chance.branch("programs"), {
    ...features,
    debounce: has("debounce"),
    cron: has("cron"),
  });
  const environmentId = defaultEnvironmentId;
  const faults: string[] = [];
  const troubles = { before: 0, after: 0, hintLoss: 0 };
  const note = (line: string) => say?.(`${String(time.elapsed()).padStart(8)} ${line}`);

  const ids = simulatedIds(chance.branch("ids"), time);
  const setup = processTime(time);
  await openTenancy({
    store: database.plain,
    clock: setup.clock,
    ids,
    log: silentLog,
    strictEnvironment: false,
  }).createDefaults();

  // Nodes.
  const join = simulatedHub();
  const nodes: SimulatedNode[] = [];
  const signs = new Map<SimulatedNode, number>();
  let leader: SimulatedNode | undefined;
  const showsLife = (node: SimulatedNode) =>
    node.process.alive() && time.elapsed() - (signs.get(node) ?? 0) <= signLateMs;
  const heartbeat = (node: SimulatedNode) => {
    signs.set(node, time.elapsed());
    node.process.clock.after(heartbeatEveryMs, () => heartbeat(node));
  };
  let nodesMade = 0;
  const addNode = () => {
    const id = `node_${nodesMade++}`;
    const own = chance.branch(id);
    const process = processTime(time);
    const plain = database.storeOf(process, own.branch("store"), () => troubles);
    const node: SimulatedNode = startNode({
      id,
      process,
      store: plant ? plant(plain, database.plain) : plain,
      bus: join(id, process, own.branch("bus"), () => troubles.hintLoss),
      ids,
      leaseMs,
      hasFolds,
      leads(still) {
        if (!still && !(leader && showsLife(leader))) leader = nodes.find(showsLife);
        return leader === node;
      },
      ...(say && {
        log: { ...silentLog, warn: (event, fields) => note(`${id} ${event} ${JSON.stringify(fields)}`) },
      }),
    });
    nodes.push(node);
    heartbeat(node);
  };
  const alive = () => nodes.filter((node) => node.process.alive());
  addNode();
  addNode();

  await register(nodes[0]!, programs, environmentId, time, features.undo);

  // Workers.
  const done = new Map<string, boolean>();
  const executions = new Map<string, number>();
  const world: WorkerWorld = {
    time,
    environmentId,
    isUndone: features.undo,
    programs: new Map(programs.map((program) => [program.id, program])),
    node: (own) => own.oneOf(alive()),
    mayRepeat: new Set(),
    effect(runId, stepId) {
      const key = `${runId} ${stepId}`;
      if (done.get(key) && !world.mayRepeat.has(runId))
        faults.push(`step ran again after the server had it: ${key}`);
      done.set(key, false);
    },
    stored(runId, stepId) {
      done.set(`${runId} ${stepId}`, true);
    },
    newest(runId, given = 0) {
      const newest = Math.max(given, executions.get(runId) ?? 0);
      executions.set(runId, newest);
      return newest;
    },
    outdated(runId, executionSeq) {
      faults.push(`execution ${executionSeq} of ${runId} reported behind ${executions.get(runId)}`);
    },
  };
  const workers: ProcessTime[] = [];
  let hired = 0;
  const addWorker = () => {
    const id = `worker-${hired++}`;
    workers.push(startWorker(id, world, chance.branch(id), leaseMs));
  };
  for (let count = chance.between(1, 3); count > 0; count--) addWorker();

  // Callers, and people who steer what they started.
  const started: Started[] = [];
  const bursts: Burst[] = [];
  const steered = new Map<string, SteeredRun>();
  let calling = 0;
  const caller = chance.branch("callers");
  const busy = (ms: number, work: () => Promise<void>) => {
    calling++;
    time.after(ms, () => void work().finally(() => calling--));
  };
  const mains = programs.filter((program) => program.id.startsWith("main"));
  for (let count = caller.between(3, 12), place = 0; place < count; place++) {
    const program = caller.oneOf(mains);
    const own = chance.branch(`caller-${place}`);
    const isSteered = hasPeople && own.branch("steered").happens(0.5);
    busy(caller.between(0, 20_000), async () => {
      const input = `input-${place}`;
      const data = { input, group: own.between(0, 2) };
      const { runIds } = await emitSurely(world, own, `go.${program.id}`, data, `start-${place}`);
      note(`${program.id} started for ${input}: ${runIds}`);
      started.push({ program, input, runIds });
      signal(world, own, program, input, () => over, isSteered);
      const [runId] = runIds;
      if (!isSteered || runId === undefined) return;
      const mark: SteeredRun = { cancelled: false, patched: [], begunAgain: false, given: new Map() };
      steered.set(runId, mark);
      await steer(world, own.branch("person"), { program, input, runId }, mark);
    });
  }
  for (const program of programs.filter((one) => one.debounce !== undefined))
    for (let count = caller.between(1, 4), place = 0; place < count; place++) {
      const own = chance.branch(`burst-${place}`);
      busy(caller.between(0, 20_000), async () => {
        bursts.push(await burst(world, own, program, `burst-${place}`));
      });
    }

  // Streams, and their projection.
  const folds: Folds = { facts: [], faults, isRebuiltInPlace: false, over: false };
  const foldWorld = { ...world, folds, plain: database.plain };
  const folding = chance.branch("folds");
  if (hasFolds) {
    busy(0, () => registerFolds(world, folding.branch("register")));
    for (let count = folding.between(2, 5), place = 0; place < count; place++)
      busy(folding.between(0, 10_000), () => append(foldWorld, folding.branch(`append-${place}`), place));
    busy(folding.between(2_000, 20_000), () => disturb(foldWorld, folding.branch("disturb")));
    void watchFolds(foldWorld, folding.branch("watch"));
  }

  // Troubles.
  let over = false;
  const trouble = chance.branch("troubles");
  const troubleMs = trouble.between(5_000, 40_000);
  const stir = () => {
    if (time.elapsed() > troubleMs) return;
    time.after(trouble.between(100, 4_000), stir);
    const [kind, undo] = strike({ trouble, nodes: alive(), workers, troubles, addNode, addWorker, time });
    note(kind);
    undo?.();
  };
  stir();
  if (hasFolds) keepRunners(foldWorld, folding.branch("runners"), troubleMs);

  // The end: all that was begun is over, or it never will be.
  let ended = false;
  let watching = false;
  const helper = chance.branch("helper");
  const look = async () => {
    if (time.elapsed() > troubleMs) Object.assign(troubles, { before: 0, after: 0, hintLoss: 0 });
    const [open] = await database.plain.all<{ count: number }>(sql`SELECT (SELECT count(*) FROM debounces)
      + (SELECT count(*) FROM executions WHERE function_id NOT LIKE 'cron-%') AS count`);
    if (calling === 0 && hasPeople) await letGoOn(world, helper, database.plain);
    const isDone = calling === 0 && open!.count === 0 && time.elapsed() > troubleMs;
    if (isDone && (!hasFolds || (await isFolded(database.plain)))) {
      // Children of detached invocations may be about to start.
      if (watching) ended = true;
      watching = true;
    } else watching = false;
    time.after(1_500, look);
  };
  time.after(1_500, look);
  const count = async () => {
    faults.push(...(await overfullLanes(database.plain)));
    if (!over) time.after(20, count);
  };
  time.after(20, count);
  const finished = await time.run(() => ended || faults.length > 0, troubleMs + healMs);
  over = true;
  folds.over = true;
  if (!finished) faults.push(`not everything ended within ${healMs} ms after the last trouble`);
  const lived = { started, bursts, steered, programs: world.programs, environmentId };
  faults.push(...(await check({ ...lived, store: database.plain, now: setup.clock.now() })));
  if (features.undo) faults.push(...(await checkUndone(database.plain)));
  if (hasFolds) faults.push(...(await checkFolds(foldWorld)));
  if (faults.length > 0 && say) {
    note(JSON.stringify(programs));
    for (const table of [
      "executions",
      "debounces",
      "schedules",
      "waits",
      "matchers",
      "invocations",
      "child_ends",
      "events",
      "run_history",
      "projections",
      "projection_generations",
      "projection_pending",
      "projection_states",
    ])
      for (const row of await database.plain.all(sql`SELECT * FROM ${sql.raw(table)}`))
        note(`${table} ${JSON.stringify(row)}`);
  }
  for (const node of nodes) node.process.kill();
  for (const worker of workers) worker.kill();
  const history = await database.plain.all(sql`SELECT * FROM run_history ORDER BY run_id, sequence`);
  const digest = Bun.hash.wyhash(JSON.stringify(history)).toString(16);
  return { faults, runs: started.length, elapsedMs: time.elapsed(), digest };
}

function simulatedIds(chance: Chance, time: Time): Ids {
  let count = 0;
  const hex = (bytes: number) =>
    Array.from({ length: bytes }, () => chance.between(0, 255).toString(16).padStart(2, "0")).join("");
  return {
    next(kind) {
      const head = Math.floor(time.elapsed()).toString(36).padStart(10, "0");
      return `${kind}_${head}${(count++).toString(36).padStart(16, "0")}`;
    },
    uuid: () => hex(16),
    secret: hex,
    chance: () => chance.number(),
  };
}

async function register(
  node: SimulatedNode,
  programs: readonly Program[],
  environmentId: string,
  time: Time,
  isUndone: boolean,
): Promise<void> {
  let left = programs.length;
  for (const { id, maxAttempts, concurrency, debounce, everySeconds } of programs)
    void node.engine.functions
      .register(
        environmentId,
        {
          id,
          triggers:
            everySeconds !== undefined
              ? [{ cron: `*/${everySeconds} * * * * *` }]
              : id.startsWith("child")
                ? []
                : [{ event: `go.${id}` }],
          ...(debounce && {
            debounce: {
              periodMs: debounce.periodMs,
              key: "burst",
              ...(debounce.maxWaitMs !== undefined && { maxWaitMs: debounce.maxWaitMs }),
            },
          }),
          retry: { maxAttempts, initialDelayMs: 200, backoffFactor: 2, maxDelayMs: 2_000 },
          ...(concurrency && { concurrency: { limit: concurrency.limit, key: "group" } }),
          ...(isUndone && { compensateOn: ["failure", "cancel"] }),
        },
        "simulation",
      )
      .then(() => left--);
  await time.run(() => left === 0, 60_000);
}
