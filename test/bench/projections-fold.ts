/** One part of `projections.ts`, in a process of its own. Prints one JSON line. */
import { createClient, createProjection, createWorker } from "../../src/sdk/index.ts";
import { until } from "../support/until.ts";

const { url, key, events, partitions, name, task } = JSON.parse(process.argv[2]!) as {
  url: string;
  key: string;
  events: number;
  partitions: number;
  /** Of the projection; a new one begins with the first event. */
  name: string;
  /** `follow`: folds until it is stopped. */
  task: "fill" | "fold" | "follow" | "rebuild" | "wait";
};
const client = createClient({ url, apiKey: key });
const event = `bench.projected${partitions}`;
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
const work = async () => {
  const worker = createWorker({ url, apiKey: key, projections: [projection] });
  await worker.start();
  return worker;
};
const emit = async () => (await client.emit(event, { customer: "c-0", total: 1 })).sequence;
const seen = async (sequence: number) => {
  while (!(await client.projections.wait(projection, sequence, { timeoutMs: 60_000 })).caughtUp);
};

const batch = (from: number) =>
  Array.from({ length: 100 }, (_, at) => ({
    event,
    data: { customer: `c-${(from + at) % partitions}`, total: 42.5, note: "bench" },
  }));

/** Answers how many events it was about. */
const tasks: Record<typeof task, () => Promise<number>> = {
  async fill() {
    for (let at = 0; at < events; at += 800)
      await Promise.all(Array.from({ length: 8 }, (_, lane) => client.emitMany(batch(at + lane * 100))));
    return events;
  },
  async fold() {
    const worker = await work();
    await seen(await emit());
    await worker.drain();
    return events;
  },
  async follow() {
    await work();
    await seen(await emit());
    process.stdout.write("ready\n");
    return new Promise(() => {});
  },
  async rebuild() {
    const { totalEvents } = await client.projections.rebuild(projection);
    const isOver = async () => (await client.projections.rebuildProgress(name))?.status !== "running";
    await until(isOver, { about: "the rebuild", deadlineMs: 120_000, everyMs: 50 });
    return totalEvents;
  },
  async wait() {
    const worker = await work();
    const first = await emit();
    await seen(first);
    const items = Array.from({ length: 16 }, () => ({ name, minSeq: `${first + 1}` }));
    const waiting = Array.from({ length: events / items.length }, () =>
      client.transport.rpc<{ results: { result?: { caughtUp?: boolean } }[] }>(
        "ProjectionService/WaitProjectionCatchupBatch",
        { items, timeout: "60s" },
        { repeatable: false, timeoutMs: 90_000 },
      ),
    );
    // They have to be there before it is emitted.
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    startedAt = performance.now();
    await emit();
    for (const { results } of await Promise.all(waiting))
      if (!results.every(({ result }) => result?.caughtUp)) throw new Error(JSON.stringify(results[0]));
    seconds = (performance.now() - startedAt) / 1_000;
    await worker.drain();
    return events;
  },
};

let startedAt = performance.now();
let seconds: number | undefined;
const count = await tasks[task]();
seconds ??= (performance.now() - startedAt) / 1_000;
process.stdout.write(`${JSON.stringify({ perS: count / seconds, seconds })}\n`);
process.exit(0);
