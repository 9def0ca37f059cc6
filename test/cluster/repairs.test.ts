import { afterAll, beforeAll, expect, test } from "bun:test";
import { createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { startNats } from "../support/nats.ts";
import { makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const many = 150;
const past = 300;

/** Two nodes of one database; the workers are connected to the second. */
let home: Awaited<ReturnType<typeof makeHome>>;
let bus: Awaited<ReturnType<typeof startNats>>;
let nodes: SpawnedServer[] = [];
let worker: Worker;
let replayer: Worker | undefined;
let isBroken = true;
const handled = new Map<string, number>();

const mended = createFunction(
  { id: "mended", triggers: [{ event: "mend.me" }], retry: { maxAttempts: 1 } },
  async ({ run }) => {
    if (isBroken) throw new Error("the provider is away");
    handled.set(run.id, (handled.get(run.id) ?? 0) + 1);
  },
);

beforeAll(async () => {
  [home, bus] = await Promise.all([makeHome("postgres"), startNats()]);
  nodes = [await spawnServer({ engine: "postgres", nats: bus.url, home })];
  nodes.push(await spawnServer({ engine: "postgres", nats: bus.url, home }));
  const { url, adminKey: apiKey } = nodes[1]!;
  worker = createWorker({ url, apiKey, functions: [mended], maxConcurrentJobs: 20 });
  await worker.start();
}, 120_000);
afterAll(async () => {
  await Promise.all([worker?.stop(), replayer?.stop()]);
  for (const node of nodes) await node.stop();
  await bus?.stop();
  await home?.remove();
}, 120_000);

/**
 * A replay in an environment of its own: a node works on both at once. Its function is paused until then, as the second
 * node knows, which takes events while the first one hands over.
 */
async function beginReplay([first, second]: readonly [SpawnedServer, SpawnedServer]) {
  const { id: env } = (await first.api("/api/v1/environments", { body: { name: "second" } })).body;
  const { key: apiKey } = (await first.api("/api/v1/apikeys", { body: { name: "second", env_id: env } }))
    .body;
  const client = createClient({ url: second.url, apiKey });
  const placed = () =>
    client.emitMany(Array.from({ length: 100 }, () => ({ event: "late.placed", data: {} })));
  const late = createFunction({ id: "late", triggers: [{ event: "late.placed" }] }, () => undefined);
  replayer = createWorker({ url: second.url, apiKey, functions: [late], maxConcurrentJobs: 20 });
  await replayer.start();
  await client.updateFunctionStatus("late", "paused");
  for (let sent = 0; sent < past; sent += 100) await placed();
  const asked = createClient({ url: first.url, apiKey });
  const handingOver = [placed(), placed(), placed()];
  const { id } = await asked.repairs.replayEvents(late, { thenLive: true });
  await Promise.all(handingOver);
  const get = () => client.repairs.get(id);
  const runs = async () => {
    const eventIds: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await client.listRuns({ functionId: "late", limit: 100, ...(cursor && { cursor }) });
      eventIds.push(...page.runs.map(({ eventId }) => eventId!));
      cursor = page.nextCursor;
    } while (cursor);
    return eventIds;
  };
  return { get, placed, runs };
}

test("a repair and a replay whose node is killed go on at the other, and act exactly once", async () => {
  const both = nodes as [SpawnedServer, SpawnedServer];
  const [first, second] = both;
  const client = createClient({ url: second.url, apiKey: second.adminKey });
  await Promise.all(Array.from({ length: many }, () => client.emit("mend.me", {})));
  const filter = { functionId: "mended" };
  const failed = () => client.repairs.preview("resume", filter);
  await until(async () => (await failed()).totalCount === many, {
    about: "the failures",
    deadlineMs: 20_000,
  });
  isBroken = false;
  const replay = await beginReplay(both);
  const someDone = async () => (await replay.get()).counts.done > 0;
  await until(someDone, { about: "the first replayed events", everyMs: 5, deadlineMs: 20_000 });

  // The node that is asked begins; the worker is connected to the other.
  const killed = createClient({ url: first.url, apiKey: first.adminKey });
  const { id } = await killed.repairs.start("resume", { filter });
  const begun = async () => (await client.repairs.get(id)).counts.done >= 20;
  await until(begun, { about: "the first runs", everyMs: 5, deadlineMs: 20_000 });
  await first.kill9();
  await replay.placed();
  const ended = await until(
    async () => {
      const repair = await client.repairs.get(id);
      return repair.status === "completed" && repair;
    },
    { about: "the end of the repair", deadlineMs: 60_000 },
  );
  expect(ended.counts).toEqual({ pending: 0, done: many, over: 0, refused: 0, failed: 0, undone: 0 });
  await until(() => handled.size === many, { about: "every run again", deadlineMs: 20_000 });
  expect([...handled.values()].filter((times) => times !== 1)).toEqual([]);
  const replayed = await until(
    async () => {
      const one = await replay.get();
      return one.status === "completed" && one;
    },
    { about: "the end of the replay", deadlineMs: 20_000 },
  );
  const { done, scanned } = replayed.counts;
  expect(replayed.counts).toMatchObject({ skipped: 0, scanned: done, failed: 0 });
  expect(scanned).toBe(replayed.replay!.liveFrom! - 1);
  const eventIds = await replay.runs();
  const all = past + 3 * 100 + 100;
  expect([eventIds.length, new Set(eventIds).size]).toEqual([all, all]);
}, 120_000);
