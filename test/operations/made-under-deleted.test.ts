import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Answer, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const entity = { entityId: "e", entityType: "t" };
const append = (server: TestServer, key: string) =>
  server.rpc("EntityStreamService", "AppendEvent", { ...entity, eventName: "a" }, { key });

/** What must be there before. */
const before: Record<string, (server: TestServer, key: string) => Promise<unknown>> = { snapshots: append };

/** What may be made in an environment, and the table that it goes to; a deletion touches none of them at its commit. */
const made: Record<string, (server: TestServer, key: string) => Promise<Answer>> = {
  secrets: (server, key) => server.api("/api/v1/secrets", { key, body: { name: "S", value: "v" } }),
  workers: (server, key) => server.api("/api/v1/workers/w/register", { key, body: { function_ids: ["f"] } }),
  functions: (server, key) =>
    server.rpc("SvcService", "RegisterFunction", { id: "f", triggers: [{ event: "a" }] }, { key }),
  streams: (server, key) => append(server, key),
  snapshots: (server, key) =>
    server.rpc("EntityStreamService", "CreateSnapshot", { ...entity, entityVersion: 1, state: {} }, { key }),
  consumer_groups: (server, key) =>
    server.rpc("PubSubService", "CreateConsumerGroup", { name: "g", pattern: "order.*" }, { key }),
};

// On libSQL one write is done before the next begins.
describe("what is being made in an environment while it is deleted", () => {
  let server: TestServer;
  let foreign: Bun.SQL;
  beforeAll(async () => {
    server = await startTestServer({ engine: "postgres" });
    foreign = new Bun.SQL(server.home.place.databaseUrl!, { max: 2 });
  }, 30_000);
  afterAll(async () => {
    await foreign?.close();
    await server?.stop();
  });

  test.each(Object.keys(made))("%s: is made before it is gone, or not at all", async (table) => {
    const { body: environment } = await server.api("/api/v1/environments", {
      body: { name: table.replace("_", "-") },
    });
    const { body } = await server.api("/api/v1/apikeys", {
      body: { name: "k", env_id: environment.id, role_ids: ["role_admin"] },
    });
    await before[table]?.(server, body.key);
    const waiting = async () => {
      const [row] = await foreign`SELECT count(*)::int AS count FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'`;
      return row.count as number;
    };
    const answered: string[] = [];
    const blocker = await foreign.reserve();
    await blocker`BEGIN`;
    // Rows can be read and held, but nobody gets one in.
    await blocker.unsafe(`LOCK TABLE ${table} IN SHARE MODE`);
    const making = made[table]!(server, body.key).then((answer) => {
      if (answer.status < 300) answered.push("made");
      return answer;
    });
    await until(async () => (await waiting()) >= 1, { about: "who makes" });
    const deleting = server
      .api(`/api/v1/environments/${environment.id}`, { method: "DELETE" })
      .then((answer) => {
        expect(answer.status).toBe(200);
        answered.push("gone");
      });
    // Either it waits for who makes, or it is done, and who makes comes too late.
    await until(async () => answered.length > 0 || (await waiting()) >= 2, { about: "the deletion" });
    await blocker`COMMIT`;
    blocker.release();
    const [answer] = await Promise.all([making, deleting]);
    expect(answer.status < 300 ? "made" : answer.status).toBe(answered[0] === "made" ? "made" : 404);
  });
});
