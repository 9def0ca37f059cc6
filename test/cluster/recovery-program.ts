import { appendFileSync, existsSync } from "node:fs";
import { createFunction, createWorker } from "../../src/sdk/index.ts";

// A worker as a user's process: `recovery-program.ts NAME JOURNAL FUNCTION TRANSPORT JOBS`, server and key by
// SVC_SERVER_URL and SVC_API_KEY. Runs of FUNCTION-NAME are its alone and return at once. It notes in JOURNAL which step begins, and what the server refused. Step "two" holds up
// the whole thread for `blockMs` of the event, or waits for the file JOURNAL.FUNCTION.
const [name, journal, id, transport, jobs] = process.argv.slice(2);
if (!name || !journal || !id)
  throw new Error("usage: recovery-program.ts NAME JOURNAL FUNCTION TRANSPORT JOBS");

const note = (...words: string[]) => appendFileSync(journal, `${[name, ...words].join(" ")}\n`);
const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

const two = createFunction<{ [event: string]: { blockMs?: number } }>(
  { id, event: `go.${id}` },
  async ({ event, step, run, log }) => {
    log.info("begins");
    await step.run("one", () => {
      note("start", run.id, "one");
      log.info("one");
    });
    return step.run("two", async () => {
      note("start", run.id, "two");
      log.info("two");
      const { blockMs } = event.data;
      if (blockMs) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockMs);
      else while (!existsSync(`${journal}.${id}`)) await pause(10);
      return name;
    });
  },
);

const own = createFunction({ id: `${id}-${name}`, event: `go.${id}-${name}` }, async () => name);

const worker = createWorker({
  functions: [two, own],
  workerId: name,
  transport: transport === "stream" ? "stream" : "rest",
  maxConcurrentJobs: Number(jobs ?? 4),
  // Strict: a step that returned is stored.
  checkpointMs: 0,
  handleSignals: false,
  log: {
    debug() {},
    info() {},
    warn: (text, fields) => note("warn", String(fields?.code ?? text)),
    error: (text) => note("error", text),
  },
});
await worker.start();
note("ready");
await worker.closed;
