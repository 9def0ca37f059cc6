import { afterAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Migration } from "../../src/store/migrate.ts";
import { migrations } from "../../src/store/migrations/index.ts";
import { sharedNats } from "../support/nats.ts";
import { homeOf040 } from "../support/of-0.40.0.ts";
import { type Home, startTestServer, type TestServer } from "../support/server.ts";

/** First phase of a made-up change: what the next version needs is there, and today's version does not mind. */
const widened: Migration = {
  version: 900,
  name: "made_up_widened",
  statements: ["ALTER TABLE functions ADD COLUMN made_up TEXT", "CREATE TABLE made_up (id TEXT PRIMARY KEY)"],
  compatible: true,
};
/** Second phase, once no node of before is left: from here on today's version would not work. */
const narrowed: Migration = {
  version: 901,
  name: "made_up_narrowed",
  statements: ["DROP TABLE made_up", "ALTER TABLE functions RENAME COLUMN made_up TO made_up_too"],
};

describe("a rolling upgrade of a database of 0.40.0 over two versions of the schema", () => {
  let home: Home;
  const running: TestServer[] = [];
  const start = async (list: readonly Migration[], nodeId: string) => {
    const { url: nats } = await sharedNats();
    const server = await startTestServer({
      engine: "postgres",
      nats,
      home,
      settings: { nodeId },
      migrations: list,
    });
    running.push(server);
    return server;
  };
  const stop = async (server: TestServer) => {
    running.splice(running.indexOf(server), 1);
    await server.running.stop();
  };
  const works = async (server: TestServer) => {
    const registered = await server.rpc("SvcService", "RegisterFunction", {
      id: `f-${server.running.nodeId}`,
      triggers: [{ event: "up.grade" }],
    });
    expect(registered.status).toBe(200);
    const emitted = await server.rpc("SvcService", "Emit", { event: "up.grade", data: {} });
    expect(emitted.status).toBe(200);
    return emitted.body.runIds.length as number;
  };

  afterAll(async () => {
    for (const server of running.splice(0)) await server.running.stop();
    await home.remove();
  });

  test("nodes of both versions work side by side, each sees what the other registers", async () => {
    home = await homeOf040("postgres");
    const old = await start(migrations, "old-1");
    expect(await works(old)).toBe(1);
    const next = await start([...migrations, widened], "new-1");
    expect(await works(next)).toBe(2);
    expect(await works(old)).toBe(2);
    // A node of the old version may still come back: the first phase is compatible.
    await stop(old);
    const again = await start(migrations, "old-2");
    expect(await works(again)).toBe(3);
    await stop(again);
  }, 120_000);

  test("the second phase shuts the old version out, with a clear word and nothing changed", async () => {
    const last = await start([...migrations, widened, narrowed], "new-2");
    expect(await works(last)).toBeGreaterThan(0);
    const { store } = last.running.domain;
    const landed = () => store.all(sql`SELECT version, hash FROM migrations ORDER BY version`);
    const before = await landed();
    await expect(start(migrations, "old-3")).rejects.toThrow("0901_made_up_narrowed is unknown here");
    expect(await landed()).toEqual(before);
  }, 120_000);
});
