/**
 * `bun run bench:repair [--engine postgres|libsql] [--only repair|replay|deletion] [--runs 100000] [--events 1000000] [--every 10] [--rate 200]`
 *
 * Work on the past beside live traffic. `repair`: so many failed runs go on by one repair, which is paused while the server is
 * started anew. `replay`: a function is started on every tenth of so many events, while events of the same name and others go on
 * coming; the server is killed once. `deletion`: so many ended runs are deleted by `DeleteRuns`, call after call. What live runs
 * wait for from emit to handler is told before and during it. It fails when a live p99 is more than 1.5 times its usual, a record does
 * not add up, or an event has not exactly one run.
 */
import { parseArgs } from "node:util";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { createClient, createFunction, createWorker, type Repair } from "../../src/sdk/index.ts";
import { openStore } from "../../src/store/open.ts";
import type { Store } from "../../src/store/store.ts";
import { plant } from "../support/plant.ts";
import {
  type EngineName,
  engines,
  type Home,
  makeHome,
  type SpawnedServer,
  spawnServer,
} from "../support/server.ts";
import { until } from "../support/until.ts";
import { percentile } from "./figures.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    only: { type: "string" },
    runs: { type: "string", default: "100000" },
    events: { type: "string", default: "1000000" },
    every: { type: "string", default: "10" },
    rate: { type: "string", default: "200" },
    quiet: { type: "string", default: "20" },
  },
});
const [runCount, eventCount, every] = [Number(given.runs), Number(given.events), Number(given.every)];
const [rate, quietMs] = [Number(given.rate), Number(given.quiet) * 1_000];
const ratioMax = 1.5;
const tickMs = 20;
/** Long enough that what waited for a server is over. */
const settleMs = 6_000;
const env = "env_default";
const sliceRows = 20_000;
/** Retention leaves alone what is of yesterday. */
const begunAt = Date.now() - 24 * 60 * 60 * 1000;
const longMs = 3 * 60 * 60 * 1000;

async function withStore<T>({ place }: Home, work: (store: Store) => Promise<T>): Promise<T> {
  const store = await openStore({
    ...{ clock: systemClock(), log: silentLog, file: place.db, databaseUrl: place.databaseUrl },
    ...{ poolSize: 1, hotPoolSize: 1 },
  });
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}

/** As long as ids are; jobs are named by those of their runs. */
const idOf = (kind: string, from: number) => `'${kind}_01m8000000' || (1000000000000000 + ${from} + n)`;

/** Events of the past behind the head, `wanted` of every so many. */
async function plantEvents(store: Store, count: number, name: string): Promise<number> {
  const head = await store.one<{ position: number; last_at: number }>(
    sql`SELECT position, last_at FROM heads WHERE environment_id = ${env}`,
  );
  const first = head!.position;
  const at = Math.max(head!.last_at, begunAt);
  for (let from = 0; from < count; from += sliceRows)
    await plant(store, "events", Math.min(sliceRows, count - from), {
      ...{ environment_id: `'${env}'`, position: `${first + from} + n`, id: idOf("evt", from) },
      ...{ name, version: "1", data: `'{"n":' || n || '}'`, source: "'api'", at: `${at}` },
    });
  await store.write((session) =>
    session.run(sql`UPDATE heads SET position = ${sql.bigint(first + count)},
      last_at = ${sql.bigint(at)} WHERE environment_id = ${env}`),
  );
  return first + 1;
}

const startedAt = performance.now();
/** What the bench has come to, with the seconds since it began. */
const progress = (text: string) =>
  console.log(`  [${((performance.now() - startedAt) / 1000).toFixed(0)} s] ${text}`);
const progressEvery = 100_000;

async function plantFailed(store: Store): Promise<void> {
  await plantEvents(store, runCount, "'bench.past'");
  progress(`${runCount} events planted`);
  for (let from = 0; from < runCount; from += sliceRows)
    await plant(store, "runs", Math.min(sliceRows, runCount - from), {
      ...{ environment_id: `'${env}'`, id: idOf("run", from), event_name: "'bench.past'" },
      ...{ function_id: "'bench-broken'", function_version: "1", event_id: idOf("evt", from) },
      ...{ mode: "'pull'", status: "'failed'", trouble: "'failed'", attempt: "1", max_attempts: "1" },
      ...{ created_at: `${begunAt + from} + n`, updated_at: `${begunAt}`, ended_at: `${begunAt}` },
      execution_seq: "1",
    });
  progress(`${runCount} failed runs planted`);
}

