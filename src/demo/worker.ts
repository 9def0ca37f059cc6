import { createWorker } from "../sdk/index.ts";
import { commitFunction } from "./handle-commit.ts";

// The demo's worker process: `worker.ts JOURNAL RESULTS`, server and key by SVC_SERVER_URL and SVC_API_KEY.
const [journal, results] = process.argv.slice(2);
if (!journal || !results) throw new Error("usage: worker.ts JOURNAL RESULTS");

const worker = createWorker({
  functions: [commitFunction({ journal, results })],
  maxConcurrentJobs: 20,
  // Strict: a step that returned is stored. That is what the demo checks.
  checkpoint: 0,
});
await worker.start();
process.stdout.write("ready\n");

// The worker ends with the process that started it.
process.stdin.on("end", () => worker.stop()).resume();
await worker.closed;
process.exit(0);
