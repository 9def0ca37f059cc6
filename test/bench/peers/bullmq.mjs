// A queue on Redis: a job is kept once it is added; a run of three steps is a chain of three jobs.
import { fork } from "node:child_process";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import { callers, note, paced, tell, told } from "./load.mjs";

const { port, scenario, seconds } = JSON.parse(process.argv[2]);
const connection = new Redis(port, "127.0.0.1", { maxRetriesPerRequest: null });
const options = { removeOnComplete: true };
const now = () => performance.timeOrigin + performance.now();

/** The worker, a process of its own: tells how long each chain took, from its sending to the end of its last job. */
function work() {
  const queue = new Queue("chain", { connection });
  const took = [];
  const worker = new Worker(
    "chain",
    async ({ data: { at, place } }) => {
      if (place < 3) await queue.add("step", { at, place: place + 1 }, options);
    },
    { connection, concurrency: 100 },
  );
  worker.on("completed", ({ data: { at, place } }) => {
    if (place === 3) took.push(now() - at);
  });
  process.on("message", () => process.send(took.splice(0)));
  worker.waitUntilReady().then(() => process.send("ready"));
}

async function withWorker(run) {
  const worker = fork(process.argv[1], [JSON.stringify({ port, scenario: "work" })]);
  const said = () => new Promise((heard) => worker.once("message", heard));
  await said();
  const chains = async () => {
    worker.send("tell");
    return said();
  };
  const figures = await run(chains);
  worker.kill();
  return figures;
}

/** Waits until so many chains have ended. */
async function ended(chains, count) {
  const took = [];
  while (took.length < count) {
    took.push(...(await chains()));
    await new Promise((next) => setTimeout(next, 5));
  }
  return took;
}

const chain = new Queue("chain", { connection });
const start = () => chain.add("step", { at: now(), place: 1 }, options);
const kept = new Queue("kept", { connection });
const add = () => kept.add("event", { customer: "c-1042", total: 42.5, note }, options);

const scenarios = {
  lone: () => callers(1, seconds, add),
  callers: () => callers(64, seconds, add),
  batches: async () => {
    const jobs = Array.from({ length: 100 }, () => ({
      name: "event",
      data: { total: 42.5, note },
      opts: options,
    }));
    const { perS, count, ...times } = await callers(8, seconds, () => kept.addBulk(jobs));
    return { perS: perS * 100, count: count * 100, ...times };
  },
  runs: () =>
    withWorker(async (chains) => {
      await Promise.all(Array.from({ length: 500 }, start));
      await ended(chains, 500);
      const beginAt = performance.now();
      const count = 2_000 * seconds;
      let left = count;
      const sender = async () => {
        while (left-- > 0) await start();
      };
      const [took] = await Promise.all([ended(chains, count), ...Array.from({ length: 64 }, sender)]);
      return { perS: (count * 1_000) / (performance.now() - beginAt), count, ...told(took) };
    }),
  paced: () =>
    withWorker(async (chains) => {
      await Promise.all(Array.from({ length: 500 }, start));
      await ended(chains, 500);
      await paced(20, seconds, start);
      return { count: 20 * seconds, ...told(await ended(chains, 20 * seconds)) };
    }),
};

if (scenario === "work") work();
else {
  tell(await scenarios[scenario]());
  process.exit(0);
}
