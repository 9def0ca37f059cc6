/**
 * The worker of the bench: a function of three trivial steps, once without and once with a limit for each customer; with
 * `strict` a function of its own, of which each step is stored before the next one begins. A run counts once the server has acknowledged its last
 * report; how long that took since its emit was sent is kept, and printed on SIGUSR2 for the runs since the last time.
 */
import "./ends-with-parent.ts";
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";

const {
  url,
  key,
  strict = false,
  jobs = 200,
} = JSON.parse(process.argv[2]!) as { url: string; key: string; strict?: boolean; jobs?: number };
const client = createClient({ url, apiKey: key });

/** When the emit of each run was sent that has not been reported yet. */
const sentAt = new Map<string, number>();
let latencies: number[] = [];
let lastAt = 0;
const now = () => performance.timeOrigin + performance.now();

type Handler = Parameters<typeof createFunction>[1];

const threeSteps: Handler = async ({ event, step, run }) => {
  const one = await step.run("one", () => 1);
  const two = await step.run("two", () => one + 1);
  const result = await step.run("three", () => two + 1);
  sentAt.set(run.id, (event.data as { at: number }).at);
  return { result };
};
const three = createFunction({ id: "bench-three-steps", event: "bench.run" }, threeSteps);
const keyed = createFunction(
  { id: "bench-keyed", event: "bench.keyed", concurrency: { limit: 10, key: "customer" } },
  threeSteps,
);
const lines = createFunction({ id: "bench-lines", event: "bench.lines" }, (given) => {
  // Kept with the run, and below what the worker's own logger prints.
  for (let line = 1; line <= 10; line++) given.log.debug("a line of the bench", { line, of: 10 });
  return threeSteps(given);
});
const strictSteps = createFunction({ id: "bench-strict-steps", event: "bench.strict" }, threeSteps);

interface Exchanged {
  results?: { job_id: string; error?: string }[];
}

/** Reading the reports once more costs the worker one or two in a hundred of its CPU: they count as the worker's. */
function acknowledged(text: string, answer: Exchanged | undefined): void {
  const refused = new Set(answer?.results?.flatMap((result) => (result.error ? result.job_id : [])));
  const at = now();
  const { reports } = JSON.parse(text) as {
    reports: { job_id: string; run_id: string; status: string }[];
  };
  for (const { job_id, run_id, status } of reports) {
    const sent = sentAt.get(run_id);
    if (status !== "completed" || sent === undefined || refused.has(job_id)) continue;
    sentAt.delete(run_id);
    latencies.push(at - sent);
    lastAt = at;
  }
}

const { transport } = client;
const watched: typeof client = {
  ...client,
  transport: {
    ...transport,
    async send<Answer>(request: Parameters<typeof transport.send>[0]): Promise<Answer> {
      const answer = await transport.send<Answer>(request);
      if (request.text?.startsWith('{"reports":[{')) acknowledged(request.text, answer as Exchanged);
      return answer;
    },
  },
};

process.on("SIGUSR2", () => {
  const rounded = latencies.map((ms) => Math.round(ms * 100) / 100);
  process.stdout.write(`${JSON.stringify({ lastAt, latencies: rounded })}\n`);
  latencies = [];
});
const worker = createWorker({
  client: watched,
  functions: strict ? [strictSteps] : [three, keyed, lines],
  maxConcurrentJobs: jobs,
  ...(strict && { checkpointMs: 0 }),
  handleSignals: false,
});
await worker.start();
process.stdout.write("ready\n");