/** Live runs at an even rate, once they begin; what each waited for from its emit to its handler. */
function openLive(server: SpawnedServer, event: string) {
  const client = createClient({ url: server.url, apiKey: server.adminKey });
  let waits: number[] = [];
  let isOn = false;
  let going: Promise<void> = Promise.resolve();
  let sent = 0;
  const emits = new Set<Promise<unknown>>();
  const emit = async (at: number): Promise<void> => {
    // The server is down for a moment when it is started anew.
    for (;;) {
      try {
        await client.emit(event, { at }, { idempotencyKey: `live-${at}-${sent}` });
        return;
      } catch {
        await Bun.sleep(100);
      }
    }
  };
  const go = async () => {
    const from = performance.now();
    const before = sent;
    while (isOn) {
      for (; sent - before < ((performance.now() - from) * rate) / 1000; sent++) {
        const one = emit(performance.now()).finally(() => emits.delete(one));
        emits.add(one);
      }
      await Bun.sleep(tickMs);
    }
    await Promise.all(emits);
  };
  return {
    begin() {
      isOn = true;
      going = go();
    },
    handled: ({ at }: { at: number }) => void waits.push(performance.now() - at),
    taken() {
      const sorted = waits.sort((one, other) => one - other);
      waits = [];
      const [p50, p95, p99] = [0.5, 0.95, 0.99].map((share) => percentile(sorted, share)) as number[];
      const times = `p50 ${p50!.toFixed(1)} ms, p95 ${p95!.toFixed(1)} ms, p99 ${p99!.toFixed(1)} ms`;
      return { p99: p99!, text: `${times} of ${sorted.length}` };
    },
    async stop() {
      isOn = false;
      await going;
    },
  };
}

type Live = ReturnType<typeof openLive>;

const liveOne = (live: Live) =>
  createFunction<Record<string, { at: number }>>(
    { id: "bench-live", triggers: [{ event: "bench.live" }] },
    async ({ event }) => live.handled(event.data),
  );

/** Begins, and answers what live runs wait for with nothing beside them. */
async function usualOf(live: Live): Promise<ReturnType<Live["taken"]>> {
  live.begin();
  await Bun.sleep(settleMs);
  live.taken();
  await Bun.sleep(quietMs);
  return live.taken();
}

function judge(what: string, before: ReturnType<Live["taken"]>, during: ReturnType<Live["taken"]>): void {
  const ratio = during.p99 / before.p99;
  console.log(`  live before: ${before.text}; during: ${during.text}; p99 ${ratio.toFixed(2)} times`);
  require(ratio <= ratioMax, `${what}: live p99 is ${ratio.toFixed(2)} times its usual`);
}

function require(holds: boolean, what: string): void {
  if (holds) return;
  console.error(`FAILED ${what}`);
  process.exitCode = 1;
}

interface Place {
  engine: EngineName;
  home: Home;
  server: SpawnedServer;
}

const clientOf = ({ url, adminKey: apiKey }: SpawnedServer) => createClient({ url, apiKey });

const ended = (server: SpawnedServer, id: string): Promise<Repair> =>
  until(
    async () => {
      const one = await clientOf(server)
        .repairs.get(id)
        .catch(() => undefined);
      return one?.endedAt !== undefined && one;
    },
    { about: "the end of the work", deadlineMs: longMs, everyMs: 1_000 },
  );

const doneOf = async (server: SpawnedServer, id: string): Promise<number> =>
  (await clientOf(server).repairs.get(id)).counts.done;

/** Rows come in beside a server that is down: it keeps the head of the log. */
async function planted<T>({ home, server }: Place, work: (store: Store) => Promise<T>): Promise<T> {
  await server.terminate();
  const result = await withStore(home, work);
  await server.restart();
  return result;
}

async function repair(place: Place): Promise<void> {
  const { engine, server } = place;
  await planted(place, plantFailed);
  const live = openLive(server, "bench.live");
  const { url, adminKey: apiKey } = server;
  const times = new Map<string, number>();
  const broken = createFunction({ id: "bench-broken" }, async ({ run }) => {
    times.set(run.id, (times.get(run.id) ?? 0) + 1);
  });
  const worker = createWorker({ url, apiKey, functions: [liveOne(live), broken], maxConcurrentJobs: 100 });
  await worker.start();
  const before = await usualOf(live);

  const from = performance.now();
  const filter = { functionId: "bench-broken" };
  const { id } = await clientOf(server).repairs.start("resume", { filter, reason: "the bench" });
  await until(async () => (await doneOf(server, id)) >= runCount / 3, {
    ...{ about: "a third of the runs", deadlineMs: longMs, everyMs: 500 },
  });
  const during = live.taken();
  await clientOf(server).repairs.pause(id);
  await server.terminate();
  await server.restart();
  await clientOf(server).repairs.continue(id);
  // What waited for the restart counts neither way.
  await Bun.sleep(settleMs);
  live.taken();
  const { counts } = await ended(server, id);
  const after = live.taken();
  const seconds = (performance.now() - from) / 1000;
  await until(() => times.size === runCount, { about: "every run again", deadlineMs: 60_000 });
  await live.stop();
  await worker.stop();
  console.log(`${engine}: ${runCount} failed runs resumed in ${seconds.toFixed(0)} s, over a restart`);
  const twice = [...times.values()].filter((count) => count !== 1).length;
  console.log(`  the record: ${JSON.stringify(counts)}; handlers entered more than once: ${twice}`);
  judge("repair", before, during);
  judge("repair, after the restart", before, after);
  require(counts.done === runCount && counts.pending === 0, "repair: the record does not add up");
}

