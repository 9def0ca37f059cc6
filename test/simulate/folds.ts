import type { Delivered } from "../../src/domain/state/projections/runners/deliveries.ts";
import type { ReadProjection } from "../../src/domain/state/projections/service.ts";
import type { WaitResult } from "../../src/domain/state/projections/waits/service.ts";
import { Fault } from "../../src/kit/fault.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import type { Chance } from "../support/chance.ts";
import { ask, callOf } from "./people.ts";
import { type ProcessTime, processTime } from "./time.ts";
import type { WorkerWorld } from "./worker.ts";

export const foldName = "facts";
const factName = "fact.stated";

/** An append that a node said yes to. */
export interface Fact {
  entityId: string;
  eventId: string;
  version: number;
}

/** Appends to streams, and a projection of them that runners fold, one partition a stream. */
export interface Folds {
  facts: Fact[];
  faults: string[];
  /** States go and come again: what was read before says nothing then. */
  isRebuiltInPlace: boolean;
  over: boolean;
}

interface FoldWorld extends WorkerWorld {
  folds: Folds;
  /** As it is, for those who look on. */
  plain: Store;
}

/** What a partition comes to: it depends on the order of its events, and on each being there once. */
interface FoldState {
  count: number;
  digest: string;
}
const begin: FoldState = { count: 0, digest: "" };
const fold = ({ count, digest }: FoldState, id: string): FoldState => ({
  count: count + 1,
  digest: Bun.hash.wyhash(`${digest} ${id}`).toString(16),
});

const conflict = (fault: Fault) => fault.message.includes("version conflict");

export async function registerFolds(world: WorkerWorld, chance: Chance): Promise<void> {
  const definition = { name: foldName, events: ["fact.*"], partitionKey: "entityId" };
  await ask(world, chance, "projections.register", definition);
}

/** Appends to one stream, each time at the version that it believes in; another who was faster makes it think again. */
export async function append(world: FoldWorld, chance: Chance, place: number): Promise<void> {
  const { time, folds } = world;
  const entityId = `entity:${chance.between(1, 3)}`;
  let version = 0;
  for (let left = chance.between(1, 6), tries = 0; left > 0; tries++) {
    await time.sleep(chance.between(0, 2_000));
    const expectedVersion = chance.happens(0.2) ? -1 : version;
    const idempotencyKey = `fact-${place}-${tries}`;
    const input = { entityId, entityType: "entity", expectedVersion, eventName: factName, idempotencyKey };
    const decision = await ask(world, chance, "streams.append", input, conflict);
    if (!decision.ok) {
      const head = await world.plain.one<{ version: number }>(
        sql`SELECT version FROM streams WHERE entity_id = ${entityId}`,
      );
      version = head?.version ?? 0;
      continue;
    }
    left--;
    const { eventId, entityVersion, position } = decision.output as {
      eventId: string;
      entityVersion: number;
      position: number;
    };
    version = entityVersion;
    folds.facts.push({ entityId, eventId, version });
    if (chance.happens(0.3)) await readOwn(world, chance, entityId, position);
  }
}

/** Waits for its own write, and reads what must have it. */
async function readOwn(world: FoldWorld, chance: Chance, partition: string, minPosition: number) {
  const wait = { name: foldName, partition, minPosition, timeoutMs: 20_000 };
  const waited = await ask(world, chance, "projections.wait", wait);
  if (!waited.ok || !(waited.output as WaitResult).isCaughtUp) return;
  const last = await look(world, chance, partition);
  if (last < minPosition && !world.folds.isRebuiltInPlace)
    world.folds.faults.push(`${partition} was caught up with ${minPosition} and is read at ${last}`);
}

/** Reads a partition: what is stored is the fold of its log up to there. Answers how far it is. */
async function look(world: FoldWorld, chance: Chance, partition: string): Promise<number> {
  const read = await ask(world, chance, "projections.get", { name: foldName, partition });
  const state = read.ok ? (read.output as ReadProjection).state : undefined;
  if (!state) return 0;
  const wrong = await breachOf(world, partition, { ...state, state: state.state! });
  if (wrong) world.folds.faults.push(wrong);
  return state.last_position;
}

/** What the partition's own log comes to up to its position, if the state is something else. */
async function breachOf(
  { plain, environmentId }: Pick<FoldWorld, "plain" | "environmentId">,
  partition: string,
  { state, last_position: last }: { state: string; last_position: number },
): Promise<string | undefined> {
  const events = await plain.all<{
    id: string;
  }>(sql`SELECT id FROM events WHERE environment_id = ${environmentId}
    AND entity_id = ${partition} AND position <= ${last} ORDER BY position`);
  const wanted = JSON.stringify(events.reduce((folded, { id }) => fold(folded, id), begin));
  return wanted === state ? undefined : `${partition} at ${last} is ${state}, its log comes to ${wanted}`;
}

