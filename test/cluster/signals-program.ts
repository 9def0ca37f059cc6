import { appendFileSync } from "node:fs";
import { createFunction, createWorker } from "../../src/sdk/index.ts";

/** A worker of runs that take signals one after the other until they are told to stop: `signals-program.ts NAME JOURNAL`. */
const [name = "", journal = ""] = process.argv.slice(2);

const collects = createFunction({ id: "collects" }, async ({ step }) => {
  const got: unknown[] = [];
  for (let count = 0; ; count++) {
    const one = await step.waitForSignal("add", { name: `add ${count}`, timeout: "5m", onTimeout: "throw" });
    if (one === "stop") return got;
    got.push(one);
  }
});

const worker = createWorker({
  ...{ functions: [collects], workerId: name, handleSignals: false, heartbeatMs: 300 },
  log: { debug() {}, info() {}, warn() {}, error() {} },
});
await worker.start();
appendFileSync(journal, `${name} ready\n`);
await worker.closed;
