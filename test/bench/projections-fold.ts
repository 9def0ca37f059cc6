/** Fills a log, or folds it by one worker of the SDK, in a process of its own. Prints one JSON line. */
import { createClient, createProjection, createWorker } from "../../src/sdk/index.ts";

const { url, key, events, partitions, name, fill } = JSON.parse(process.argv[2]!) as {
  url: string;
  key: string;
  events: number;
  partitions: number;
  /** Of the projection; a new one begins with the first event. */
  name: string;
  fill?: boolean;
};
const client = createClient({ url, apiKey: key });
const event = `bench.projected${partitions}`;
const startedAt = performance.now();
if (fill) {
  const batch = (from: number) =>
    Array.from({ length: 100 }, (_, at) => ({
      event,
      data: { customer: `c-${(from + at) % partitions}`, total: 42.5, note: "bench" },
    }));
  for (let at = 0; at < events; at += 800)
    await Promise.all(Array.from({ length: 8 }, (_, lane) => client.emitMany(batch(at + lane * 100))));
} else {
  const projection = createProjection({
    name,
    events: [event],
    partitionKey: "$.data.customer",
    initialState: { count: 0, total: 0 },
    reduce: (state: { count: number; total: number }, { data }) => {
      state.count++;
      state.total += (data as { total: number }).total;
    },
  });
  const worker = createWorker({ url, apiKey: key, projections: [projection] });
  await worker.start();
  const last = (await client.emit(event, { customer: "c-0", total: 1 })).sequence;
  while (!(await client.projections.wait(projection, last, { timeoutMs: 60_000 })).caughtUp);
  await worker.drain();
}
const seconds = (performance.now() - startedAt) / 1_000;
process.stdout.write(`${JSON.stringify({ perS: events / seconds, seconds })}\n`);
process.exit(0);
