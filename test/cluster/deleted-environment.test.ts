import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type LivedTime, livedTime } from "../support/lived.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** Beliefs last a second; the rest is what the three calls before take. */
const promisedMs = 2_500;

describe.each(["with a bus", "without a bus"])("an environment deleted on one node of two %s", (bus) => {
  let nats: NatsServer | undefined;
  let home: Home;
  let one: TestServer;
  let two: TestServer;
  let time: LivedTime;

  beforeAll(async () => {
    nats = bus === "with a bus" ? await startNats() : undefined;
    home = await makeHome("postgres");
    const node = () =>
      startTestServer({
        engine: "postgres",
        home,
        settings: { pollHoldMs: 30_000 },
        ...(nats && { nats: nats.url }),
      });
    one = await node();
    two = await node();
    time = await livedTime(home.place.databaseUrl);
  }, 90_000);
  afterAll(async () => {
    await time?.stop();
    await two?.stop();
    await one?.stop();
    await home?.remove();
    await nats?.stop();
  }, 120_000);

  test("is gone on the other within a second, held polls included", async () => {
    const key0 = one.adminKey;
    const { id } = (await one.api("/api/v1/environments", { body: { name: "doomed" } })).body;
    const { key } = (await one.api("/api/v1/apikeys", { body: { name: "k", env_id: id } })).body as {
      key: string;
    };
    await two.api("/api/v1/users", {
      key: key0,
      body: { email: "one@example.com", password: "correct horse battery", roles: ["developer"] },
    });
    const { token } = (
      await two.api("/api/v1/auth/login", {
        key: null,
        body: { email: "one@example.com", password: "correct horse battery" },
      })
    ).body as { token: string };
    const emit = (by: string) => two.rpc("SvcService", "Emit", { event: "a" }, { key: by, environment: id });
    await two.rpc(
      "SvcService",
      "RegisterFunction",
      { id: "f", name: "f", triggers: [{ event: "go" }] },
      { key },
    );
    expect((await emit(key)).status).toBe(200);
    expect((await emit(token)).status).toBe(200);
    const registered = await two.api("/api/v1/workers/w/register", { key, body: { function_ids: ["f"] } });
    expect(registered.status).toBe(200);
    let polled: number | undefined;
    const polling = two.api("/api/v1/workers/w/jobs?available=1", { key }).then(({ status }) => {
      polled = status;
    });
    polling.catch(() => {});
    // What came later has been answered: the poll is held.
    await two.api("/api/v1/workers", { key });
    expect(polled).toBeUndefined();

    expect((await one.api(`/api/v1/environments/${id}`, { method: "DELETE" })).status).toBe(200);
    const deletedAt = time.now();
    expect((await one.rpc("SvcService", "Emit", { event: "a" }, { key })).status).toBe(401);
    // Whoever is still let in there for a moment writes nothing.
    expect([401, 404]).toContain((await emit(key)).status);
    expect([400, 404]).toContain((await emit(token)).status);
    await until(async () => (await emit(key)).status === 401, { about: "the key to be unknown" });
    await until(async () => (await emit(token)).status === 400, { about: "the environment to be unknown" });
    await until(async () => polled !== undefined, { about: "the held poll's answer" });
    expect(time.now() - deletedAt).toBeLessThan(promisedMs);
    // By whichever notices first: that the environment is gone, or that the key is.
    expect([204, 401]).toContain(polled!);
  }, 120_000);
});
