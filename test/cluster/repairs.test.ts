import { afterAll, beforeAll, expect, test } from "bun:test";
import { createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { startNats } from "../support/nats.ts";
import { makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const many = 150;

/** Two nodes of one database; the worker is connected to the second. */
let home: Awaited<ReturnType<typeof makeHome>>;
let bus: Awaited<ReturnType<typeof startNats>>;
let nodes: SpawnedServer[] = [];
let worker: Worker;
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
}, 60_000);
afterAll(async () => {
  await worker?.stop();
  for (const node of nodes) await node.stop();
  await bus?.stop();
  await home?.remove();
}, 60_000);

test("a repair whose node is killed goes on at the other, and acts on each run exactly once", async () => {
  const [first, second] = nodes as [SpawnedServer, SpawnedServer];
  const client = createClient({ url: second.url, apiKey: second.adminKey });
  await Promise.all(Array.from({ length: many }, () => client.emit("mend.me", {})));
  const filter = { functionId: "mended" };
  const failed = () => client.repairs.preview("resume", filter);
  await until(async () => (await failed()).totalCount === many, {
    about: "the failures",
    deadlineMs: 20_000,
  });
  isBroken = false;

  // The node that is asked begins; the worker is connected to the other.
  const killed = createClient({ url: first.url, apiKey: first.adminKey });
  const { id } = await killed.repairs.start("resume", { filter });
  const begun = async () => (await client.repairs.get(id)).counts.done >= 20;
  await until(begun, { about: "the first runs", everyMs: 5, deadlineMs: 20_000 });
  await first.kill9();
  const ended = await until(
    async () => {
      const repair = await client.repairs.get(id);
      return repair.status === "completed" && repair;
    },
    { about: "the end of the repair", deadlineMs: 20_000 },
  );
  expect(ended.counts).toEqual({ pending: 0, done: many, over: 0, refused: 0, failed: 0, undone: 0 });
  await until(() => handled.size === many, { about: "every run again", deadlineMs: 20_000 });
  expect([...handled.values()].filter((times) => times !== 1)).toEqual([]);
}, 60_000);
