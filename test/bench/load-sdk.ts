/**
 * Load of one program on Node that emits for many callers through one client of the SDK, each asking again once it is answered:
 * what a service does that serves requests. Prints one JSON line, as `load.ts` does.
 */
import "./ends-with-parent.ts";
import { createClient } from "../../src/sdk/index.ts";
import { percentile } from "./figures.ts";

const { url, key, callers, seconds, event } = JSON.parse(process.argv[2]!) as {
  url: string;
  key: string;
  callers: number;
  seconds: number;
  event: string;
};
const client = createClient({ url, apiKey: key });
const epoch = performance.timeOrigin;
const tookMs: number[] = [];
const startedAt = performance.now();
const endAt = startedAt + seconds * 1_000;

async function caller(): Promise<void> {
  for (;;) {
    const askedAt = performance.now();
    if (askedAt >= endAt) return;
    const at = Number((epoch + askedAt).toFixed(2));
    await client.emit(event, { at, customer: "c-1042", total: 42.5, note: "bench" });
    tookMs.push(performance.now() - askedAt);
  }
}

await Promise.all(Array.from({ length: callers }, caller));
const { user, system } = process.cpuUsage();
const tookS = (performance.now() - startedAt) / 1000;
tookMs.sort((a, b) => a - b);
const answer = {
  ...{
    accepted: tookMs.length,
    refused: 0,
    broken: 0,
    late: 0,
    seconds: tookS,
    startedAt: epoch + startedAt,
  },
  ...{ p50: percentile(tookMs, 0.5), p95: percentile(tookMs, 0.95), p99: percentile(tookMs, 0.99) },
  cpuS: (user + system) / 1e6,
};
process.stdout.write(`${JSON.stringify(answer)}\n`, () => process.exit(0));
