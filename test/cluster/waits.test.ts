import { afterAll, beforeAll, expect, test } from "bun:test";
import { checkAll } from "../support/checkers.ts";
import { type Assignment, type PullWorker, pullWorker } from "../support/pull-worker.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const runs = 120;

let home: Home;
let nodes: TestServer[] = [];
let workers: PullWorker[];

beforeAll(async () => {
  home = await makeHome("postgres");
  for (const _ of [1, 2])
    nodes.push(await startTestServer({ engine: "postgres", home, settings: { pollHoldMs: 0 } }));
  await nodes[0]!.rpc("SvcService", "RegisterFunction", { id: "pays", triggers: [{ event: "asked" }] });
  await nodes[0]!.rpc("SvcService", "RegisterFunction", { id: "child" });
  workers = nodes.map((node, at) => pullWorker(node, `w-${at}`));
  await Promise.all(workers.map((worker) => worker.register("pays")));
}, 120_000);
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  nodes = [];
  await home?.remove();
});

/** Jobs of all runs, each with the worker that holds it. */
async function allJobs(about: string): Promise<{ job: Assignment; worker: PullWorker; at: number }[]> {
  const held: { job: Assignment; worker: PullWorker; at: number }[] = [];
  await until(
    async () => {
      for (const [at, worker] of workers.entries())
        for (const job of await worker.poll(runs / 2)) held.push({ job, worker, at });
      return held.length >= runs;
    },
    { about },
  );
  expect(new Set(held.map(({ job }) => job.run_id)).size).toBe(runs);
  return held;
}

const idOf = (job: Assignment) => (job.event.data as { id: number }).id;

test("two nodes: no event, append or put between a yield and its registration is lost, none counts twice, each child is one", async () => {
  for (let from = 0; from < runs; from += 40)
    await nodes[0]!.rpc("SvcService", "TriggerBatch", {
      events: Array.from({ length: 40 }, (_, at) => ({ event: "asked", data: { id: from + at } })),
    });
  const first = await allJobs("the first jobs");
  const paid = (at: number, id: number, round: number) =>
    nodes[at]!.rpc("SvcService", "Emit", { event: "paid", data: { id, round } });
  const wait = (match: string) => ({ type: "wait_for_event", event_filter: { event: "paid", match } });
  // Yield and event at the same time, each at another node; half of them as an expression.
  await Promise.all(
    first.flatMap(({ job, worker, at }) => [
      worker.leave(
        job,
        "one",
        wait(idOf(job) % 2 === 0 ? "id" : `data.id == ${idOf(job)} && data.round > 0`),
      ),
      paid(1 - at, idOf(job), 1),
    ]),
  );
  const second = await allJobs("runs woken by what came with their yield");
  for (const { job } of second)
    expect(job.completed_steps[0]).toMatchObject({ output: { data: { id: idOf(job), round: 1 } } });

  await Promise.all(second.map(({ job, worker }) => worker.leave(job, "two", wait("data.id"))));
  const tick = () => Promise.all(nodes.map((node) => node.running.tick("runs.matcher")));
  await tick();
  for (const worker of workers) expect(await worker.poll(runs)).toEqual([]);
  await Promise.all(second.map(({ job, at }) => paid(at, idOf(job), 2)));
  await Promise.all([tick(), tick()]);
  const third = await allJobs("runs woken by the second event");
  for (const { job } of third)
    expect(job.completed_steps[1]).toMatchObject({ output: { data: { id: idOf(job), round: 2 } } });

  // An append and a put at the same time as the yield, each at another node.
  await nodes[0]!.api("/api/v1/kv/buckets", { body: { name: "b" } });
  await Promise.all(
    third.flatMap(({ job, worker, at }) => {
      const id = idOf(job);
      const stream = { name: "stream", stream: { entity_id: `e${id}`, version: 1 } };
      const key = { name: "key", key: { bucket: "b", key: `k${id}`, after: 0 } };
      const wait = { type: "wait_for_events", mode: "all", conditions: [stream, key] };
      const append = { entityId: `e${id}`, entityType: "t", eventName: "made", data: {} };
      return [
        worker.leave(job, "three", wait),
        nodes[1 - at]!.rpc("EntityStreamService", "AppendEvent", append),
        nodes[at]!.api(`/api/v1/kv/buckets/b/keys/k${id}`, { method: "PUT", body: id }),
      ];
    }),
  );
  const fourth = await allJobs("runs woken by an entity and a key");
  for (const { job } of fourth)
    expect(job.completed_steps[2]).toMatchObject({
      output: {
        stream: { entity_id: `e${idOf(job)}`, version: 1 },
        key: { key: `k${idOf(job)}`, exists: true },
      },
    });

  const child = pullWorker(nodes[1]!, "w-child");
  await child.register("child");
  await Promise.all(
    fourth.map(({ job, worker }) =>
      worker.leave(job, "call", {
        type: "invoke_function",
        function_id: "child",
        input: { id: idOf(job) },
        invoke_timeout_ms: 60_000,
      }),
    ),
  );
  let children = 0;
  await until(
    async () => {
      const jobs = await child.poll(runs);
      await Promise.all(jobs.map((job) => child.complete(job, { of: idOf(job) })));
      children += jobs.length;
      return children >= runs;
    },
    { about: "all children" },
  );
  const last = await allJobs("parents of ended children");
  for (const { job } of last) expect(job.completed_steps[3]).toMatchObject({ output: { of: idOf(job) } });
  await Promise.all(last.map(({ job, worker }) => worker.complete(job)));
  expect(children).toBe(runs);
  const { store } = nodes[0]!.running.domain;
  expect(await checkAll(store, { now: await store.now() })).toEqual([]);
}, 120_000);
