import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { sql } from "../../src/kit/sql.ts";
import { samplesOf } from "../support/metrics.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const day = 86_400_000;

describe.each(engines)("mirror on %s", (engine) => {
  let nats: NatsServer;
  let server: TestServer;
  const emit = async (event: string) =>
    (await server.rpc("SvcService", "Emit", { event, data: {} })).body.eventId as string;
  const store = () => server.running.domain.store;
  const age = (ms: number) =>
    store().write((session) => session.run(sql`UPDATE events SET at = at - ${sql.bigint(ms)}`));
  const position = async () =>
    (await store().one<{ position: number }>(sql`SELECT position FROM mirrors`))?.position ?? 0;
  const check = async () =>
    (await server.api("/api/v1/integrity")).body.checks.find(
      (one: { name: string }) => one.name === "outbox.unmirrored",
    );

  beforeAll(async () => {
    nats = await startNats();
    await nats.shutDown();
    server = await startTestServer({
      engine,
      nats: nats.url,
      settings: { natsMirror: true, eventRetentionDays: 1, metricsEnabled: true },
    });
  }, 30_000);
  afterAll(async () => {
    await server.stop();
    await nats.stop();
  });

  test("while the bus is away nothing expires that was not mirrored, and the report says so", async () => {
    const old = [await emit("old.a"), await emit("old.b")];
    await age(2 * day);
    await server.running.tick("events.expire");
    for (const id of old) expect((await server.api(`/api/v1/events/${id}`)).status).toBe(200);
    const found = await until(
      async () => {
        const one = await check();
        return one.count === 2 ? one : undefined;
      },
      { about: "the report", deadlineMs: 10_000, everyMs: 100 },
    );
    expect(found.oldest.id).toBe(old[0]);
    const samples = samplesOf((await server.api("/metrics", { key: null })).body);
    expect(samples.svc_mirror_lag_events).toBe(2);
    expect(samples.svc_outbox_dead_letters).toBe(0);
    expect(samples.svc_outbox_waiting).toBe(0);
  }, 30_000);

  test("with the bus there it catches up, and what was mirrored may expire", async () => {
    await nats.restart();
    await until(async () => (await position()) === 2, {
      about: "the mirror",
      deadlineMs: 20_000,
      everyMs: 50,
    });
    const outside = await connect({ servers: nats.url });
    const manager = await jetstreamManager(outside);
    const { state, config } = await manager.streams.info("svc_mirror");
    expect(state.messages).toBe(2);
    expect(config.subjects).toEqual(["svc.mirror.>"]);
    await outside.close();
    await until(
      async () => {
        await server.running.tick("events.expire");
        return (await server.api("/api/v1/events")).body.count === 0;
      },
      { about: "the old events to go", deadlineMs: 10_000, everyMs: 100 },
    );
    await until(async () => (await check()).count === 0, {
      about: "the report",
      deadlineMs: 10_000,
      everyMs: 100,
    });
  }, 60_000);
});
