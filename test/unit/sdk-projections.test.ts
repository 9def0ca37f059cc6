import { expect, test } from "bun:test";
import {
  createProjection,
  createWorker,
  defineEvents,
  NonRetryableError,
  testProjection,
} from "../../src/sdk/index.ts";
import { ProjectionFold } from "../../src/sdk/projections/projection-fold.ts";
import type { ProjectedEvent, SvcProjection } from "../../src/sdk/projections/projection-types.ts";
import { startFakeServer } from "../support/fake-server.ts";

type Events = {
  "order.placed": { customer: { id: string }; total: number };
  "order.sent": { to: string };
};
const events = defineEvents<Events>();

const totals = (extra: object = {}) =>
  events.createProjection({
    name: "totals",
    partitionKey: "$.data.customer.id",
    initialState: { count: 0, total: 0 },
    handlers: {
      "order.placed": (state, event) => ({ count: state.count + 1, total: state.total + event.data.total }),
    },
    ...extra,
  });

test("a projection is typed by its events", () => {
  const reduced = events.createProjection({
    name: "reduced",
    events: ["order.*"],
    initialState: { total: 0 },
    reduce: (state, event) => {
      if (event.name === "order.placed") state.total += event.data.total;
    },
  });
  expect(reduced).toMatchObject({ name: "reduced", events: ["order.*"], version: 1, rebuild: "never" });
  const wrong = () => [
    // @ts-expect-error no such event
    events.createProjection({ name: "a", initialState: 0, handlers: { "order.lost": () => 1 } }),
    events.createProjection({
      name: "b",
      initialState: { total: 0 },
      // @ts-expect-error the next state is of another type
      handlers: { "order.placed": () => ({ sum: 1 }) },
    }),
    events.createProjection({
      name: "c",
      // @ts-expect-error no event has such a path
      partitionKey: "$.data.customer.name",
      initialState: 0,
      handlers: { "order.placed": () => 1 },
    }),
    // @ts-expect-error the data is that of the event
    events.createProjection({ name: "d", handlers: { "order.sent": ({ data }) => data.total } }),
  ];
  expect(wrong).toBeFunction();
});

test("options that make no sense are refused", () => {
  const initialState = 0;
  const reduce = (state: number) => state;
  expect(() => createProjection({ name: "", initialState, events: ["a"], reduce })).toThrow("needs a name");
  expect(() => createProjection({ name: "a", initialState, reduce })).toThrow("needs events");
  expect(() => createProjection({ name: "a", initialState, events: ["a"] })).toThrow("or reduce");
  expect(() => createProjection({ name: "a", events: ["a"] })).toThrow("or handle");
  const versions = { name: "a", initialState, events: ["a"], reduce };
  expect(() => createProjection({ ...versions, version: 0 })).toThrow("from 1");
  expect(() => createProjection({ ...versions, batchSize: 1_001 })).toThrow("from 1 to 1000");
  expect(() => createWorker({ projections: [totals(), totals()] })).toThrow("same name");
  expect(() => createWorker({})).toThrow("functions or projections");
});

test("events are folded in memory, a state for each partition", async () => {
  const placed = (id: string | undefined, total: number) => ({
    event: "order.placed",
    data: { customer: { id }, total },
  });
  const under = testProjection(totals());
  const { states, state } = await under.fold([
    ...[placed("ada", 3), placed("bob", 4), placed("ada", 5), placed(undefined, 6)],
    { event: "order.sent", data: { to: "ada" } },
    placed("x".repeat(600), 1),
  ]);
  expect(state).toBeUndefined();
  expect(Object.keys(states)).toEqual(["ada", "bob", "__global__", expect.stringMatching(/^sha256:/)]);
  expect(states.ada).toEqual({ count: 2, total: 8 });
  expect((await under.fold([placed("ada", 1)])).states.ada).toEqual({ count: 3, total: 9 });
  expect(await testProjection(totals({ partitionKey: "" })).fold([placed("ada", 3)])).toEqual({
    ...{ state: { count: 1, total: 3 }, failures: [] },
    states: { __global__: { count: 1, total: 3 } },
  });
  const byEntity = totals({ partitionKey: "$.entity_id" });
  const appended = { ...placed("ada", 2), entityId: "o1" };
  expect((await testProjection(byEntity).fold([appended])).states).toEqual({ o1: { count: 1, total: 2 } });
  const byField = createProjection({
    ...{ name: "posts", events: ["posted"], partitionKey: "event.channel", initialState: 0 },
    reduce: (count: number) => count + 1,
  });
  const posts = [{ event: { channel: "a" } }, { channel: "b" }, { event: { data: "none" } }];
  const folded = await testProjection(byField).fold(posts.map((data) => ({ event: "posted", data })));
  expect(folded.states).toEqual({ a: 1, b: 1, __global__: 1 });
});

