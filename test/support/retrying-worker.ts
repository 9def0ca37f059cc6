import { appendFileSync } from "node:fs";
import { createFunction, createWorker } from "../../src/sdk/index.ts";

/** A worker whose step fails three times before it succeeds; it writes what it does to a file. */
const [url = "", apiKey = "", journal = "", transport = "rest"] = process.argv.slice(2);
const note = (what: string) => appendFileSync(journal, `${what}\n`);

const stubborn = createFunction({ id: "stubborn", event: "stubborn" }, ({ step }) => {
  note("entered");
  return step.run(
    "charge",
    ({ attempt }) => {
      note(`try ${attempt}`);
      if (attempt < 4) throw new Error("no");
      return "charged";
    },
    { retry: { maxAttempts: 4, delay: 100, backoff: 6 } },
  );
});

const worker = createWorker({
  ...{ url, apiKey, heartbeatMs: 300, functions: [stubborn] },
  transport: transport === "stream" ? transport : "rest",
});
await worker.start();
