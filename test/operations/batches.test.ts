import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Result {
  eventId: string;
  sequence?: string;
}

describe.each(engines)("batches on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  const rpc = async (method: string, body: object, headers: Record<string, string> = {}) => {
    const service = method.startsWith("Publish") ? "PubSubService" : "SvcService";
    const { status, body: answer } = await server.rpc(service, method, body, { headers });
    return { status, ...answer };
  };
  const ok = async (method: string, body: object): Promise<Result[]> => {
    const answer = await rpc(method, body);
    expect(answer.status).toBe(200);
    return answer.results ?? [answer];
  };
  /** Names of what was logged under this prefix, in order. */
  const logged = async (prefix: string) => {
    const { store } = server.running.domain;
    const like = `${prefix}%`;
    const events = await store.all<{ name: string }>(
      sql`SELECT name FROM events WHERE name LIKE ${like} ORDER BY position`,
    );
    const messages = await store.all<{ name: string }>(
      sql`SELECT topic AS name FROM topic_messages WHERE topic LIKE ${like} ORDER BY position`,
    );
    return [...events, ...messages].map(({ name }) => name.slice(prefix.length));
  };
  const both = [
    ["TriggerBatch", "Emit", (name: string) => ({ event: name }), "events"],
    ["PublishBatch", "Publish", (name: string) => ({ topic: name }), "messages"],
  ] as const;
  const listIn = (field: string, list: object[]) => ({ [field]: list });
  const keyed = (item: object, idempotencyKey: string) => ({ ...item, idempotencyKey });

  describe.each(both)("%s", (batch, single, itemOf, field) => {
    const prefix = `${engine}.${single}.`.toLowerCase();
    const other = single === "Emit" ? ["Publish", { topic: "taken" }] : ["Emit", { event: "taken" }];
    const take = (key: string) => ok(other[0] as string, keyed(other[1] as object, key));

    test("one item whose key names something else refuses all, names itself, and nothing is written", async () => {
      await take(`${prefix}used`);
      const names = ["half.one", "half.two", "half.three"];
      const list = names.map((name, at) =>
        at === 1 ? keyed(itemOf(prefix + name), `${prefix}used`) : itemOf(prefix + name),
      );
      const answer = await rpc(batch, listIn(field, list));
      expect(answer).toMatchObject({ status: 409, code: "already_exists" });
      expect(answer.message).toStartWith(`${field}[1]: idempotency key`);
      expect(await logged(`${prefix}half.`)).toEqual([]);
    });

    test("keys of a refused batch are free", async () => {
      await take(`${prefix}used2`);
      const list = [
        keyed(itemOf(`${prefix}free.a`), `${prefix}free`),
        keyed(itemOf(`${prefix}free.b`), `${prefix}used2`),
      ];
      expect((await rpc(batch, listIn(field, list))).status).toBe(409);
      await ok(single, keyed(itemOf(`${prefix}free.c`), `${prefix}free`));
      expect(await logged(`${prefix}free.`)).toEqual(["c"]);
    });

    test("of one key twice the first stands, and the answer has the length of the question", async () => {
      for (let n = 0; n < 5; n++) {
        // Messages of two topics would be two facts.
        const second = single === "Emit" ? "dup.second" : "dup.first";
        const list = [
          keyed(itemOf(`${prefix}dup.first`), `${prefix}dup${n}`),
          keyed(itemOf(prefix + second), `${prefix}dup${n}`),
          itemOf(`${prefix}dup.third`),
        ];
        const results = await ok(batch, listIn(field, list));
        expect(results).toHaveLength(3);
        expect(results[1]).toEqual(results[0]!);
        expect(results[2]!.eventId).not.toBe(results[0]!.eventId);
        expect(await ok(batch, listIn(field, list.slice(0, 2)))).toEqual(results.slice(0, 2));
      }
      const names = (await logged(`${prefix}dup.`)).join();
      expect(names).toBe(Array(5).fill("first,third").join());
    });

    test("who shares its flush is unaffected, and of all callers the first gets the key", async () => {
      await take(`${prefix}clash`);
      const item = (name: string) => itemOf(`${prefix}crowd.${name}`);
      const answers = await Promise.all([
        rpc(single, item("a")),
        rpc(batch, listIn(field, [item("b"), keyed(item("c"), `${prefix}clash`)])),
        rpc(batch, listIn(field, [item("d"), keyed(item("same"), `${prefix}first`)])),
        rpc(batch, listIn(field, [keyed(item("same"), `${prefix}first`), item("e")])),
        rpc(single, keyed(item("same"), `${prefix}first`)),
        rpc(batch, listIn(field, [item("f"), keyed(item("g"), `${prefix}clash`), item("h")])),
      ]);
      expect(answers.map(({ status }) => status)).toEqual([200, 409, 200, 200, 200, 409]);
      expect((await logged(`${prefix}crowd.`)).sort()).toEqual(["a", "d", "e", "same"]);
      const ids = [answers[2].results[1], answers[3].results[0], answers[4]].map(({ eventId }) => eventId);
      expect(new Set(ids).size).toBe(1);
    });

    test("an illegal item refuses all of a batch, by its name", async () => {
      const item = itemOf(`${prefix}illegal`);
      for (const [bad, about] of [
        [itemOf("a..b"), `${field}[1].`],
        [keyed(item, "k".repeat(256)), `${field}[1].idempotencyKey: at most 255 bytes`],
        [keyed(item, "ü".repeat(128)), `${field}[1].idempotencyKey: at most 255 bytes`],
        [keyed(item, "\u0001cron:x"), `${field}[1].idempotencyKey: must not contain control characters`],
      ] as const) {
        const answer = await rpc(batch, listIn(field, [item, bad]));
        expect(answer).toMatchObject({ status: 400, code: "invalid_argument" });
        expect(answer.message).toStartWith(about);
      }
      expect(await logged(`${prefix}illegal`)).toEqual([]);
    });
  });

  test.each(["Emit", "Publish", "InvokeFunction", "Trigger"])(
    "the header's key of %s is bounded",
    async (method) => {
      const body = { event: "a", topic: "a", functionId: "a" };
      const { event, topic, functionId } = body;
      const own = method === "Publish" ? { topic } : method === "InvokeFunction" ? { functionId } : { event };
      const answer = await rpc(method, own, { "idempotency-key": "k".repeat(3_000) });
      expect(answer).toMatchObject({ status: 400, code: "invalid_argument" });
      expect(answer.message).toStartWith("Idempotency-Key: at most 255 bytes");
    },
  );

  test("so is that of a rotation", async () => {
    const answer = await server.api("/api/v1/cluster/rotate-token", {
      body: { kind: "jwt_secret", new_value: "n".repeat(48) },
      headers: { "idempotency-key": "k".repeat(6_000) },
    });
    expect(answer.status).toBe(400);
    expect(JSON.stringify(answer.body)).toContain("Idempotency-Key: at most 255 bytes");
  });

  test("nobody can name the key of a slot", async () => {
    await ok("RegisterFunction", { id: "ticks", triggers: [{ cron: "* * * * * *" }] });
    const from = Math.ceil(Date.now() / 1_000) * 1_000;
    const tried = Array.from({ length: 100 }, (_, n) => `cron:ticks:0:${from + (n + 1) * 1_000}`);
    await ok("TriggerBatch", { events: tried.map((idempotencyKey) => ({ event: "squat", idempotencyKey })) });
    const { store } = server.running.domain;
    const fired = () =>
      store.all<{ idempotency_key: string }>(
        sql`SELECT idempotency_key FROM events WHERE source = 'cron' ORDER BY position`,
      );
    await until(async () => (await fired()).length >= 2, { about: "two slots", everyMs: 50 });
    const slots = (await fired()).map(({ idempotency_key }) => idempotency_key);
    for (const key of slots) expect(key).toMatch(/^cron:ticks:\d+:\d+$/);
    // One of those that somebody tried to take.
    expect(tried).toContain(slots[1]!);
  });
});