test("an event that fails stops its partition, with the state as it was before", async () => {
  let tries = 0;
  const broken = totals({
    handlers: {
      "order.placed": (state: { total: number }, event: ProjectedEvent<Events["order.placed"]>) => {
        state.total += event.data.total;
        if (event.data.total === 13) {
          tries++;
          throw new Error("thirteen");
        }
        if (event.data.total === 14) throw new NonRetryableError("fourteen");
      },
    },
  });
  const placed = (id: string, total: number) => ({
    event: "order.placed",
    data: { customer: { id }, total },
  });
  const { states, failures } = await testProjection(broken).fold([
    ...[placed("a", 1), placed("a", 13), placed("b", 14), placed("a", 2), placed("c", 3)],
  ]);
  expect(states).toEqual({ a: { count: 0, total: 1 }, c: { count: 0, total: 3 } });
  expect([tries, failures.map(({ partition }) => partition)]).toEqual([3, ["a", "b"]]);
});

test("older versions are brought up to date before they are folded", async () => {
  const versioned = defineEvents<{ counted: { n: number } }>({
    counted: { version: 2, upcast: { 1: (data: { count: number }) => ({ n: data.count }) } },
  });
  const sum = versioned.createProjection({
    name: "sum",
    initialState: 0,
    handlers: { counted: (state, event) => state + event.data.n },
  });
  const { state } = await testProjection(sum).fold([
    { event: "counted", data: { count: 3 } },
    { event: "counted", data: { n: 4 }, version: 2 },
  ]);
  expect(state).toBe(7);
});

const eventAt = (sequence: number, partition: string, total = 1): ProjectedEvent => ({
  ...{ id: `evt_${sequence}`, name: "order.placed", version: 1, metadata: null, timestamp: "" },
  ...{ data: { customer: { id: partition }, total }, sequence, partition },
});

function foldOver(projection: SvcProjection, stored: Map<string, { state: unknown; position: number }>) {
  const reads: string[] = [];
  const fold = new ProjectionFold(projection, {
    read: async (partition) => {
      reads.push(partition);
      return structuredClone(stored.get(partition)) ?? { state: null, position: 0 };
    },
    pause: async () => {},
    isLeaving: () => false,
    onRetry() {},
  });
  return { fold, reads };
}

test("a state is read before it is folded, and what it has is not folded again", async () => {
  const stored = new Map([["a", { state: { count: 5, total: 50 }, position: 7 }]]);
  const { fold, reads } = foldOver(totals(), stored);
  const folded = await fold.fold([eventAt(6, "a"), eventAt(7, "a"), eventAt(8, "a"), eventAt(9, "b")]);
  expect(reads).toEqual(["a", "b"]);
  expect(folded.written).toEqual([
    { partition: "a", text: '{"count":6,"total":51}', last: eventAt(8, "a") },
    { partition: "b", text: '{"count":1,"total":1}', last: eventAt(9, "b") },
  ]);
  await fold.fold([eventAt(10, "a")]);
  expect(reads).toEqual(["a", "b"]);
  // A save that failed: everything is read again.
  fold.clear();
  expect((await fold.fold([eventAt(8, "a"), eventAt(10, "a")])).written[0]!.text).toBe(
    '{"count":7,"total":52}',
  );
});

test("states that are unused for longest leave the memory", async () => {
  const { fold, reads } = foldOver(totals({ statesMax: 2 }), new Map());
  for (const [at, partition] of ["a", "b", "a", "c", "a", "b"].entries()) {
    await fold.fold([eventAt(at + 1, partition)]);
    fold.states.trim();
  }
  expect(reads).toEqual(["a", "b", "c", "b"]);
});

test("a partition that has stopped is left alone until the runner is told to go on", async () => {
  const { fold } = foldOver(totals(), new Map());
  fold.stop("a");
  expect((await fold.fold([eventAt(1, "a"), eventAt(2, "b")])).written.map((one) => one.partition)).toEqual([
    "b",
  ]);
  fold.resume();
  expect((await fold.fold([eventAt(1, "a")])).written.map((one) => one.partition)).toEqual(["a"]);
});

test("a state that is no JSON stops its partition", async () => {
  const cyclic: Record<string, unknown> = {};
  cyclic.self = cyclic;
  const { fold } = foldOver(totals({ handlers: { "order.placed": () => cyclic } }), new Map());
  const { written, failures } = await fold.fold([eventAt(1, "a")]);
  expect([written, failures.map(({ event }) => event.sequence)]).toEqual([[], [1]]);
});

test("an SQL projection is registered by its table and statements", async () => {
  const server = startFakeServer();
  const worker = createWorker({
    url: server.url,
    projections: [
      events.createProjection({
        name: "orders",
        description: "sums",
        tableSql: "CREATE TABLE proj_orders (id TEXT PRIMARY KEY, total INTEGER)",
        statements: { "order.placed": "INSERT INTO proj_orders VALUES (:data.customer.id, :data.total)" },
      }),
    ],
    handleSignals: false,
  });
  try {
    await worker.start();
    expect(server.requests.map(({ path, body }) => ({ path, body }))).toEqual([
      {
        path: "/svc.v1.ProjectionService/CreateSQLProjection",
        body: {
          name: "orders",
          events: ["order.placed"],
          tableSql: "CREATE TABLE proj_orders (id TEXT PRIMARY KEY, total INTEGER)",
          eventHandlers: {
            "order.placed": "INSERT INTO proj_orders VALUES (:data.customer.id, :data.total)",
          },
          description: "sums",
        },
      },
    ]);
    await worker.drain();
  } finally {
    await server.stop();
  }
});
