import { draftOf } from "../../src/domain/events/rules.ts";
import { defaultEnvironmentId } from "../../src/domain/tenancy/rules.ts";
import { tenancy as openTenancy } from "../../src/domain/tenancy/service.ts";
import { Fault } from "../../src/kit/fault.ts";
import type { Ids } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { type Chance, chanceOf } from "../support/chance.ts";
import { overfullLanes } from "../support/engine-checkers.ts";
import {
  childInput,
  type Features,
  type Program,
  randomPrograms,
  signalKey,
} from "../support/run-program.ts";
import { simulatedHub } from "./bus.ts";
import { check, type Started } from "./check.ts";
import { type SimulatedNode, startNode } from "./node.ts";
import { simulatedDatabase } from "./store.ts";
import { type ProcessTime, processTime, simulatedTime, type Time } from "./time.ts";
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
export const everything: Features = { waits: true, invokes: true, concurrency: true };

const leaseMs = 4_000;
/** After the troubles are over, everything must end within this. */
const healMs = 20 * 60_000;

/** One world from one seed: nodes, workers and callers live through troubles; afterwards every promise is checked. */
export async function simulate({ seed, features, plant, say }: SimulationOptions): Promise<SimulationResult> {
  const chance = chanceOf(seed);
  const time = simulatedTime();
  const database = await simulatedDatabase(time);
  const programs = randomPrograms(chance.branch("programs"), features);
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
  let born = 0;
  const addNode = () => {
    const id = `node_${born++}`;
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
      leads: () => nodes.find((one) => one.process.alive()) === node,
      ...(say && {
        log: { ...silentLog, warn: (event, fields) => note(`${id} ${event} ${JSON.stringify(fields)}`) },
      }),
    });
    nodes.push(node);
  };
  const alive = () => nodes.filter((node) => node.process.alive());
  addNode();
  addNode();

  await register(nodes[0]!, programs, environmentId, time);

  // Workers.
  const done = new Map<string, boolean>();
  const world: WorkerWorld = {
    time,
    environmentId,
    programs: new Map(programs.map((program) => [program.id, program])),
    node: (own) => own.oneOf(alive()),
    effect(runId, stepId) {
      const key = `${runId} ${stepId}`;
      if (done.get(key)) faults.push(`step ran again after the server had it: ${key}`);
      done.set(key, false);
    },
    stored(runId, stepId) {
      done.set(`${runId} ${stepId}`, true);
    },
  };
  const workers: ProcessTime[] = [];
  let hired = 0;
  const addWorker = () => {
    const id = `worker-${hired++}`;
    workers.push(startWorker(id, world, chance.branch(id), leaseMs));
  };
  for (let count = chance.between(1, 3); count > 0; count--) addWorker();

  // Callers.
  const started: Started[] = [];
  let calling = 0;
  const caller = chance.branch("callers");
  const mains = programs.filter((program) => program.id.startsWith("main"));
  for (let count = caller.between(3, 12), place = 0; place < count; place++) {
    calling++;
    const program = caller.oneOf(mains);
    const own = chance.branch(`caller-${place}`);
    time.after(caller.between(0, 20_000), async () => {
      const input = `input-${place}`;
      const runIds = await emitSurely(
        world,
        own,
        `go.${program.id}`,
        { input, group: own.between(0, 2) },
        `start-${place}`,
      );
      note(`${program.id} started for ${input}: ${runIds}`);
      started.push({ program, input, runIds });
      calling--;
      signal(world, own, program, input, () => over);
    });
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

  // The end: all that was begun is over, or it never will be.
  let ended = false;
  let watching = false;
  const look = async () => {
    if (time.elapsed() > troubleMs) Object.assign(troubles, { before: 0, after: 0, hintLoss: 0 });
    const [open] = await database.plain.all<{ count: number }>(sql`SELECT count(*) AS count FROM executions`);
    if (calling === 0 && open!.count === 0 && time.elapsed() > troubleMs) {
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
  if (!finished) faults.push(`not everything ended within ${healMs} ms after the last trouble`);
  faults.push(...(await check({ store: database.plain, started, programs: world.programs, environmentId })));
  if (faults.length > 0 && say) {
    note(JSON.stringify(programs));
    for (const table of [
      "executions",
      "waits",
      "matchers",
      "invocations",
      "child_ends",
      "events",
      "run_history",
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
): Promise<void> {
  let left = programs.length;
  for (const { id, maxAttempts, concurrency } of programs)
    void node.engine.functions
      .register(
        environmentId,
        {
          id,
          triggers: id.startsWith("main") ? [{ event: `go.${id}` }] : [],
          retry: { maxAttempts, initialDelayMs: 200, backoffFactor: 2, maxDelayMs: 2_000 },
          ...(concurrency && { concurrency: { limit: concurrency.limit, key: "group" } }),
        },
        "simulation",
      )
      .then(() => left--);
  await time.run(() => left === 0, 60_000);
}

/** Emits until a node has said yes, under one idempotency key; answers the runs. */
async function emitSurely(
  { time, environmentId, node }: WorkerWorld,
  chance: Chance,
  name: string,
  data: Record<string, unknown>,
  key: string,
): Promise<string[]> {
  const draft = draftOf({ event: name, data, idempotencyKey: key }, undefined);
  const origin = { environmentId, source: "api", runId: undefined };
  for (;;) {
    const answer = node(chance)
      .engine.events.emit([draft], origin)
      .catch((error: unknown) => {
        if (error instanceof Fault && error.kind !== "unavailable") throw error;
        return undefined;
      });
    const [emitted] = (await Promise.race([answer, time.sleep(5_000)])) ?? [];
    if (emitted) return emitted.runIds;
    await time.sleep(chance.between(50, 500));
  }
}

/**
 * Sends what the run's waits wait for. The first wait of a run that has not yielded before gets its signal exactly once, at
 * any time after the run was accepted: it must be found whether it came before the wait or after. Later waits are sent
 * theirs until the end, since a signal from before the handler last began is not theirs.
 */
function signal(
  world: WorkerWorld,
  chance: Chance,
  program: Program,
  input: string,
  over: () => boolean,
  isChild = false,
): void {
  const first = isChild ? undefined : program.lines.find((line) => line.kind !== "step");
  for (const line of program.lines) {
    if (line.kind === "invoke")
      signal(
        world,
        chance.branch(line.name),
        world.programs.get(line.child)!,
        childInput(input, line.name),
        over,
        true,
      );
    if (line.kind !== "wait") continue;
    const data = { k: signalKey(input, line.name) };
    const own = chance.branch(data.k);
    if (line === first) void once(world, own, data);
    else void again(world, own, data, over);
  }
}

async function once(world: WorkerWorld, chance: Chance, data: { k: string }): Promise<void> {
  await world.time.sleep(chance.oneOf([0, 0, 50, 500, 5_000]));
  await emitSurely(world, chance, "signal", data, `signal-${data.k}`);
}

async function again(
  world: WorkerWorld,
  chance: Chance,
  data: { k: string },
  over: () => boolean,
): Promise<void> {
  for (let count = 0; !over(); count++) {
    await world.time.sleep(chance.between(2_000, 8_000));
    await emitSurely(world, chance, "signal", data, `signal-${data.k}-${count}`);
  }
}

interface Targets {
  trouble: Chance;
  nodes: SimulatedNode[];
  workers: ProcessTime[];
  troubles: { before: number; after: number; hintLoss: number };
  addNode: () => void;
  addWorker: () => void;
  time: Time;
}

/** Does something bad; answers what. */
function strike(targets: Targets): [string, (() => void)?] {
  const { trouble, nodes, workers, troubles, addNode, addWorker, time } = targets;
  const living = workers.filter((worker) => worker.alive());
  switch (trouble.between(0, 7)) {
    case 0: {
      if (living.length === 0) return ["nobody to kill"];
      trouble.oneOf(living).kill();
      time.after(trouble.between(0, 3_000), addWorker);
      return ["a worker dies"];
    }
    case 1: {
      if (living.length === 0) return ["nobody to freeze"];
      const ms = trouble.between(100, 3 * leaseMs);
      trouble.oneOf(living).freeze(ms);
      return [`a worker stands still for ${ms} ms`];
    }
    case 2: {
      if (nodes.length < 2) return ["the last node stays"];
      const node = trouble.oneOf(nodes);
      node.process.kill();
      time.after(trouble.between(0, 3_000), addNode);
      return [`${node.id} dies`];
    }
    case 3: {
      const ms = trouble.between(100, 3 * leaseMs);
      const node = trouble.oneOf(nodes);
      node.process.freeze(ms);
      return [`${node.id} stands still for ${ms} ms`];
    }
    case 4: {
      const node = trouble.oneOf(nodes);
      const ms = trouble.between(-200, 200);
      node.process.setAhead(ms);
      return [`${node.id}'s clock is ${ms} ms ahead`];
    }
    case 5: {
      troubles.before = trouble.oneOf([0, 0.05, 0.3]);
      troubles.after = trouble.oneOf([0, 0.05, 0.2]);
      time.after(trouble.between(200, 4_000), () => Object.assign(troubles, { before: 0, after: 0 }));
      return [`the store fails before ${troubles.before} and after ${troubles.after}`];
    }
    case 6: {
      troubles.hintLoss = trouble.oneOf([0, 0.5, 1]);
      return [`hints get lost: ${troubles.hintLoss}`];
    }
    default:
      return ["nothing"];
  }
}
