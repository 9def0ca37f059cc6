/**
 * Functions that park: asleep for days, waiting for days, asleep for a few seconds, and asleep until one moment together.
 * On SIGUSR2 prints how many runs have parked since the last time, and how late (ms) the short sleeps went on since then.
 */
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";

const { url, key } = JSON.parse(process.argv[2]!) as { url: string; key: string };
const napMs = 5_000;
const napping = new Map<string, number>();
let parked = 0;
let lateness: number[] = [];

const sleeping = createFunction({ id: "bench-sleeping", event: "bench.sleep" }, async ({ step }) => {
  parked++;
  await step.sleep("long", "3d");
});
const waiting = createFunction({ id: "bench-waiting", event: "bench.wait" }, async ({ step }) => {
  parked++;
  await step.waitForEvent("bench.signal", { match: "data.at", timeout: "3d" });
});
/** All that are sent within a span of 20 s sleep until the end of the next. */
const together = createFunction(
  { id: "bench-together", event: "bench.together" },
  async ({ event, step }) => {
    const spanMs = 20_000;
    const dueAt = (Math.floor((event.data as { at: number }).at / spanMs) + 2) * spanMs;
    await step.sleepUntil("moment", dueAt);
    lateness.push(Date.now() - dueAt);
  },
);
/** Counted from the first execution in the worker: its report and the second claim are part of the lateness. */
const nap = createFunction({ id: "bench-nap", event: "bench.nap" }, async ({ step, run }) => {
  if (!napping.has(run.id)) napping.set(run.id, performance.now());
  await step.sleep("short", `${napMs / 1000}s`);
  lateness.push(performance.now() - napping.get(run.id)! - napMs);
  napping.delete(run.id);
});

process.on("SIGUSR2", () => {
  process.stdout.write(`${JSON.stringify({ parked, lateness })}\n`);
  parked = 0;
  lateness = [];
});
const worker = createWorker({
  client: createClient({ url, apiKey: key }),
  functions: [sleeping, waiting, nap, together],
  maxConcurrentJobs: 200,
  handleSignals: false,
});
await worker.start();
process.stdout.write("ready\n");
