import { createFunction, createWorker } from "../../src/sdk/index.ts";

/** A worker of one function, which sleeps for a second, waits for as long, and again, and then tells what it knows of its clock. */
const [url = "", apiKey = "", id = "", transport = "rest"] = process.argv.slice(2);

const warned: string[] = [];
const log = { debug() {}, info() {}, warn: (text: string) => void warned.push(text), error() {} };

const worker = createWorker({
  ...{ url, apiKey, workerId: id, log, transport: transport as "rest" | "stream" },
  functions: [
    createFunction({ id, event: id }, async ({ step }) => {
      await step.sleep("nap", 1_000);
      await step.waitForEvent("never", { timeout: 1_000 });
      const never = { event: { event: "never" }, stream: { stream: "never", version: 1 } };
      await step.waitForAny("any", never, { timeout: 200, onTimeout: "throw" }).catch(() => {});
      return warned.filter((text) => text.includes("clock")).length;
    }),
  ],
});
await worker.start();
