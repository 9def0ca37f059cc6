import { afterAll, beforeAll, describe, expect, spyOn, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { createClient, type Delivery, type SubscriptionNotice, SvcError } from "../../src/sdk/index.ts";
import { socketWay } from "../../src/sdk/subscriptions/socket-line.ts";
import { openSubscription } from "../../src/sdk/subscriptions/subscription.ts";
import { createTransport } from "../../src/sdk/wire/transport.ts";
import { openProxy, type TcpProxy } from "../support/proxy.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

type Events = {
  "order.placed": { total: number };
  "order.paid": { by: string };
  "news.today": string;
};

describe.each(engines)("client.subscribe on %s", (engine) => {
  let server: TestServer;
  let proxy: TcpProxy;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    proxy = await openProxy(() => Number(new URL(server.url).port));
  }, 120_000);
  afterAll(async () => {
    await proxy.stop();
    await server.stop();
  });

  const clientAt = (url: string, apiKey = server.adminKey) => createClient<Events>({ url, apiKey });
  const direct = () => clientAt(server.url);
  const proxied = () => clientAt(`http://127.0.0.1:${proxy.port}`);
  const emit = async (event: string, data: unknown, metadata?: object) => {
    const answer = await server.rpc("SvcService", "Emit", { event, data, ...(metadata && { metadata }) });
    expect(answer.status).toBe(200);
    return Number(answer.body.sequence);
  };

  describe.each(["websocket", "connect"] as const)("over %s", (over) => {
    /** Names of this group alone. */
    const named = (name: string) => `${over}.${name}`;

    test("past and present, typed, read with for await until it is left", async () => {
      const client = direct();
      await emit("order.placed", { total: 1 });
      await emit("order.placed", { total: 2 }, { tenant: "t" });
      const orders = client.subscribe("order.*", { over, replay: 1 });
      await orders.ready;
      expect(orders.state).toBe("live");
      const sequence = await emit("order.paid", { by: "ada" });
      const got: string[] = [];
      for await (const order of orders) {
        if (order.topic === "events:order.placed") got.push(`placed ${order.data.total satisfies number}`);
        else {
          got.push(`paid ${order.data.by satisfies string}`);
          expect(order).toMatchObject({
            sequence,
            timestamp: expect.any(String),
            eventId: expect.any(String),
          });
          break;
        }
        expect(order.metadata).toEqual({ tenant: "t" });
      }
      expect(got).toEqual(["placed 2", "paid ada"]);
      expect(orders.state).toBe("over");
      await orders.done;
    });

    test("filter, topicOnly, includeMetadata, and a function that is called one delivery after the other", async () => {
      const got: Delivery[] = [];
      let under = 0;
      const filter = "data.n > 1";
      const options = { over, filter, topicOnly: true, includeMetadata: false };
      const some = direct().subscribe(named("few.*"), options, async (one) => {
        expect(under++).toBe(0);
        await Promise.resolve();
        got.push(one);
        under--;
      });
      await some.ready;
      for (const n of [1, 2, 3]) await emit(named("few.a"), { n }, { tenant: "t" });
      await until(() => got.length === 2, { about: "both" });
      for (const { sequence, eventId, ...rest } of got) {
        expect([typeof sequence, typeof eventId]).toEqual(["number", "string"]);
        expect(rest).toEqual({ topic: `events:${named("few.a")}`, data: null });
      }
      expect(some.place?.sequence).toBe(`${got[1]!.sequence}`);
      some.close();
      await some.done;
    });

    test("what the function throws ends it; so does the signal", async () => {
      const bad = direct().subscribe(named("bad"), { over }, () => {
        throw new Error("no more");
      });
      const why = bad.done.catch((error) => error.message);
      await bad.ready;
      await emit(named("bad"), 1);
      expect(await why).toBe("no more");
      // Nobody asks how it ends: the log has it, and the process goes on.
      const [lines, unheard]: unknown[][] = [[], []];
      const hear = (error: unknown) => void unheard!.push(error);
      process.on("unhandledRejection", hear);
      const said = spyOn(console, "error").mockImplementation((...line) => void lines!.push(...line));
      direct().subscribe("a..b", { over }, () => {});
      await until(() => lines!.length > 0, { about: "the end of the subscription" });
      await new Promise((done) => setImmediate(done));
      process.off("unhandledRejection", hear);
      said.mockRestore();
      expect([unheard, lines]).toEqual([[], [expect.stringMatching(/a subscription has ended .*a\.\.b/)]]);
      const leave = new AbortController();
      const left = direct().subscribe(named("left"), { over, signal: leave.signal });
      await left.ready;
      leave.abort();
      for await (const _ of left) throw new Error("nothing comes");
      expect(left.state).toBe("over");
    });

    test("whatever becomes of connections, each event comes once and in order", async () => {
      const count = 150;
      const client = proxied();
      const notices: SubscriptionNotice[] = [];
      const onNotice = (notice: SubscriptionNotice) => void notices.push(notice);
      const all = [
        client.subscribe(named("cut.>"), { over, onNotice }),
        client.subscribe(named("cut.>"), { over, onNotice, bufferMax: 5 }),
        client.subscribe(named("cut.>"), { over, onNotice, filter: "data % 2 == 0" }),
        client.subscribe(`events:${named("cut.*")}`, { over, onNotice, bufferMax: 2 }),
      ];
      await Promise.all(all.map((one) => one.ready));
      const wanted = Array.from({ length: count }, (_, n) => n);
      const read = all.map(async (one, place) => {
        const got: number[] = [];
        for await (const { data } of one) {
          got.push(data as number);
          // A slow reader.
          if (place === 1 && got.length % 10 === 0) await server.api("/health");
          if (data === count - (place === 2 ? 2 : 1)) break;
        }
        return got;
      });
      for (const n of wanted) {
        await emit(named(`cut.e${n % 3}`), n);
        if (n % 40 === 20) proxy.cut();
      }
      const got = await Promise.all(read);
      const even = wanted.filter((n) => n % 2 === 0);
      expect(got).toEqual([wanted, wanted, even, wanted]);
      expect(notices.some(({ type }) => type === "waiting")).toBe(true);
    }, 90_000);

    test("what happens between a confirmed subscription and its first delivery is not lost with the connection", async () => {
      const one = proxied().subscribe(named("early"), { over });
      await one.ready;
      proxy.closed = true;
      proxy.cut();
      await emit(named("early"), 1);
      proxy.closed = false;
      for await (const { data } of one) {
        expect(data).toBe(1);
        break;
      }
    }, 120_000);

    test("another process goes on at the place of the first", async () => {
      const first = direct().subscribe(named("moved"), { over });
      await first.ready;
      await emit(named("moved"), 1);
      await emit(named("moved"), 2);
      for await (const { data } of first) if (data === 2) break;
      // The reader left while it had the second: that one was not done with.
      const { place } = first;
      expect([typeof place?.sequence, typeof place?.epoch]).toEqual(["string", "string"]);
      await emit(named("moved"), 3);
      const got: unknown[] = [];
      for await (const { data } of direct().subscribe(named("moved"), { over, after: place! })) {
        got.push(data);
        if (data === 3) break;
      }
      expect(got).toEqual([2, 3]);
    });

    test("what will never work fails, by its code; a place that is gone by the choice of the reader", async () => {
      const codeOf = async (pattern: string, options: object, client = direct()) => {
        const one = client.subscribe(pattern, { over, ...options });
        const error = await one.done.catch((error) => error);
        expect(error).toBeInstanceOf(SvcError);
        expect(await one.ready.catch((same) => same)).toBe(error);
        return [error.code, error.status];
      };
      expect(await codeOf("a..b", {})).toEqual(["invalid_argument", 400]);
      expect(await codeOf("a", { filter: "1 +" })).toEqual(["invalid_argument", 400]);
      expect(await codeOf("a", {}, clientAt(server.url, "ifkey_nobody"))).toEqual(["unauthenticated", 401]);
      const last = await emit(named("gone"), 1);
      expect((await codeOf("a", { after: last + 1_000 }))[0]).toBe("position_ahead");
      expect((await codeOf("a", { after: { sequence: "1", epoch: "99" } }))[0]).toBe("epoch_changed");
      const notices: string[] = [];
      const onNotice = ({ type }: SubscriptionNotice) => void notices.push(type);
      const gone = { sequence: `${last}`, epoch: "99" };
      const anew = direct().subscribe(named("gone"), { over, after: gone, onGap: "earliest", onNotice });
      for await (const { data } of anew) {
        expect(data).toBe(1);
        break;
      }
      const next = direct().subscribe(named("gone"), { over, after: gone, onGap: "latest", onNotice });
      await next.ready;
      await emit(named("gone"), 2);
      for await (const { data } of next) {
        expect(data).toBe(2);
        break;
      }
      expect(notices).toEqual(["gap", "live", "gap", "live"]);
      expect(() => direct().subscribe("a", { replay: 1, after: 1 })).toThrow("choose one");
      expect(() => direct().subscribe("a", { after: "x" })).toThrow("place");
    });

    test("a topic, from its beginning and through lost connections", async () => {
      const client = proxied();
      const topic = named("news").replace(".", "-");
      await client.publish(`${topic}.a`, { n: 1 });
      const all = client.subscribe(`topic:${topic}.*`, { over, after: 0 });
      const live = client.subscribe(`topic:${topic}.>`, { over, filter: "data.n > 2" });
      const got: unknown[] = [];
      await Promise.all([all.ready, live.ready]);
      const read = (async () => {
        for await (const { topic: name, data } of all) {
          got.push([name, data]);
          if (got.length === 4) break;
        }
      })();
      for (const n of [2, 3]) await direct().publish(`${topic}.a`, { n });
      proxy.cut();
      await direct().publish(`${topic}.b`, [4]);
      await read;
      const wanted = [1, 2, 3].map((n) => [`topic:${topic}.a`, { n }]);
      expect(got).toEqual([...wanted, [`topic:${topic}.b`, [4]]]);
      for await (const { data } of live) {
        expect(data).toEqual({ n: 3 });
        break;
      }
    }, 120_000);

    test("a place moves on while nothing comes, so that retention does not overtake it", async () => {
      const topic = named("quiet").replace(".", "-");
      const quiet = proxied().subscribe(`topic:${topic}`, { over });
      const deliveries = quiet[Symbol.asyncIterator]();
      await quiet.ready;
      for (const n of [1, 2, 3]) await direct().publish(`${topic}.others`, { n });
      const { domain, tick } = server.running;
      const own = sql`environment_id = ${server.env}`;
      const { position } = (await domain.store.one<{ position: number }>(
        sql`SELECT position FROM topic_heads WHERE ${own}`,
      ))!;
      const isThere = () => tick("pubsub.positions").then(() => quiet.place?.sequence === `${position}`);
      await until(isThere, { about: "the position behind what does not match" });
      await domain.store.write((session) =>
        session.run(sql`UPDATE topic_heads SET retention_floor = position + 1 WHERE ${own}`),
      );
      proxy.cut();
      await direct().publish(topic, { n: 4 });
      expect((await deliveries.next()).value).toMatchObject({ data: { n: 4 } });
      // The reader still has the delivery: what comes after does not say that it was done with.
      await direct().publish(`${topic}.others`, { n: 5 });
      await tick("pubsub.positions");
      expect(quiet.place?.sequence).toBe(`${position}`);
      quiet.close();
    }, 60_000);

    test("frames of a run, of before and of after a lost connection", async () => {
      const client = proxied();
      const functionId = named("watched").replace(".", "-");
      await client.registerFunction({ id: functionId, triggers: [{ event: named("watched") }] } as never);
      const { runIds } = (await server.rpc("SvcService", "Emit", { event: named("watched"), data: {} })).body;
      const run = client.subscribe(`system.run.${runIds[0]}.>`, { over, replay: 10 });
      const topics: string[] = [];
      const read = (async () => {
        for await (const { topic } of run) {
          topics.push(topic.split(".").at(-1)!);
          if (topic.endsWith(".cancelled")) break;
        }
      })();
      await until(() => topics.length === 1, { about: "created" });
      proxy.cut();
      await client.cancelRun(runIds[0]);
      await read;
      expect(topics).toEqual(["created", "cancelled"]);
    }, 120_000);
  });

  test("where no socket comes about, a stream does", async () => {
    const front = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      idleTimeout: 0,
      fetch(request) {
        const { pathname, search } = new URL(request.url);
        if (pathname === "/ws") return new Response("no sockets here", { status: 400 });
        return fetch(new Request(server.url + pathname + search, request));
      },
    });
    try {
      const client = clientAt(front.url.origin);
      const one = client.subscribe("fallback.a");
      await one.ready;
      await emit("fallback.a", 1);
      for await (const { data } of one) {
        expect(data).toBe(1);
        break;
      }
      const only = client.subscribe("fallback.a", { over: "websocket" });
      const waited = await until(() => only.state === "waiting", { about: "it to wait" });
      expect(waited).toBe(true);
      only.close();
    } finally {
      await front.stop(true);
    }
  });

  test("a connection on which nothing comes any more is left for another", async () => {
    const transport = createTransport({ url: `http://127.0.0.1:${proxy.port}`, apiKey: server.adminKey });
    const way = socketWay(transport, 1_000);
    const one = openSubscription({ way, pattern: "deaf.a" }, {});
    await one.ready;
    // A live connection stays, however long nothing happens: the server gives signs of life.
    const before = proxy.connections();
    const lookedAt = performance.now();
    await until(() => performance.now() - lookedAt > 3_500, { about: "some silence" });
    expect([one.state, proxy.connections()]).toEqual(["live", before]);
    proxy.deaf.down = true;
    await emit("deaf.a", 1);
    await until(() => one.state !== "live", { about: "the silence to be noticed" });
    proxy.deaf.down = false;
    for await (const { data } of one) {
      expect(data).toBe(1);
      break;
    }
  }, 120_000);

  test("more subscriptions than one socket takes, alike or not", async () => {
    const client = direct();
    const all = Array.from({ length: 130 }, (_, n) =>
      client.subscribe(n % 2 === 0 ? "crowd.*" : `crowd.e${n}`),
    );
    await Promise.all(all.map((one) => one.ready));
    await emit("crowd.e1", "x");
    await Promise.all(
      all.map(async (one, n) => {
        if (n % 2 === 1 && n !== 1) return one.close();
        for await (const { data } of one) {
          expect(data).toBe("x");
          break;
        }
      }),
    );
  });
});
