import { appendFileSync } from "node:fs";
import { createWorker } from "../../src/sdk/index.ts";
import { sagasOf } from "./sagas.ts";

/** A worker that writes what it does to a file, kills itself after the `deeds`th deed, and takes so long for a release. */
const [url = "", apiKey = "", journal = "", deeds = "", releaseMs = "0"] = process.argv.slice(2);
let left = Number(deeds);

const worker = createWorker({
  ...{ url, apiKey, heartbeatMs: 300 },
  functions: sagasOf((deed, runId, what) => {
    appendFileSync(journal, `${deed} ${runId} ${what}\n`);
    if (--left === 0) process.kill(process.pid, "SIGKILL");
    return deed === "release" ? Bun.sleep(Number(releaseMs)) : undefined;
  }),
});
await worker.start();
