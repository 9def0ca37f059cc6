import { appendFileSync, existsSync } from "node:fs";
import { createFunction, createWorker } from "../../src/sdk/index.ts";

// A worker as a user's process: `worker-program.ts NAME JOURNAL [GATE]`, server and key by SVC_SERVER_URL and SVC_API_KEY.
// It notes in JOURNAL which step begins and which the server has stored, who won a race each time that the handler came
// by, and what the server refused. Step "two" waits for the file GATE.
const [name, journal, gate] = process.argv.slice(2);
if (!name || !journal) throw new Error("usage: worker-program.ts NAME JOURNAL [GATE]");

const note = (...words: string[]) => appendFileSync(journal, `${[name, ...words].join(" ")}\n`);
const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));
const work: Record<string, () => Promise<unknown>> = {
  one: async () => "first",
  two: async () => {
    while (gate && !existsSync(gate)) await pause(10);
    await pause(5);
    return name;
  },
};

const steps = createFunction({ id: "steps", event: "step.me" }, async ({ step, run }) => {
  const outputs: unknown[] = [];
  for (const stepName of Object.keys(work)) {
    let ran = false;
    outputs.push(
      await step.run(stepName, async () => {
        ran = true;
        note("start", run.id, stepName);
        return work[stepName]!();
      }),
    );
    if (ran) note("stored", run.id, stepName);
  }
  return outputs;
});

/** Three races, with lines as many as a run keeps. */
const races = createFunction({ id: "races", event: "race.me" }, async ({ step, run, log }) => {
  const winners: string[] = [];
  for (const round of ["1", "2", "3"]) {
    const runner = (runnerName: string) =>
      step.run(`${runnerName}-${round}`, async () => {
        await pause(5);
        return runnerName;
      });
    const asleep = step.sleep(`asleep-${round}`, "10ms").then(() => "asleep");
    const winner = await Promise.race([runner("left"), runner("right"), asleep]);
    note("won", run.id, round, winner);
    winners.push(winner);
    for (let line = 1; line <= 66; line++) log.info(`${round} ${winner} ${line}`);
  }
  return winners;
});

const ask = globalThis.fetch;
globalThis.fetch = Object.assign(
  async (...request: Parameters<typeof fetch>) => {
    const answer = await ask(...request);
    const text = await answer.clone().text();
    for (const [, code] of text.matchAll(/"error":"([A-Z_]+)"/g)) note("refused", code!);
    return answer;
  },
  { preconnect: ask.preconnect },
);

const worker = createWorker({
  functions: [steps, races],
  workerId: name,
  maxConcurrentJobs: 20,
  // Strict: a step that returned is stored.
  checkpointMs: 0,
  handleSignals: false,
  log: { debug() {}, info() {}, warn: (text) => note("warn", text), error: (text) => note("error", text) },
});
await worker.start();
note("ready");
await worker.closed;
