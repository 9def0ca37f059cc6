import { expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

test.each(engines)(
  "events that expired while an endpoint was stopped are one dead letter, also beside events that are kept, on %s",
  async (engine) => {
    const got: unknown[] = [];
    const receiver = Bun.serve({
      ...{ port: 0, hostname: "127.0.0.1" },
      async fetch(request) {
        got.push(((await request.json()) as { data: unknown }).data);
        return new Response(null, { status: 204 });
      },
    });
    const server = await startTestServer({ engine, settings: { pushAllowPrivate: ["127.0.0.0/8"] } });
    try {
      const ok = async (method: string, body: object) => {
        const answer = await server.rpc("WebhookEndpointService", method, body);
        expect([method, answer.status]).toEqual([method, 200]);
        return answer.body;
      };
      const emit = (n: number) => server.rpc("SvcService", "Emit", { event: "late.made", data: n });
      /** Retention leaves the events of entities. */
      const keep = (n: number) =>
        server.rpc("EntityStreamService", "AppendEvent", {
          ...{ entityId: `e${n}`, entityType: "t", eventName: "late.made", data: n },
        });
      const url = String(receiver.url);
      const { id } = await ok("CreateWebhookEndpoint", { name: "all", url, pattern: "events:late.*" });
      const ofEntities = await ok("CreateWebhookEndpoint", {
        name: "entities",
        url,
        pattern: "entity:t.>",
      });
      await ok("PauseWebhookEndpoint", { id });
      await ok("PauseWebhookEndpoint", { id: ofEntities.id });
      for (const n of [1, 2]) await emit(n);
      await keep(3);
      await keep(4);
      for (const n of [5, 6, 7]) await emit(n);
      await keep(8);
      await emit(9);
      const { store } = server.running.domain;
      await store.write((session) => session.run(sql`DELETE FROM events WHERE entity_id IS NULL`));
      await emit(10);
      const left = (
        await store.all<{ position: number }>(sql`SELECT position FROM events ORDER BY position`)
      ).map(({ position }) => Number(position));
      await ok("ResumeWebhookEndpoint", { id });
      await until(() => got.length > 3, { about: "the deliveries" });
      expect(got).toEqual([3, 4, 8, 10]);
      const { deadLetters } = await ok("ListWebhookDeadLetters", { endpointId: id });
      const [first, last] = [left[0]! - 2, left.at(-1)! - 1];
      const lastError = `6 events from ${first} to ${last} of the log expired while the endpoint was stopped`;
      expect(deadLetters).toMatchObject([{ eventName: "expired", lastError }]);
      await ok("ResumeWebhookEndpoint", { id: ofEntities.id });
      await until(() => got.length > 6, { about: "the deliveries to those who read entities" });
      expect(got.slice(4)).toEqual([3, 4, 8]);
      expect((await ok("ListWebhookDeadLetters", { endpointId: ofEntities.id })).deadLetters ?? []).toEqual(
        [],
      );
      await ok("DiscardWebhookDeadLetter", { endpointId: id, eventId: deadLetters[0].eventId });
      expect((await ok("ListWebhookDeadLetters", { endpointId: id })).totalCount ?? 0).toBe(0);
    } finally {
      await server.stop();
      await receiver.stop(true);
    }
  },
  30_000,
);
