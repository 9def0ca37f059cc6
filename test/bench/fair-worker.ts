/**
 * One function of 20 ms for two customers, each a key of its own, in a worker of 50 runs at a time. On SIGUSR2 prints how
 * many runs of the heavy one have begun since the last time, and how long (ms) those of the light one waited since their emit.
 */
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";

const { url, key } = JSON.parse(process.argv[2]!) as { url: string; key: string };
let heavy = 0;
let lightWaits: number[] = [];

const shared = createFunction(
  {
    id: "bench-shared",
    triggers: [{ event: "bench.heavy" }, { event: "bench.light" }],
    concurrency: { limit: 1_000, key: "customer" },
  },
  async ({ event }) => {
    if (event.name === "bench.heavy") heavy++;
    else lightWaits.push(performance.timeOrigin + performance.now() - (event.data as { at: number }).at);
    await Bun.sleep(20);
  },
);

process.on("SIGUSR2", () => {
  process.stdout.write(`${JSON.stringify({ heavy, lightWaits })}\n`);
  heavy = 0;
  lightWaits = [];
});
const worker = createWorker({
  client: createClient({ url, apiKey: key }),
  functions: [shared],
  maxConcurrentJobs: 50,
  handleSignals: false,
});
await worker.start();
process.stdout.write("ready\n");