async function replay(place: Place): Promise<void> {
  const { engine, home, server } = place;
  const name = `CASE WHEN n % ${every} = 0 THEN 'bench.wanted' ELSE 'bench.other' END`;
  const first = await planted(place, (store) => plantEvents(store, eventCount, name));
  const { url, adminKey: apiKey } = server;
  const live = openLive(server, "bench.live");
  const ofOne = openLive(server, "bench.wanted");
  const wanted = createFunction<Record<string, { at?: number }>>(
    { id: "bench-wanted", triggers: [{ event: "bench.wanted" }] },
    async ({ event: { data } }) => {
      if (data.at !== undefined) ofOne.handled({ at: data.at });
    },
  );
  const worker = createWorker({ url, apiKey, functions: [liveOne(live), wanted], maxConcurrentJobs: 100 });
  await worker.start();
  live.begin();
  ofOne.begin();
  await Bun.sleep(settleMs);
  live.taken();
  ofOne.taken();
  await Bun.sleep(quietMs);
  const [before, beforeOfOne] = [live.taken(), ofOne.taken()];
  const client = clientOf(server);
  const events = { from: first };
  const preview = await client.repairs.previewReplay("bench-wanted", events);
  console.log(`${engine}: preview ${JSON.stringify({ ...preview, samples: preview.samples.length })}`);

  const from = performance.now();
  const { id } = await client.repairs.replayEvents("bench-wanted", { ...events, thenLive: true });
  const part = eventCount / every / 2;
  await until(async () => (await doneOf(server, id)) >= part, {
    ...{ about: "half of the events", deadlineMs: longMs, everyMs: 200 },
  });
  const [during, duringOfOne] = [live.taken(), ofOne.taken()];
  await server.kill9();
  await server.restart();
  const { counts } = await ended(server, id);
  const seconds = (performance.now() - from) / 1000;
  await Promise.all([live.stop(), ofOne.stop()]);
  await worker.stop();
  await server.terminate();
  const found = await withStore(home, (store) =>
    store.one<{ events: number; once: number; runs: number }>(sql`SELECT count(*) AS events,
      CAST(COALESCE(sum(CASE WHEN r.runs = 1 THEN 1 ELSE 0 END), 0) AS BIGINT) AS once,
      CAST(COALESCE(sum(r.runs), 0) AS BIGINT) AS runs
      FROM events e LEFT JOIN (SELECT event_id, count(*) AS runs FROM runs
        WHERE environment_id = ${env} AND function_id = 'bench-wanted' GROUP BY event_id) r ON r.event_id = e.id
      WHERE e.environment_id = ${env} AND e.name = 'bench.wanted'`),
  );
  console.log(
    `  ${eventCount} events replayed in ${seconds.toFixed(0)} s, over a kill: ${JSON.stringify(counts)}`,
  );
  console.log(`  matching events: ${JSON.stringify(found)}`);
  judge("replay", before, during);
  console.log(`  live of the same function before: ${beforeOfOne.text}; during: ${duringOfOne.text}`);
  require(found!.once === found!.events && found!.runs === found!.events, "replay: not one run each");
  require(counts.done + counts.skipped! >= eventCount / every, "replay: the record does not add up");
}

async function deletion(place: Place): Promise<void> {
  const { engine, server } = place;
  await planted(place, plantFailed);
  const live = openLive(server, "bench.live");
  const { url, adminKey: apiKey } = server;
  const worker = createWorker({ url, apiKey, functions: [liveOne(live)], maxConcurrentJobs: 100 });
  await worker.start();
  const before = await usualOf(live);
  const client = clientOf(server);
  const from = performance.now();
  let gone = 0;
  progress("the deletion begins");
  for (let hasMore = true; hasMore; ) {
    const answer = await client.runs.deleteMany({ functionId: "bench-broken", limit: 10_000 });
    gone += answer.deleted;
    hasMore = answer.hasMore;
    if (gone % progressEvery < answer.deleted) progress(`${gone} runs deleted`);
  }
  const seconds = (performance.now() - from) / 1000;
  const during = live.taken();
  await live.stop();
  await worker.stop();
  console.log(`${engine}: ${gone} runs deleted in ${seconds.toFixed(0)} s`);
  judge("deletion", before, during);
  require(gone === runCount, "deletion: not all are gone");
}

const scenes = { repair, replay, deletion };

for (const engine of engines)
  for (const [name, scene] of Object.entries(scenes)) {
    if ((given.engine ?? engine) !== engine || (given.only ?? name) !== name) continue;
    const home = await makeHome(engine);
    const server = await spawnServer({ engine, home });
    try {
      await scene({ engine, home, server });
    } finally {
      await server.stop();
      await home.remove();
    }
  }
process.exit();
