import { appendFileSync } from "node:fs";
import { createWorker } from "../../src/sdk/index.ts";
import { sagasOf } from "./sagas.ts";

/** A worker that writes what it does to a file, and kills itself after the `deeds`th deed. */
const [url = "", apiKey = "", journal = "", deeds = ""] = process.argv.slice(2);
let left = Number(deeds);

const worker = createWorker({
  ...{ url, apiKey, heartbeatMs: 300 },
  functions: sagasOf((deed, runId, what) => {
    appendFileSync(journal, `${deed} ${runId} ${what}\n`);
    if (--left === 0) process.kill(process.pid, "SIGKILL");
  }),
});
await worker.start();
