import { resolve } from "node:path";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { clock } from "../cluster/load.ts";
import { makeJournal, spawnWorker, type WorkerProcess } from "../cluster/workers.ts";
import { chanceOf } from "../support/chance.ts";
import { sharedNats } from "../support/nats.ts";
import { startPostgres } from "../support/postgres.ts";
import { projectionCaller } from "../support/projections.ts";
import { openBalancer } from "../support/proxy.ts";
import { callerOf, makeHomeAt, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { begin, type FoldState, fold } from "./fold-state.ts";

const partitionCount = 50;
const batchMax = 100;
const emitters = 4;
const eventName = "fold.me";
const name = "folded";
const runnerProgram = resolve(import.meta.dir, "fold-runner.ts");

export interface FoldOptions {
  events: number;
  /** How often the runner is killed; with it, in turn, a node, the builder and the database. */
  kills: number;
  seed: string;
  /** Waits for all to be folded. */
  settleMs: number;
  /** Runners may come back as somebody else, who has to wait for the lease of the dead one. */
  isPatient?: boolean;
  say?: ((line: string) => void) | undefined;
  /** Moves the cursor on while nobody looks, to see that this is found. */
  isPlanted?: boolean;
}

export interface FoldOutcome {
  breaches: string[];
  events: number;
  runnersKilled: number;
  nodesKilled: number;
  databaseKills: number;
  reads: number;
  generation: number;
}

/** A state that was read, to be compared with the fold of its log at the end. */
type Seen = Map<string, Map<number, string>>;

/**
 * Two nodes over one PostgreSQL. A runner folds events while they come, and is killed again and again, as are nodes and the
 * database; meanwhile all is folded anew beside it, and a reader reads all the time.
 */
export async function runFolds(options: FoldOptions): Promise<FoldOutcome> {
  const { events, kills, seed, settleMs, say = () => {}, isPlanted = false, isPatient = false } = options;
  const chance = chanceOf(seed);
  const postgres = await startPostgres();
  const databaseUrl = await postgres.createDatabase();
  const home = await makeHomeAt(databaseUrl);
  const nats = (await sharedNats()).url;
  const settings = { poolSize: 8, pollHoldMs: 500 };
  const nodes = [await spawnServer({ engine: "postgres", nats, home, settings })];
  nodes.push(await spawnServer({ engine: "postgres", nats, home, settings }));
  const balancer = await openBalancer(() => nodes.map(({ url }) => Number(new URL(url).port)));
  const key = nodes[0]!.adminKey;
  const api = callerOf(
    () => balancer.url,
    () => key,
  );
  const caller = projectionCaller({ ...api, url: balancer.url, adminKey: key });
  const journal = await makeJournal();
  const store = await openStore({ clock, log: silentLog, databaseUrl, file: "", poolSize: 2 });
  const breaches: string[] = [];
  const outcome = { events: 0, runnersKilled: 0, nodesKilled: 0, databaseKills: 0, reads: 0, generation: 0 };

  /** Asks until somebody says yes. */
  const surely = (method: string, body: object, service = "ProjectionService") =>
    until(() => answered(api, service, method, body), { about: method, deadlineMs: 60_000, everyMs: 50 });

  let hired = 0;
  const hire = (...words: string[]): Promise<WorkerProcess> =>
    // Most come back under their name; another name has to wait a minute for the lease to end.
    spawnWorker(
      words.length > 0 ? "builder" : `runner-${isPatient && chance.happens(0.2) ? ++hired : 0}`,
      { url: balancer.url, key },
      { journal, program: runnerProgram, words: [name, ...words] },
    );
  await surely("RegisterProjection", { name, events: [eventName], partitionKey: "$.data.id" });
  let runner = await hire();
  let builder: WorkerProcess | undefined;

  let taken = 0;
  let sent = 0;
  const emit = async () => {
    while (taken < events) {
      const from = taken;
      taken = Math.min(events, from + batchMax);
      const list = Array.from({ length: taken - from }, (_, at) => {
        const n = from + at;
        return { event: eventName, data: { id: `p${n % partitionCount}`, n }, idempotencyKey: `n-${n}` };
      });
      await surely("TriggerBatch", { events: list }, "SvcService");
      sent += list.length;
    }
  };

  const seen: Seen = new Map();
  let isOver = false;
  const read = async () => {
    const counts = new Map<string, number>();
    let generation = 0;
    for (let at = 0; !isOver; at++) {
      const partition = `p${at % partitionCount}`;
      const { status, body } = await caller.call("GetProjection", { name, partition }).catch(() => ({
        status: 0,
        body: undefined,
      }));
      await Bun.sleep(1);
      if (status !== 200) {
        if (status === 404) breaches.push(`the projection was missing: ${JSON.stringify(body)}`);
        await Bun.sleep(20);
        continue;
      }
      outcome.reads++;
      const { count, digest } = (body.state as FoldState | undefined) ?? begin;
      const before = counts.get(partition) ?? 0;
      if (count < before) breaches.push(`${partition} was read at ${before} events, then at ${count}`);
      counts.set(partition, count);
      seen.set(partition, (seen.get(partition) ?? new Map<number, string>()).set(count, digest));
      if (at % partitionCount > 0) continue;
      const standing = await caller.call("GetProjectionStatus", { name }).catch(() => undefined);
      const now = Number(standing?.body?.generation ?? 0);
      if (standing?.status !== 200) continue;
      if (now < generation) breaches.push(`generation ${now} was read after ${generation}`);
      generation = now;
      outcome.generation = now;
    }
  };

  const harm = async () => {
    for (let at = 0; at < kills; at++) {
      await until(() => sent >= ((at + 1) * events) / (kills + 1), { about: "events", deadlineMs: settleMs });
      if (at === Math.floor(kills / 3)) {
        await surely("RebuildProjection", { name, strategy: "side_by_side" });
        builder = await hire("build");
        say("a rebuild beside begins");
      }
      await runner.kill9();
      outcome.runnersKilled++;
      say(`runner killed at ${sent} events`);
      if (isPlanted)
        await store.write((session) =>
          session.run(sql`UPDATE projection_generations SET cursor_position = cursor_position + 3,
            position = position + 3, delivered = delivered + 3 WHERE generation = 1`),
        );
      if (at % 3 === 1) {
        const node = nodes[outcome.nodesKilled++ % nodes.length]!;
        await node.kill9();
        say("a node killed");
        await node.restart();
      }
      if (at % 3 === 2) {
        await postgres.kill9();
        outcome.databaseKills++;
        say("the database killed");
        await postgres.restart();
        if (builder) {
          await builder.kill9();
          builder = await hire("build");
        }
      }
      runner = await hire();
    }
  };

  try {
    const reading = read();
    await Promise.all([harm(), ...Array.from({ length: emitters }, emit)]);
    say(`${sent} events are sent`);
    const isFolded = async () => {
      const { body } = await caller.call("GetProjectionStatus", { name });
      // The readers may have asked for it a while before the last rebuild was done.
      outcome.generation = Number(body.generation ?? 0);
      return body.lag === "0" && body.buildingGeneration === undefined && body.status === "running";
    };
    await until(() => isFolded().catch(() => false), {
      about: "all to be folded",
      deadlineMs: settleMs,
      everyMs: 100,
    }).catch((error: Error) => breaches.push(error.message));
    isOver = true;
    await reading;
    breaches.push(...(await compare(store, seen)));
    outcome.events = sent;
    return { ...outcome, breaches };
  } finally {
    isOver = true;
    await Promise.all([runner.kill9(), builder?.kill9()]);
    await balancer.stop();
    await store.close();
    await Promise.all(nodes.map((node) => node.stop()));
    await postgres.stop();
    await Promise.all([journal.remove(), home.remove()]);
  }
}

async function answered(
  api: ReturnType<typeof callerOf>,
  service: string,
  method: string,
  body: object,
): Promise<boolean> {
  const answer = await api.rpc(service, method, body).catch(() => undefined);
  return answer?.status === 200;
}

/** Every stored state, and every one that was read, is the fold of its partition's log up to there. */
async function compare(store: Store, seen: Seen): Promise<string[]> {
  const breaches: string[] = [];
  const folds = new Map<string, FoldState>();
  const digests: Seen = new Map();
  let after = 0;
  for (;;) {
    const slice = await store.all<{ position: number; data: string }>(sql`SELECT position, data FROM events
      WHERE name = ${eventName} AND position > ${after} ORDER BY position LIMIT 20000`);
    for (const { position, data } of slice) {
      const { id, n } = JSON.parse(data) as { id: string; n: number };
      const next = fold(folds.get(id) ?? begin, n);
      folds.set(id, next);
      if (seen.get(id)?.has(next.count))
        digests.set(id, (digests.get(id) ?? new Map<number, string>()).set(next.count, next.digest));
      after = position;
    }
    if (slice.length === 0) break;
  }
  for (const [partition, reads] of seen)
    for (const [count, digest] of reads)
      if (count > 0 && digests.get(partition)?.get(count) !== digest)
        breaches.push(`${partition} was read at ${count} events as no fold of its log`);
  const states = await store.all<{ partition_key: string; state: string }>(sql`SELECT s.partition_key, s.state
    FROM projection_states s JOIN projections p ON p.environment_id = s.environment_id AND p.name = s.name
      AND p.generation = s.generation`);
  for (const { partition_key: partition, state } of states)
    if (state !== JSON.stringify(folds.get(partition)))
      breaches.push(`${partition} is ${state}, its log comes to ${JSON.stringify(folds.get(partition))}`);
  if (states.length !== folds.size)
    breaches.push(`${states.length} partitions of ${folds.size} have a state`);
  return breaches;
}