/** Reads partitions again and again: none goes back, and none is ever half of something. */
export async function watchFolds(world: FoldWorld, chance: Chance): Promise<void> {
  const seen = new Map<string, number>();
  while (!world.folds.over) {
    await world.time.sleep(chance.between(200, 3_000));
    const partition = `entity:${chance.between(1, 3)}`;
    const last = await look(world, chance, partition);
    const before = seen.get(partition) ?? 0;
    if (last < before && !world.folds.isRebuiltInPlace)
      world.folds.faults.push(`${partition} was read at ${before} and then at ${last}`);
    seen.set(partition, last);
  }
}

/** Somebody pauses the projection for a while, or has it folded again. */
export async function disturb(world: FoldWorld, chance: Chance): Promise<void> {
  const { time, folds } = world;
  for (let left = chance.between(1, 2); left > 0; left--) {
    await time.sleep(chance.between(1_000, 12_000));
    const name = foldName;
    const rebuild = { name, partition: "", fromEventId: "", toEventId: "", isDryRun: false };
    switch (chance.oneOf(["pause", "beside", "beside", "in place"])) {
      case "pause":
        await ask(world, chance, "projections.pause", { name });
        await time.sleep(chance.between(0, 3_000));
        await ask(world, chance, "projections.resume", { name });
        break;
      case "beside":
        await ask(world, chance, "projections.rebuild", { ...rebuild, strategy: "side_by_side" });
        break;
      default:
        folds.isRebuiltInPlace = true;
        await ask(world, chance, "projections.rebuild", { ...rebuild, strategy: "in_place" });
    }
  }
}

/** Keeps one or two runners, kills and freezes them until `troubleMs`, and hires others. */
export function keepRunners(world: FoldWorld, chance: Chance, troubleMs: number): void {
  const { time } = world;
  let hired = 0;
  const hire = () => {
    // A process that comes back under its name has the lease still; another one has to wait for it.
    const runnerId = `runner-${chance.happens(0.7) ? 0 : hired++}`;
    const process = startRunner(runnerId, world, chance.branch(`${runnerId}-${time.elapsed()}`));
    const trouble = () => {
      if (time.elapsed() > troubleMs || world.folds.over) return;
      if (chance.happens(0.5)) return process.freeze(chance.between(100, 30_000));
      process.kill();
      time.after(chance.between(0, 2_000), hire);
    };
    time.after(chance.between(1_000, 10_000), trouble);
  };
  for (let count = chance.between(1, 2); count > 0; count--) hire();
}

/** A dead node never answers. */
const callMs = 5_000;

