import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient, type SvcError } from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("emits of one program at once on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  test("each is stored once; one that is illegal and one whose key is taken fail alone", async () => {
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    const first = await client.emit("together.first", {}, { idempotencyKey: "taken" });
    const outcomes = await Promise.allSettled(
      Array.from({ length: 120 }, (_, n) => {
        const event = n === 40 ? "not a name" : "together.many";
        if (n === 80) return client.emit("together.first", { n }, { idempotencyKey: "taken" });
        return client.emit(event, { n }, n % 3 === 0 ? { idempotencyKey: `k${n}` } : {});
      }),
    );
    const failed = outcomes.flatMap((one, n) => (one.status === "rejected" ? [n] : []));
    expect(failed).toEqual([40]);
    const { code, field } = (outcomes[40] as PromiseRejectedResult).reason as SvcError;
    expect({ code, field }).toEqual({ code: "invalid_argument", field: "event" });
    const ids = outcomes.flatMap((one) => (one.status === "fulfilled" ? [one.value.eventId] : []));
    expect(ids[79]).toBe(first.eventId);
    expect(new Set(ids).size).toBe(119);
    const { events } = await client.events.list({ names: ["together.many"], limit: 200 });
    expect(events.map(({ data }) => (data as { n: number }).n).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 120 }, (_, n) => n).filter((n) => n !== 40 && n !== 80),
    );
    for (const { id, data } of events) {
      const outcome = outcomes[(data as { n: number }).n] as PromiseFulfilledResult<{ eventId: string }>;
      expect(outcome.value.eventId).toBe(id);
    }
  });

  test("one key at once is one event", async () => {
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    const emitted = await Promise.all(
      Array.from({ length: 40 }, (_, n) =>
        client.emit("together.once", { n }, { idempotencyKey: "at-once" }),
      ),
    );
    expect(new Set(emitted.map(({ eventId }) => eventId)).size).toBe(1);
  });

  test("messages of topics: each is stored once, and one that is illegal fails alone", async () => {
    const client = createClient({ url: server.url, apiKey: server.adminKey });
    const outcomes = await Promise.allSettled(
      Array.from({ length: 60 }, (_, n) => client.publish(n === 30 ? "not a topic" : "together", { n })),
    );
    expect(outcomes.flatMap((one, n) => (one.status === "rejected" ? [n] : []))).toEqual([30]);
    const sequences = outcomes.flatMap((one) => (one.status === "fulfilled" ? [one.value.sequence] : []));
    expect(new Set(sequences).size).toBe(59);
    const stats = await client.transport.rpc<{ messageCount?: string }>(
      "PubSubService/GetTopicStats",
      { topic: "together" },
      { repeatable: true },
    );
    expect(stats.messageCount).toBe("59");
  });
});
