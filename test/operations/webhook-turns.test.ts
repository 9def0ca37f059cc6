import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { claimEndpoint, dueEndpoints, saveProgress } from "../../src/domain/integrations/deliveries/rows.ts";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("endpoints with something to be sent, on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());
  const write = (query: ReturnType<typeof sql>) =>
    server.running.domain.store.write((session) => session.run(query));
  const create = async () => {
    const { status, body } = await server.rpc("WebhookEndpointService", "CreateWebhookEndpoint", {
      ...{ url: "https://example.test/", pattern: "never.*" },
    });
    expect(status).toBe(200);
    return body.id as string;
  };

  test("who waited longest is next, however much the others have to send", async () => {
    const { store } = server.running.domain;
    const ids = [await create(), await create(), await create()];
    // Far away for the server's own loop: what is due is asked of here alone, at a time of its own.
    const later = Date.now() + 3_600_000;
    await write(sql`UPDATE webhook_endpoints SET due_at = ${later}`);
    await server.rpc("SvcService", "Emit", { event: "never.sent" });
    const served: string[] = [];
    for (let turn = 1; turn <= 6; turn++) {
      const now = later + turn * 10;
      const [key] = await dueEndpoints(store, now, { most: 1, ofEach: 1 });
      const claim = { holder: "n", now, until: now + 5 };
      const row = (await store.write((session) => claimEndpoint(session, key!, claim)))!;
      // It has more to send, and gives the others their turn.
      await store.write((session) => saveProgress(session, row, row, { since: now + 5 }));
      served.push(row.id);
    }
    expect(served).toEqual([...ids, ...ids]);
  });

  test("a place beyond the end of the log is found", async () => {
    const id = await create();
    const found = async () => {
      const { checks } = (await server.api("/api/v1/integrity")).body;
      return checks.find((one: { name: string }) => one.name === "webhooks.position");
    };
    expect((await found()).count).toBe(0);
    await write(sql`UPDATE webhook_endpoints SET position = position + 1000 WHERE id = ${id}`);
    const wrong = await until(
      async () => {
        const now = await found();
        return now.count === 1 && now;
      },
      { about: "the place to be found", deadlineMs: 20_000 },
    );
    expect(wrong.oldest.id).toBe(id);
  });
});
