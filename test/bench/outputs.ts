/**
 * `bun run bench:outputs [--engine postgres|libsql] [--only readers|writers] [--seconds 15] [--pace 200]`
 *
 * Outputs of runs, from `write` to a reader of server-sent events. `readers`: one run writes so many chunks a second to 500
 * readers. `writers`: a hundred runs do, each with a reader, beside emits at an even rate, whose latency stands beside that before. It
 * fails when a chunk is missing, comes twice, or takes over half a second at p99, or when emits take over 1.2 times their usual.
 * The same readers of a bare server that writes prepared bytes are the floor: where it misses a target, the target does not count.
 */
import { parseArgs } from "node:util";
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";
import { engines, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { runToEnd, startProgram, stopAll } from "./processes.ts";

const { values: given } = parseArgs({
  options: {
    engine: { type: "string" },
    only: { type: "string" },
    seconds: { type: "string", default: "15" },
    pace: { type: "string", default: "200" },
  },
});
const [seconds, pace] = [Number(given.seconds), Number(given.pace)];
const p99Max = 500;
const timesMax = 1.2;
/** A caller has at most 200 readers. */
const keysOfReaders = 3;
const emits = { callers: 8, rate: 200, batch: 1, event: "bench.nobody" };

// Bun has at most 256 requests under way by itself; the program of the readers inherits this.
process.env.BUN_CONFIG_MAX_HTTP_REQUESTS = "1000";

const now = () => performance.timeOrigin + performance.now();

function require(holds: boolean, what: string): void {
  if (holds) return;
  console.error(`FAILED ${what}`);
  process.exitCode = 1;
}

interface Seen {
  chunks: number;
  wrong: number;
  p50: number;
  p99: number;
  max: number;
}

type Readers = Awaited<ReturnType<typeof startProgram>>;

const told = ({ p50, p95, p99 }: Record<string, number>) =>
  [p50, p95, p99].map((ms) => ms!.toFixed(1)).join(" / ");
const agesOf = ({ p50, p99, max }: Seen) =>
  `p50 ${p50.toFixed(0)} p99 ${p99.toFixed(0)} max ${max.toFixed(0)} ms`;

/** What the readers saw, once they have all ended. */
async function seenBy(readers: Readers, count: number): Promise<Seen> {
  const seen = await until(
    async () => {
      const one = await readers.tell<Seen & { ended: number }>();
      return one.ended === count && one;
    },
    { about: "the end of every reader", deadlineMs: (seconds + 120) * 1_000, everyMs: 500 },
  );
  await readers.stop();
  return seen;
}

/** The same readers of prepared bytes. */
async function floorOf(runCount: number, readersOfEach: number, during = async () => {}): Promise<Seen> {
  const bare = await startProgram("outputs-bare.ts", {}, { first: "url " });
  const url = bare.line.slice("url ".length);
  const runIds = Array.from({ length: runCount }, (_, place) => `${place}`);
  const readers = await startProgram(
    "outputs-readers.ts",
    { url, keys: ["none"], runIds, readersOfEach },
    { first: "ready" },
  );
  await fetch(`${url}/go?seconds=${seconds}&pace=${pace}`, { method: "POST" });
  await during();
  const seen = await seenBy(readers, runCount * readersOfEach);
  await bare.stop();
  console.log(`  floor: ${seen.chunks} chunks, ${agesOf(seen)}`);
  return seen;
}

async function keysOf(server: SpawnedServer): Promise<string[]> {
  const make = async (name: string) => {
    const answer = await server.api("/api/v1/apikeys", { body: { name, role_ids: ["role_admin"] } });
    if (answer.status >= 300) throw new Error(JSON.stringify(answer.body));
    return (answer.body as { key: string }).key;
  };
  return Promise.all(Array.from({ length: keysOfReaders }, (_, place) => make(`reader-${place}`)));
}

/** So many runs write at once, and `readers` of them each; what the readers saw. */
async function written(
  server: SpawnedServer,
  floor: Seen,
  [runCount, readersOfEach]: [number, number],
  during = async () => {},
) {
  const { url, adminKey: apiKey } = server;
  const client = createClient({ url, apiKey });
  const gate = Promise.withResolvers<void>();
  let entered = 0;
  let refused = 0;
  const writes = createFunction({ id: "bench-output", retry: { maxAttempts: 1 } }, async ({ run }) => {
    entered++;
    await gate.promise;
    const output = run.output("tokens");
    const from = performance.now();
    for (let made = 0; made < seconds * pace; ) {
      for (; made < ((performance.now() - from) / 1_000) * pace && made < seconds * pace; made++)
        void output.write({ at: now(), token: " word" }).catch(() => refused++);
      await Bun.sleep(5);
    }
  });
  const worker = createWorker({ url, apiKey, functions: [writes], maxConcurrentJobs: runCount });
  await worker.start();
  const runIds = await Promise.all(
    Array.from({ length: runCount }, async () => (await client.invokeFunction(writes, {})).runId),
  );
  await until(() => entered === runCount, { about: "every run", deadlineMs: 30_000 });
  const keys = await keysOf(server);
  const readers = await startProgram(
    "outputs-readers.ts",
    { url, keys, runIds, readersOfEach },
    { first: "ready" },
  );
  const began = performance.now();
  gate.resolve();
  await during();
  const seen = await seenBy(readers, runCount * readersOfEach);
  const took = (performance.now() - began) / 1_000;
  await worker.stop();
  const wanted = runCount * readersOfEach * seconds * pace;
  console.log(
    `  ${runCount} runs x ${pace}/s for ${took.toFixed(1)} s, ${runCount * readersOfEach} readers: ${seen.chunks} of ${wanted} chunks, ${agesOf(seen)}; refused ${refused}; p99 ${(seen.p99 / floor.p99).toFixed(2)} times the floor`,
  );
  require(seen.chunks === wanted && seen.wrong === 0, `chunks: ${seen.wrong} out of order`);
  require(seen.p99 <= p99Max || floor.p99 > p99Max, `p99 is over ${p99Max} ms`);
}

const scenes: Record<string, (server: SpawnedServer) => Promise<void>> = {
  readers: async (server) => written(server, await floorOf(1, 500), [1, 500]),
  async writers(server) {
    const load = () => runToEnd("load.ts", { url: server.url, key: server.adminKey, ...emits, seconds });
    const floors: Record<string, number>[] = [];
    const besides: Record<string, number>[] = [];
    await load();
    const before = await load();
    const floor = await floorOf(100, 1, async () => void floors.push(await load()));
    await written(server, floor, [100, 1], async () => void besides.push(await load()));
    const [besideFloor, beside] = [floors[0]!, besides[0]!];
    console.log(
      `  emits at ${emits.rate}/s, p50 / p95 / p99 ms: before ${told(before)}, beside the floor ${told(besideFloor)}, beside ${told(beside)}`,
    );
    require(beside.p50! <= Math.max(before.p50!, besideFloor.p50!) * timesMax, "emits beside it are slower");
  },
};

for (const engine of engines)
  for (const [name, scene] of Object.entries(scenes)) {
    if ((given.engine ?? engine) !== engine || (given.only ?? name) !== name) continue;
    const server = await spawnServer({ engine });
    console.log(`${engine}, ${name}`);
    try {
      await scene(server);
    } finally {
      await stopAll();
      await server.stop();
    }
  }
process.exit();
