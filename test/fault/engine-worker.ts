import { appendFileSync } from "node:fs";
import { createFunction, createWorker, NonRetryableError, type SvcFunction } from "../../src/sdk/index.ts";
import {
  answerOf,
  childInput,
  failuresUpTo,
  type Line,
  type Program,
  signalKey,
} from "../support/run-program.ts";
import { debounceMs, programs, startOf } from "./programs.ts";

// A worker process that runs programs.ts: `engine-worker.ts NAME JOURNAL rest|stream`, as test/cluster/worker-program.ts.
// Besides steps it notes each wait that it is about to ask for: `{worker} wait {run} {signal key}`.
const [name, journal, transport] = process.argv.slice(2);
if (!name || !journal || (transport !== "rest" && transport !== "stream"))
  throw new Error("usage: engine-worker.ts NAME JOURNAL rest|stream");

const note = (...words: string[]) => appendFileSync(journal, `${[name, ...words].join(" ")}\n`);
const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

const matchOf = (form: (Line & { kind: "wait" })["form"], key: string) =>
  ({
    path: { match: "k", matchValue: key },
    literal: { match: `data.k == ${JSON.stringify(key)}` },
    cel: { match: `data.k.startsWith(${JSON.stringify(key)}) && event.name == "signal"` },
  })[form];

const functionOf = (program: Program): SvcFunction<never, unknown> =>
  createFunction<{ [name: string]: { input: string } }>(
    {
      id: program.id,
      // A function with triggers cannot be invoked by a run.
      ...(program.id !== "child" && { event: startOf(program.id) }),
      retry: { maxAttempts: program.maxAttempts, initialDelayMs: 100 },
      ...(program.concurrency && { concurrency: { limit: program.concurrency.limit, key: "lane" } }),
    },
    async ({ event, step, run }) => {
      const { input } = event.data;
      const outputs: unknown[] = [];
      const lineOf: Record<Line["kind"], (line: never, place: number) => Promise<unknown>> = {
        async step(line: Line & { kind: "step" }, place) {
          let ran = false;
          const output = await step.run(line.name, async () => {
            ran = true;
            note("start", run.id, line.name);
            await pause(5);
            if (line.failures > 0 && run.attempt <= failuresUpTo(program, place)) throw new Error("not yet");
            return answerOf(input, line.name);
          });
          if (ran) note("stored", run.id, line.name);
          return output;
        },
        async sleep(line: Line & { kind: "sleep" }) {
          await step.sleep(line.name, line.ms);
          return "sleep";
        },
        async wait(line: Line & { kind: "wait" }) {
          const key = signalKey(input, line.name);
          note("wait", run.id, key);
          await step.waitForEvent("signal", {
            name: line.name,
            ...matchOf(line.form, key),
            timeout: "1h",
            onTimeout: "throw",
          });
          return "wait";
        },
        async invoke(line: Line & { kind: "invoke" }) {
          const child = { input: { input: childInput(input, line.name) } };
          if (!line.detached) return step.invoke(line.child, { ...child, timeoutMs: 3_600_000 });
          await step.invokeAsync(line.child, child);
          return "invoke";
        },
      };
      for (const [place, line] of program.lines.entries())
        outputs.push(await lineOf[line.kind](line as never, place));
      if (program.endsBadly) throw new NonRetryableError("bad end");
      return outputs;
    },
  ) as never;

const debounced = createFunction<{ burst: { burst: string; number: number } }>(
  { id: "debounced", event: "burst", debounce: { periodMs: debounceMs, key: "burst" } },
  ({ event, step }) => step.run("count", () => event.data.number),
);

const ticker = createFunction({ id: "ticker", cron: "* * * * * *" }, ({ step }) =>
  step.run("tick", () => "tick"),
);

const worker = createWorker({
  functions: [...programs.map(functionOf), debounced, ticker] as SvcFunction[],
  transport,
  workerId: name,
  maxConcurrentJobs: 20,
  checkpointMs: 0,
  handleSignals: false,
  log: { debug() {}, info() {}, warn: (text) => note("warn", text), error: (text) => note("error", text) },
});
await worker.start();
note("ready");
await worker.closed;
