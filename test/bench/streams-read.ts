/** Fills a long stream, or reads it by the iterator of the SDK, in a process of its own. Prints one JSON line. */
import { createClient } from "../../src/sdk/index.ts";

const { url, key, events, fill } = JSON.parse(process.argv[2]!) as {
  url: string;
  key: string;
  events: number;
  fill?: boolean;
};
const { streams } = createClient({ url, apiKey: key });
const data = { customer: "c-1042", total: 42.5, note: "bench" };
const startedAt = performance.now();
if (fill) {
  const one = { event: "bench.long", data };
  const batch = { entityId: "long", entityType: "long", events: Array(100).fill(one) };
  for (let at = 0; at < events; at += 100) await streams.appendMany([batch]);
} else {
  let next = 1;
  for await (const { version } of streams.read("long")) if (version !== next++) throw new Error("a gap");
  if (next !== events + 1) throw new Error(`${next - 1} events`);
}
const seconds = (performance.now() - startedAt) / 1_000;
process.stdout.write(`${JSON.stringify({ perS: events / seconds })}\n`);
process.exit(0);
