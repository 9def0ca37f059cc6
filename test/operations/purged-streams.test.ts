import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const secret = "the-secret-of-a-person";

describe.each(engines)("what is purged on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const call = async (method: string, body: object) => {
    const answer = await server.rpc("EntityStreamService", method, body);
    expect([method, answer.status]).toEqual([method, 200]);
    return answer.body;
  };
  const append = async (entityId: string, count: number): Promise<string[]> => {
    const ids: string[] = [];
    for (let done = 0; done < count; done += 100) {
      const events = Array.from({ length: Math.min(100, count - done) }, () => ({
        ...{ eventName: "told", data: { secret }, metadata: { secret } },
      }));
      const body = await call("AppendEvents", {
        streams: [{ entityId, entityType: "person", expectedVersion: "-1", events }],
      });
      ids.push(...(body.results as { eventId: string }[]).map(({ eventId }) => eventId));
    }
    return ids;
  };
  /** Everything that a reader of events sees. */
  const seen = async (eventId: string) =>
    JSON.stringify([
      (await server.api(`/api/v1/events/${eventId}`)).body,
      (await server.api("/api/v1/events?name=told&limit=200")).body,
      (
        await server.rpc("QueryService", "ExecuteSQL", {
          query: "SELECT count(*) AS n, max(CAST(data AS TEXT)) AS most FROM events WHERE name = 'told'",
        })
      ).body,
    ]);
  const audited = (eventType: string) =>
    until(
      async () => {
        await server.running.tick("audit.flush");
        const { body } = await server.api(`/api/v1/audit?action=${eventType}`);
        return (body.events as unknown[])[0];
      },
      { about: `a row of ${eventType}` },
    );

  test("is unreadable once the call is answered, however long the stream is, and audited", async () => {
    const ids = await append("long", 2_300);
    expect(await seen(ids[0]!)).toContain(secret);
    await call("DeleteStream", { entityId: "long", purge: true });
    for (const place of [0, 999, 1_000, 2_299]) expect(await seen(ids[place]!)).not.toContain(secret);
    // Deleted again, and what the loop finds: nothing is left to do.
    await call("DeleteStream", { entityId: "long", purge: true });
    await server.running.tick("streams.purge");
    const row = await audited("streams.delete");
    expect(JSON.stringify(row)).toContain("long");
  });

  test("is unreadable once either of two calls is answered", async () => {
    const ids = await append("twice", 2_300);
    const answered = async () => {
      await call("DeleteStream", { entityId: "twice", purge: true });
      return seen(ids.at(-1)!);
    };
    for (const text of await Promise.all([answered(), answered()])) expect(text).not.toContain(secret);
  });

  test("by the redaction of one event is audited with the event's id", async () => {
    const [eventId] = await append("one", 1);
    await call("RedactEvent", { entityId: "one", eventId });
    expect(await seen(eventId!)).not.toContain(secret);
    const row = JSON.stringify(await audited("streams.redactEvent"));
    expect(row).toContain(eventId!);
    expect(row).not.toContain(secret);
  });
});
