/** The worker of the bench: a function of three trivial steps. On SIGUSR2 it prints what it has done since the last time. */
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";

const { url, key } = JSON.parse(process.argv[2]!) as { url: string; key: string };
const client = createClient({ url, apiKey: key });
let latencies: number[] = [];

const three = createFunction({ id: "bench-three-steps", event: "bench.run" }, async ({ event, step }) => {
  const one = await step.run("one", () => 1);
  const two = await step.run("two", () => one + 1);
  const result = await step.run("three", () => two + 1);
  latencies.push(Date.now() - (event.data as { at: number }).at);
  return { result };
});

const worker = createWorker({ client, functions: [three], maxConcurrentJobs: 200, handleSignals: false });
await worker.start();
process.stdout.write("ready\n");
process.on("SIGUSR2", () => {
  latencies.sort((a, b) => a - b);
  const at = (share: number) => latencies[Math.floor(latencies.length * share)] ?? 0;
  process.stdout.write(`${JSON.stringify({ done: latencies.length, p50: at(0.5), p95: at(0.95) })}\n`);
  latencies = [];
});
