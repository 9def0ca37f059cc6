import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { openExpiry } from "../../src/domain/log/topics/service.ts";
import { testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";

const hour = 60 * 60 * 1000;

describe.each(engines)("developer topics on %s", (engine) => {
  let server: TestServer;
  const open: TestSocket[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(async () => {
    for (const socket of open) socket.close();
    await server.stop();
  });

  const connect = async (key = server.adminKey) => {
    const socket = await openSocket(server.url, { key });
    open.push(socket);
    return socket;
  };
  const call = (method: string, body: object, options = {}) =>
    server.rpc("PubSubService", method, body, options);
  const publish = async (topic: string, data: unknown = {}, more: object = {}) => {
    const answer = await call("Publish", { topic, data, ...more });
    expect(answer.body).toEqual({ eventId: expect.stringMatching(/^evt_/), sequence: expect.any(String) });
    return { eventId: answer.body.eventId as string, sequence: Number(answer.body.sequence) };
  };
  const environment = async (name: string) => {
    const made = await server.api("/api/v1/environments", { body: { name } });
    expect(made.status).toBe(201);
    const { id } = made.body as { id: string };
    const { body } = await server.api("/api/v1/apikeys", { body: { name, env_id: id } });
    return { id, key: body.key as string };
  };

  test("what is published reaches those whose patterns stand for it, and starts nothing", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "shop", triggers: [{ event: "shop.sold" }] });
    const socket = await connect();
    const one = await socket.subscribe("topic:shop.sold", { includeMetadata: true });
    const filtered = await socket.subscribe("topic:shop.*", { filter: "data.price > 10" });
    await socket.subscribe("events:>");
    await socket.subscribe("topic:other.>");
    const { eventId, sequence } = await publish("shop.sold", { price: 7 }, { metadata: { by: "till" } });
    const dear = await publish("topic:shop.sold", { price: 70 });
    expect(dear.sequence).toBe(sequence + 1);
    const got = await socket.wait("event", 3);
    expect(got).toHaveLength(3);
    expect(got[0]).toEqual({
      type: "event",
      subscriptionId: one.subscriptionId,
      eventId,
      topic: "topic:shop.sold",
      data: { price: 7 },
      meta: {
        timestamp: expect.any(String),
        sequence,
        sequenceExact: `${sequence}`,
        custom: { by: "till" },
      },
    });
    const ofFilter = got.filter((frame) => frame.subscriptionId === filtered.subscriptionId);
    expect(ofFilter.map((frame) => frame.data)).toEqual([{ price: 70 }]);
    const { body } = await server.rpc("SvcService", "ListRuns", { functionId: "shop" });
    expect(body.runs ?? []).toEqual([]);
    const events = await server.api("/api/v1/events?name=shop");
    expect(events.body.events).toEqual([]);
  });

  test("positions go on over all topics of an environment, without a gap, whatever is sent at once", async () => {
    const env = await environment("gapless");
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, at) =>
        at % 3 === 0
          ? call(
              "PublishBatch",
              { messages: [{ topic: "g.a" }, { topic: `g.b${at % 7}`, data_value: [at] }] },
              { key: env.key },
            )
          : call("Publish", { topic: "g.c", dataValue: at }, { key: env.key }),
      ),
    );
    const sequences = answers.flatMap(({ status, body }) => {
      expect(status).toBe(200);
      return (body.results ?? [body]).map((one: { sequence: string }) => Number(one.sequence));
    });
    expect(sequences.sort((a, b) => a - b)).toEqual(Array.from({ length: 80 }, (_, at) => at + 1));
    const { body } = await call("ListTopics", {}, { key: env.key });
    const counts = Object.fromEntries(
      body.topics.map((topic: { name: string; messageCount: string }) => [
        topic.name,
        Number(topic.messageCount),
      ]),
    );
    expect(counts["g.a"]).toBe(20);
    expect(counts["g.c"]).toBe(40);
    expect(Object.values(counts).reduce<number>((sum, count) => sum + Number(count), 0)).toBe(80);
    expect(await call("ListTopics", {})).not.toMatchObject({ body: { topics: [{ name: "g.a" }] } });
  });

  test("replay and startAfterSequence read topics as they read events", async () => {
    const places: number[] = [];
    for (let number = 1; number <= 5; number++) places.push((await publish("past.a", { number })).sequence);
    await publish("past.b", { number: 0 });
    const socket = await connect();
    const numbers = async (count: number, pattern: string, options: object) => {
      const before = socket.of("event").length;
      const { subscriptionId } = await socket.subscribe(pattern, options as Record<string, unknown>);
      const all = await socket.wait("event", before + count);
      return all.filter((one) => one.subscriptionId === subscriptionId).map((one) => one.data.number);
    };
    expect(await numbers(2, "topic:past.a", { replay: 2 })).toEqual([4, 5]);
    expect(await numbers(3, "topic:past.>", { replay: 3 })).toEqual([4, 5, 0]);
    expect(await numbers(3, "topic:past.a", { startAfterSequence: places[1] })).toEqual([3, 4, 5]);
    const above = await socket.subscribe("topic:past.a", { startAfterSequence: places[4]! + 1_000 });
    expect(above).toMatchObject({ status: "error", code: "INVALID_ARGUMENT" });
    const late = await publish("past.a", { number: 6 });
    const fresh = await connect();
    await fresh.subscribe("topic:past.a", { startAfterSequence: places[4], includeMetadata: true });
    await publish("past.a", { number: 7 });
    const [six, seven] = await fresh.wait("event", 2);
    expect([six.data.number, six.meta.sequence, seven.data.number]).toEqual([6, late.sequence, 7]);
  });

  test("a key is published under once; another use of it is refused", async () => {
    const first = await publish("keyed", { n: 1 }, { idempotencyKey: "k1" });
    expect(await publish("keyed", { n: 2 }, { idempotencyKey: "k1" })).toEqual(first);
    const both = await Promise.all(
      [1, 2, 3].map(() => call("Publish", { topic: "keyed" }, { headers: { "idempotency-key": "k2" } })),
    );
    expect(new Set(both.map(({ body }) => body.eventId)).size).toBe(1);
    const stats = await call("GetTopicStats", { topic: "keyed" });
    expect(stats.body).toMatchObject({ name: "keyed", messageCount: "2", firstSeq: `${first.sequence}` });
    const elsewhere = await call("Publish", { topic: "keyed.too", idempotencyKey: "k1" });
    expect([elsewhere.status, elsewhere.body.code]).toEqual([409, "already_exists"]);
    const emitted = await server.rpc("SvcService", "Emit", { event: "keyed", idempotencyKey: "k1" });
    expect(emitted.body.code).toBe("already_exists");
    // The key means nothing in another environment.
    const env = await environment("keys");
    const there = await call("Publish", { topic: "keyed", idempotencyKey: "k1" }, { key: env.key });
    expect(there.body.eventId).not.toBe(first.eventId);
  });

  test("what is wrong is named, and nothing is stored", async () => {
    const before = (await call("ListTopics", {})).body;
    const cases: [string, object, string][] = [
      ["Publish", { topic: "" }, "topic: must not be empty"],
      ["Publish", { topic: "a.*" }, "topic: must not contain * or >"],
      ["Publish", { topic: "topic:a..b" }, "topic: must not contain an empty segment"],
      ["Publish", { topic: "a".repeat(249) }, "topic: at most 248 bytes"],
      ["Publish", { topic: "bad", metadata: [1] }, "metadata"],
      ["Publish", { topic: "bad", idempotencyKey: "k".repeat(300) }, "idempotencyKey: at most"],
      [
        "PublishBatch",
        { messages: [{ topic: "bad" }, { topic: "" }] },
        "messages[1].topic: must not be empty",
      ],
      ["PublishBatch", { messages: Array(101).fill({ topic: "bad" }) }, "messages: at most 100"],
      ["GetTopicStats", { topic: "a.*" }, "topic"],
      ["ListTopics", { cursor: "!" }, "cursor"],
    ];
    for (const [method, body, message] of cases) {
      const answer = await call(method, body);
      expect([answer.status, answer.body.code]).toEqual([400, "invalid_argument"]);
      expect(answer.body.message).toContain(message);
    }
    expect((await call("GetTopicStats", { topic: "bad" })).status).toBe(404);
    expect((await call("ListTopics", {})).body).toEqual(before);
    expect((await call("PublishBatch", { messages: [] })).body).toEqual({ results: [] });
  });

  test("topics are listed page by page, with their first and last message", async () => {
    const env = await environment("pages");
    for (const topic of ["c", "a", "b", "a"]) await call("Publish", { topic }, { key: env.key });
    const names: string[] = [];
    let cursor = "";
    do {
      const { body } = await call("ListTopics", { limit: 2, cursor }, { key: env.key });
      for (const topic of body.topics) {
        names.push(topic.name);
        expect(Date.parse(topic.firstMessageAt)).toBeLessThanOrEqual(Date.parse(topic.lastMessageAt));
      }
      cursor = body.nextCursor ?? "";
    } while (cursor !== "");
    expect(names).toEqual(["a", "b", "c"]);
    const { body } = await call("GetTopicStats", { topic: "topic:a" }, { key: env.key });
    expect(body).toEqual({ name: "a", messageCount: "2", firstSeq: "2", lastSeq: "4" });
  });

  test("old messages go, never past what somebody needs, and the floor says so", async () => {
    const env = await environment("old");
    const { store } = server.running.domain;
    for (let left = 0; left < 4; left++) {
      const messages = Array.from({ length: 100 }, (_, at) => ({ topic: at % 2 ? "odd" : "even" }));
      await call("PublishBatch", { messages }, { key: env.key });
    }
    const later = (hours: number, needed?: number) =>
      openExpiry({
        store,
        clock: { ...testClock(Date.now() + hours * hour), sleep: async () => {} },
        log: silentLog,
        keptMs: 72 * hour,
        floorGuards: [async (id) => (id === env.id ? needed : 0)],
      });
    const run = async (tick: ReturnType<typeof later>) => {
      while ((await tick(store.write)).againInMs !== undefined);
    };
    const kept = () =>
      store.one<{ n: number; least: number | null }>(
        sql`SELECT count(*) AS n, min(position) AS least FROM topic_messages WHERE environment_id = ${env.id}`,
      );
    await run(later(71));
    expect(await kept()).toEqual({ n: 400, least: 1 });
    await run(later(73, 301));
    expect(await kept()).toEqual({ n: 100, least: 301 });
    const stats = await call("GetTopicStats", { topic: "odd" }, { key: env.key });
    expect(stats.body).toMatchObject({ messageCount: "50", firstSeq: "302" });
    const socket = await connect(env.key);
    expect(await socket.subscribe("topic:odd", { startAfterSequence: 5 })).toMatchObject({
      status: "error",
      message: expect.stringContaining("positions below 301 have expired"),
    });
    expect(await socket.subscribe("topic:odd", { startAfterSequence: 0 })).toMatchObject({ status: "ok" });
    expect(await socket.wait("event", 50)).toHaveLength(50);
    await run(later(73));
    expect(await kept()).toEqual({ n: 0, least: null });
    expect((await call("ListTopics", {}, { key: env.key })).body).toEqual({});
    const next = await call("Publish", { topic: "odd" }, { key: env.key });
    expect(next.body.sequence).toBe("401");
  });

  test("a deleted environment has no topics any more", async () => {
    const env = await environment("gone");
    expect((await call("Publish", { topic: "last" }, { key: env.key })).status).toBe(200);
    const socket = await connect(env.key);
    await socket.subscribe("topic:>");
    expect((await server.api(`/api/v1/environments/${env.id}`, { method: "DELETE" })).status).toBe(200);
    expect((await call("Publish", { topic: "last" }, { key: env.key })).status).toBe(401);
    const left = await server.running.domain.store.all(
      sql`SELECT environment_id FROM topic_heads WHERE environment_id = ${env.id}`,
    );
    expect(left).toEqual([]);
    await server.running.tick("topics.feeds");
    expect((await socket.whenClosed()).code).toBe(1008);
  });

  test("events are emitted here too", async () => {
    const socket = await connect();
    await socket.subscribe("events:here.>");
    const { body } = await call("Emit", { event: "here.too", data: { a: 1 }, namespace: "default" });
    const [frame] = await socket.wait("event");
    expect(frame).toMatchObject({ eventId: body.eventId, topic: "events:here.too", data: { a: 1 } });
  });
});