/** A process that polls, folds and saves; it may die or stand still at any moment. */
function startRunner(runnerId: string, world: FoldWorld, chance: Chance): ProcessTime {
  const process = processTime(world.time);
  const pause = (ms: number) => process.clock.sleep(ms);

  async function call(name: string, input: object): Promise<unknown> {
    await process.awake();
    const operation = world.node(chance).operations.find((one) => one.name === name);
    if (operation?.mode !== "unary") throw new Error(`no operation ${name}`);
    const late = world.time.sleep(callMs).then(() => Promise.reject(new Error("no answer")));
    late.catch(() => {});
    const answer = Promise.resolve(operation.handle(input, callOf(world), async () => {}));
    answer.catch(() => {});
    try {
      return await Promise.race([answer, late]);
    } finally {
      await process.awake();
    }
  }

  async function save(input: object): Promise<void> {
    for (let tries = 0; ; tries++)
      try {
        await call("projections.save", input);
        return;
      } catch (error) {
        if (tries === 3 || (error instanceof Fault && error.kind !== "unavailable")) throw error;
        await pause(chance.between(20, 300));
      }
  }

  /** What was stored before the poll is not delivered by it. */
  async function polled(poll: object): Promise<Delivered> {
    const { plain, folds } = world;
    const stored = await plain.all<{ generation: number; partition_key: string; last_position: number }>(
      sql`SELECT generation, partition_key, last_position FROM projection_states WHERE name = ${foldName}`,
    );
    const given = (await call("projections.poll", poll)) as Delivered;
    if (folds.isRebuiltInPlace) return given;
    const lasts = new Map(stored.map((one) => [`${one.generation} ${one.partition_key}`, one.last_position]));
    for (const { partition, position } of given.events) {
      const last = lasts.get(`${given.generation.generation} ${partition}`) ?? 0;
      if (position <= last) folds.faults.push(`${partition} got ${position} again behind ${last}`);
    }
    return given;
  }

  async function take({ state: standing, generation, events }: Delivered): Promise<void> {
    if (standing !== "given" || events.length === 0) return;
    const own = { name: foldName, runnerId, fence: generation.fence, generation: generation.generation };
    const states = [];
    for (const partition of new Set(events.map((event) => event.partition))) {
      const read = { name: foldName, partition, generation: generation.generation };
      const { state } = (await call("projections.get", read)) as ReadProjection;
      // Another process of its name, frozen or not, may have saved since the poll.
      const last = state?.last_position ?? 0;
      const mine = events.filter((event) => event.partition === partition && event.position > last);
      if (mine.length === 0) continue;
      const folded = mine.reduce(
        (before, { id }) => fold(before, id),
        state ? (JSON.parse(state.state!) as FoldState) : begin,
      );
      const { id: lastEventId, position: lastEventSeq } = mine.at(-1)!;
      states.push({ partitionKey: partition, state: folded, lastEventId, lastEventSeq });
    }
    await pause(chance.between(0, 200));
    if (states.length === 0) return;
    if (chance.happens(0.5)) await save({ ...own, states });
    else
      for (const one of states.reverse()) {
        // What one handler fails at is not saved; the others are.
        if (chance.happens(0.2)) await pause(chance.between(0, 3_000));
        else await save({ ...own, states: [one] });
      }
  }

  async function live(): Promise<void> {
    for (;;)
      try {
        const poll = { name: foldName, runnerId, batchSize: chance.between(1, 12) };
        const given = await polled(poll);
        await take(given);
        const building = given.held.generations.at(-1)?.generation ?? 0;
        if (building > given.held.generation) await take(await polled({ ...poll, generation: building }));
        if (given.events.length === 0) await pause(chance.between(100, 1_000));
      } catch {
        await pause(chance.between(100, 1_000));
      }
  }

  void live();
  return process;
}

/** Whether all that was appended is folded, by the one generation that is left. */
export async function isFolded(plain: Store): Promise<boolean> {
  const behind = await plain.one<{ count: number }>(sql`SELECT count(*) AS count FROM projection_generations g
    WHERE g.dropped_at IS NULL AND (g.target IS NOT NULL OR g.cursor_position < (
      SELECT COALESCE(max(e.position), 0) FROM events e WHERE e.name = ${factName}))`);
  return behind!.count === 0;
}

/** Every acknowledged version is there once, and every partition is the fold of its whole log. */
export async function checkFolds(
  world: Pick<FoldWorld, "plain" | "environmentId" | "folds">,
): Promise<string[]> {
  const { plain, folds } = world;
  const faults: string[] = [];
  const events = await plain.all<{ id: string; position: number; entity_id: string; version: number }>(
    sql`SELECT id, position, entity_id, entity_version AS version FROM events WHERE name = ${factName} ORDER BY position`,
  );
  const versions = new Map<string, number>();
  const byId = new Map(events.map((event) => [event.id, event]));
  for (const { id, entity_id: entity, version } of events) {
    const last = versions.get(entity) ?? 0;
    if (version !== last + 1) faults.push(`${id} is version ${version} of ${entity} behind ${last}`);
    versions.set(entity, version);
  }
  for (const { entityId, eventId, version } of folds.facts) {
    const event = byId.get(eventId);
    if (event?.entity_id !== entityId || event.version !== version)
      faults.push(
        `${eventId} was acknowledged as version ${version} of ${entityId} and is ${event?.version}`,
      );
  }
  if (events.length !== folds.facts.length)
    faults.push(`${folds.facts.length} appends were acknowledged, and ${events.length} are there`);
  const states = await plain.all<{ partition_key: string; state: string; last_position: number }>(
    sql`SELECT s.partition_key, s.state, s.last_position FROM projection_states s JOIN projections p
      ON p.environment_id = s.environment_id AND p.name = s.name AND p.generation = s.generation`,
  );
  const known = new Set(states.map((state) => state.partition_key));
  for (const entity of versions.keys()) if (!known.has(entity)) faults.push(`${entity} was never folded`);
  for (const state of states) {
    const wrong = await breachOf(world, state.partition_key, {
      ...state,
      last_position: Number.MAX_SAFE_INTEGER,
    });
    if (wrong) faults.push(wrong);
  }
  return faults;
}
