import { expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

test.each(engines)(
  "events that expired while an endpoint was stopped are a dead letter, which tells their positions, on %s",
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
      const { id } = await ok("CreateWebhookEndpoint", {
        url: String(receiver.url),
        pattern: "events:late.*",
      });
      await ok("PauseWebhookEndpoint", { id });
      for (const n of [1, 2]) await emit(n);
      await server.running.domain.store.write((session) => session.run(sql`DELETE FROM events`));
      await emit(3);
      await ok("ResumeWebhookEndpoint", { id });
      await until(() => got.length > 0, { about: "a delivery" });
      expect(got).toEqual([3]);
      const { deadLetters } = await ok("ListWebhookDeadLetters", { endpointId: id });
      const lastError = expect.stringMatching(
        /^events \d+ to \d+ of the log expired while the endpoint was stopped$/,
      );
      expect(deadLetters).toMatchObject([{ eventName: "expired", lastError }]);
      await ok("DiscardWebhookDeadLetter", { endpointId: id, eventId: deadLetters[0].eventId });
      expect((await ok("ListWebhookDeadLetters", { endpointId: id })).totalCount ?? 0).toBe(0);
    } finally {
      await server.stop();
      await receiver.stop(true);
    }
  },
  30_000,
);
