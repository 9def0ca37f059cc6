import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { sql } from "../../src/kit/sql.ts";
import { samplesOf } from "../support/metrics.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { engines, type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
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
  }, 120_000);
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
      { about: "the report", deadlineMs: 25_000, everyMs: 100 },
    );
    expect(found.oldest.id).toBe(old[0]);
    const samples = samplesOf((await server.api("/metrics", { key: null })).body);
    expect(samples.svc_mirror_lag_events).toBe(2);
    expect(samples.svc_outbox_dead_letters).toBe(0);
    expect(samples.svc_outbox_waiting).toBe(0);
  }, 120_000);

  test("with the bus there it catches up, and what was mirrored may expire", async () => {
    await nats.restart();
    await until(async () => (await position()) === 2, {
      about: "the mirror",
      deadlineMs: 25_000,
      everyMs: 50,
    });
    const outside = await connect({ servers: nats.url });
    const manager = await jetstreamManager(outside);
    const { state, config } = await manager.streams.info("svc_mirror");
    expect(state.messages).toBe(2);
    expect(config.subjects).toEqual(["svc.mirror.>"]);
    const named = await emit("größe.日本");
    const message = await until(() => manager.streams.getMessage("svc_mirror", { seq: 3 }), {
      about: "an event with a name beyond ASCII",
      deadlineMs: 25_000,
      everyMs: 50,
    });
    expect(message).toMatchObject({ subject: "svc.mirror.env_default.events.größe.日本" });
    expect(message?.header.get("Nats-Msg-Id")).toBe(`${named}/events:größe.日本`);
    expect(message?.header.get("Svc-Topic")).toBe("events:größe.日本");
    await outside.close();
    await until(
      async () => {
        await server.running.tick("events.expire");
        return (await server.api("/api/v1/events")).body.count === 1;
      },
      { about: "the old events to go", deadlineMs: 25_000, everyMs: 100 },
    );
    await until(async () => (await check()).count === 0, {
      about: "the report",
      deadlineMs: 25_000,
      everyMs: 100,
    });
  }, 120_000);
});

describe.each(engines)("an event that the bus did not take, on %s", (engine) => {
  let nats: NatsServer;
  let home: Home;
  const start = (busPayloadMax: number) =>
    startTestServer({
      ...{ engine, home, nats: nats.url },
      settings: { natsMirror: true, busPayloadMax, metricsEnabled: true },
    });

  beforeAll(async () => {
    nats = await startNats();
    home = await makeHome(engine);
  }, 120_000);
  afterAll(async () => {
    await nats.stop();
    await home.remove();
  });

  test("is requeued once the bus takes more, and arrives under the id that it always had", async () => {
    const small = await start(2_048);
    const data = { text: "x".repeat(3_000) };
    const { body: emitted } = await small.rpc("SvcService", "Emit", { event: "large", data });
    const list = "/api/v1/outbox/dead-letter?env=env_default";
    const letter = await until(
      async () => {
        await small.running.domain.store.write((session) => session.run(sql`UPDATE outbox SET due_at = 0`));
        await small.running.tick("outbox.relay");
        return (await small.api(list)).body.items[0];
      },
      { about: "the dead letter", deadlineMs: 30_000, everyMs: 20 },
    );
    expect(letter).toMatchObject({ event_id: emitted.eventId, kind: "mirror", topic: "events:large" });
    const samples = samplesOf((await small.api("/metrics", { key: null })).body);
    expect(samples).toMatchObject({
      'svc_outbox_refused_total{kind="mirror"}': 10,
      'svc_outbox_dead_lettered_total{kind="mirror"}': 1,
    });
    await small.stop();

    const large = await start(64 * 1_024);
    const path = `/api/v1/outbox/dead-letter/${emitted.eventId}/requeue`;
    expect((await large.api(path, { method: "POST" })).status).toBe(200);
    const outside = await connect({ servers: nats.url });
    const manager = await jetstreamManager(outside);
    const message = await until(() => manager.streams.getMessage("svc_mirror", { seq: 1 }), {
      about: "the message",
      deadlineMs: 25_000,
      everyMs: 50,
    });
    expect(message?.header.get("Nats-Msg-Id")).toBe(`${emitted.eventId}/events:large`);
    expect(message?.json()).toMatchObject({ id: emitted.eventId, sequence: 1, data });
    await outside.close();
    await until(async () => (await large.running.domain.store.all(sql`SELECT id FROM outbox`)).length === 0, {
      about: "the entry to leave",
      deadlineMs: 25_000,
      everyMs: 20,
    });
    await large.stop();
  }, 150_000);
});
