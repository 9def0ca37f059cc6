import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import {
  createClient,
  createWorker,
  defineEvents,
  type SvcProjection,
  type Worker,
} from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

type Events = { "item.sold": { shop: string; count: number }; "item.lost": { shop: string; count: number } };

const events = defineEvents<Events>();
const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines)("projections of the SDK on %s", (engine) => {
  let server: TestServer;
  let workers: Worker[] = [];
  let number = 0;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterEach(() => {
    for (const worker of workers) worker.stop();
    workers = [];
  });
  afterAll(() => server.stop());

  /** An environment of its own: no test sees the events of another. */
  async function environment() {
    const name = `sdkproj${++number}`;
    const made = await server.api("/api/v1/environments", { body: { name } });
    const { body } = await server.api("/api/v1/apikeys", {
      body: { name, env_id: (made.body as { id: string }).id },
    });
    const connection = { url: server.url, apiKey: body.key as string };
    const client = createClient({ ...connection, events });
    const work = async (...projections: SvcProjection[]) => {
      const worker = createWorker({ ...connection, projections, handleSignals: false, log: silent });
      workers.push(worker);
      await worker.start();
      return worker;
    };
    const sell = (shop: string, counts: readonly number[]) =>
      client.emitMany(counts.map((count) => ({ event: "item.sold" as const, data: { shop, count } })));
    return { connection, client, work, sell };
  }

  const sold = (extra: object = {}) =>
    events.createProjection({
      name: "sold",
      partitionKey: "$.data.shop",
      initialState: { total: 0, seen: [] as number[] },
      handlers: {
        "item.sold": (state, event) => ({
          total: state.total + event.data.count,
          seen: [...state.seen, event.sequence].slice(-3),
        }),
      },
      gatherMs: 0,
      ...extra,
    });

  test("states follow the events, a partition each, and can be waited for", async () => {
    const { client, work, sell } = await environment();
    await sell("a", [1, 2]);
    const projection = sold();
    const worker = await work(projection);
    const emitted = await sell("b", [10, 20, 30]);
    const last = await client.emit("item.sold", { shop: "a", count: 3 });
    expect(await client.projections.wait(projection, last.sequence, { timeoutMs: 20_000 })).toMatchObject({
      caughtUp: true,
      rebuilding: false,
    });
    const found = await client.projections.get(projection, { partition: "a" });
    expect(found).toMatchObject({
      partition: "a",
      state: { total: 6, seen: [expect.any(Number), expect.any(Number), last.sequence] },
      sequence: last.sequence,
      lastEventId: last.eventId,
      projection: {
        name: "sold",
        mode: "managed",
        status: "active",
        partitionKey: "$.data.shop",
        version: 1,
      },
    });
    expect((await client.projections.get(projection, { partition: "b" })).state?.total).toBe(60);
    expect((await client.projections.get(projection, { partition: "c" })).state).toBeUndefined();
    expect(await client.projections.partitions(projection)).toEqual(["a", "b"]);
    const eventId = emitted.at(-1)!.eventId;
    expect((await client.projections.waitForEvent("sold", eventId, { partition: "b" })).caughtUp).toBe(true);
    expect(await client.projections.status(projection)).toMatchObject({ status: "active", lag: 0 });
    expect((await client.projections.list()).projections.map(({ name }) => name)).toEqual(["sold"]);
    expect(await worker.drain()).toBe(true);
  }, 120_000);

  test("a subscription hears its own partition, whatever signs its name has", async () => {
    const { client, work, sell } = await environment();
    const projection = sold();
    await work(projection);
    const topics = { "*": "%2A", "a*b": "a%2Ab", "50% > x": "50%25%20%3E%20x" };
    const heard: string[][] = [];
    const open = Object.keys(topics).map((partition) =>
      client.projections.subscribe(projection, { partition }, ({ topic }) => {
        heard.push([partition, topic]);
      }),
    );
    await Promise.all(open.map(({ ready }) => ready));
    for (const shop of ["plain", ...Object.keys(topics)]) await sell(shop, [1]);
    await until(() => new Set(heard.map(([partition]) => partition)).size === 3, { about: "each partition" });
    for (const one of open) one.close();
    const named = Object.entries(topics).map(([of, written]) => [
      of,
      `system.projection.sold.${written}.updated`,
    ]);
    expect(heard.sort()).toEqual(named.sort());
  }, 120_000);

  test("one partition stops at an event that fails, and goes on when it is resumed", async () => {
    const { client, work, sell } = await environment();
    let isBroken = true;
    let tries = 0;
    const projection = events.createProjection({
      name: "sold",
      partitionKey: "$.data.shop",
      initialState: { total: 0 },
      handlers: {
        "item.sold": (state, event) => {
          state.total += event.data.count;
          if (event.data.count !== 13 || !isBroken) return;
          tries++;
          throw new Error("thirteen");
        },
      },
      retry: { maxAttempts: 3, initialDelayMs: 1 },
    });
    await work(projection);
    await sell("bad", [1, 13, 5]);
    const last = (await sell("good", [1, 2, 3])).at(-1)!;
    const stateOf = async (partition: string) =>
      (await client.projections.get(projection, { partition })).state?.total;
    await until(async () => (await stateOf("good")) === 6, { about: "the good partition" });
    await until(async () => (await client.projections.status("sold")).status === "error", { about: "error" });
    expect((await client.projections.status("sold")).error).toMatchObject({
      message: "thirteen",
      partition: "bad",
    });
    expect([await stateOf("bad"), tries]).toEqual([1, 3]);
    isBroken = false;
    await client.projections.resume(projection);
    await client.projections.wait(projection, last.sequence, { timeoutMs: 20_000 });
    await until(async () => (await stateOf("bad")) === 19, { about: "the bad partition" });
    expect(await stateOf("good")).toBe(6);
    expect(await client.projections.status(projection)).toMatchObject({ status: "active", lag: 0 });
  }, 120_000);

  test("a runner that is killed is replaced, and no event counts twice", async () => {
    const { client, work, sell } = await environment();
    const shops = ["a", "b", "c", "d", "e"];
    const wanted = new Map<string, number>();
    const projection = sold({ batchSize: 7, gatherMs: 1 });
    let last = 0;
    let isOver = false;
    const emitting = (async () => {
      for (let round = 0; round < 60; round++) {
        const shop = shops[round % shops.length]!;
        const counts = Array.from({ length: 10 }, (_, at) => round * 10 + at);
        for (const count of counts) wanted.set(shop, (wanted.get(shop) ?? 0) + count);
        last = (await sell(shop, counts)).at(-1)!.sequence;
      }
      isOver = true;
    })();
    const first = await work(projection);
    const others: Worker[] = [];
    for (let kills = 0; !isOver && kills < 5; kills++) {
      others.push(await work(projection));
      await until(async () => isOver || (await client.projections.status("sold")).sequence > kills * 100, {
        about: "progress",
      });
      (others.length === 1 ? first : others.at(-2)!).stop();
    }
    await emitting;
    const done = await client.projections.wait(projection, last, { timeoutMs: 30_000 });
    expect(done.caughtUp).toBe(true);
    for (const shop of shops)
      expect([shop, (await client.projections.get(projection, { partition: shop })).state?.total]).toEqual([
        shop,
        wanted.get(shop),
      ]);
  }, 90_000);

  test("a worker that drains leaves nothing to be folded again", async () => {
    const { client, work, sell } = await environment();
    const folded: number[] = [];
    const projection = events.createProjection({
      name: "sold",
      initialState: { total: 0 },
      events: ["item.*"],
      reduce: (state, event) => {
        folded.push(event.sequence);
        return { total: state.total + event.data.count };
      },
      batchSize: 20,
    });
    const counts = Array.from({ length: 100 }, (_, at) => at);
    const worker = await work(projection);
    await sell("a", counts);
    await until(() => folded.length > 0, { about: "a fold" });
    expect(await worker.drain()).toBe(true);
    const last = (await sell("a", counts)).at(-1)!.sequence;
    await work(projection);
    await client.projections.wait(projection, last, { timeoutMs: 30_000 });
    expect((await client.projections.get(projection)).state).toEqual({ total: 9_900 });
    expect(new Set(folded).size).toBe(folded.length);
  }, 120_000);

  test("where no stream gets through, events are polled for", async () => {
    const { client, connection, sell } = await environment();
    const proxy = Bun.serve({
      port: 0,
      idleTimeout: 60,
      async fetch(request) {
        const { pathname, search } = new URL(request.url);
        if (pathname.endsWith("/StreamProjectionEvents")) return new Response("no", { status: 404 });
        const { method, headers } = request;
        const body = method === "GET" ? null : await request.text();
        const answer = await fetch(`${server.url}${pathname}${search}`, { method, headers, body });
        return new Response(await answer.text(), { status: answer.status });
      },
    });
    const projection = sold({ batchSize: 3 });
    const options = { ...connection, url: `http://127.0.0.1:${proxy.port}` };
    const worker = createWorker({ ...options, projections: [projection], handleSignals: false, log: silent });
    try {
      await sell("a", [1, 2, 3, 4, 5]);
      await worker.start();
      const last = (await sell("b", [6, 7, 8])).at(-1)!.sequence;
      await client.projections.wait(projection, last, { timeoutMs: 30_000 });
      expect((await client.projections.get(projection, { partition: "a" })).state?.total).toBe(15);
      expect((await client.projections.get(projection, { partition: "b" })).state?.total).toBe(21);
      await worker.drain();
    } finally {
      worker.stop();
      await proxy.stop(true);
    }
  }, 120_000);

  test("an external projection gets each event, stops at one that fails, and passes over it", async () => {
    const { client, work, sell } = await environment();
    const seen: number[] = [];
    const projection = events.createProjection({
      name: "mails",
      handlers: {
        "item.sold": async (event, { attempt }) => {
          if (event.data.count === 2 && attempt === 1) throw new Error("once");
          if (event.data.count === 13) throw new Error("thirteen");
          seen.push(event.data.count);
        },
      },
      retry: { initialDelayMs: 1 },
    });
    await work(projection);
    await sell("a", [1, 2, 3]);
    await until(() => seen.length === 3, { about: "three effects" });
    const [, bad] = await sell("a", [4, 13, 5]);
    await until(async () => (await client.projections.status("mails")).status === "error", {
      about: "error",
    });
    expect(seen).toEqual([1, 2, 3, 4]);
    await client.projections.resume(projection, { skipEventId: bad!.eventId });
    await until(() => seen.length === 5, { about: "the event behind" });
    expect(seen).toEqual([1, 2, 3, 4, 5]);
  }, 120_000);

  test("a new version is folded beside the old one, which its own worker keeps fresh until then", async () => {
    const { client, work, sell } = await environment();
    const many = Array.from({ length: 300 }, (_, at) => at);
    const sum = many.reduce((one, other) => one + other, 0);
    await sell("a", many);
    await work(sold());
    let last = (await sell("a", many)).at(-1)!.sequence;
    await client.projections.wait("sold", last, { timeoutMs: 20_000 });
    let mayFold = () => {};
    const gate = new Promise<void>((resolve) => {
      mayFold = resolve;
    });
    const next = events.createProjection({
      name: "sold",
      version: 2,
      rebuild: "side_by_side",
      partitionKey: "$.data.shop",
      initialState: { totals: [] as number[] },
      handlers: {
        "item.sold": async (state, event) => {
          await gate;
          const [total = 0] = state.totals;
          return { totals: [total + event.data.count] };
        },
      },
    });
    await work(next);
    const building = async () => (await client.projections.status("sold")).building;
    await until(building, { about: "the generation beside" });
    last = (await sell("a", many)).at(-1)!.sequence;
    await client.projections.wait("sold", last, { timeoutMs: 20_000 });
    // The old code goes on with the old states.
    expect((await client.projections.get("sold", { partition: "a" })).state).toMatchObject({
      total: 3 * sum,
    });
    mayFold();
    last = (await sell("a", many)).at(-1)!.sequence;
    await until(async () => !(await building()), { about: "the takeover", deadlineMs: 20_000 });
    last = (await sell("a", [1])).at(-1)!.sequence;
    await client.projections.wait("sold", last, { timeoutMs: 20_000 });
    expect((await client.projections.get(next, { partition: "a" })).state).toEqual({
      totals: [4 * sum + 1],
    });
    expect(await client.projections.status(next)).toMatchObject({ version: 2, status: "active", lag: 0 });
    // A worker of the old version stands back.
    await work(sold());
    last = (await sell("a", [1])).at(-1)!.sequence;
    await client.projections.wait("sold", last, { timeoutMs: 20_000 });
    expect((await client.projections.status(next)).version).toBe(2);
    expect((await client.projections.get(next, { partition: "a" })).state).toEqual({
      totals: [4 * sum + 2],
    });
  }, 90_000);

  test("a rebuild that somebody asks for is folded by the runner beside what is read", async () => {
    const { client, work, sell } = await environment();
    const projection = sold();
    await sell("a", [1, 2, 3]);
    await work(projection);
    const last = (await sell("b", [4])).at(-1)!.sequence;
    await client.projections.wait(projection, last, { timeoutMs: 20_000 });
    expect(await client.projections.rebuildProgress(projection)).toBeUndefined();
    expect(await client.projections.rebuild(projection)).toMatchObject({
      ...{ strategy: "side_by_side", totalEvents: 4, generation: 2 },
    });
    const isDone = async () => (await client.projections.rebuildProgress("sold"))?.status === "completed";
    await until(isDone, { about: "the rebuild", deadlineMs: 20_000 });
    expect((await client.projections.get(projection, { partition: "a" })).state?.total).toBe(6);
    await client.projections.pause(projection);
    expect((await client.projections.status(projection)).status).toBe("paused");
    await client.projections.delete(projection);
    expect((await client.projections.list()).projections).toEqual([]);
  }, 120_000);
});
