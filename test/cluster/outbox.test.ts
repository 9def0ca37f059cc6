import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { sql } from "../../src/kit/sql.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";
import { concurrently } from "./load.ts";

/** A message of the stream, as whoever reads it outside has it. */
interface Told {
  subject: string;
  id: string;
  topic: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
  body: any;
}

async function told(url: string): Promise<Told[]> {
  const connection = await connect({ servers: url });
  try {
    const manager = await jetstreamManager(connection);
    const count = (await manager.streams.info("svc_mirror")).state.messages;
    const { name } = await manager.consumers.add("svc_mirror", {
      ack_policy: AckPolicy.None,
      deliver_policy: DeliverPolicy.All,
    });
    const consumer = await jetstream(connection).consumers.get("svc_mirror", name);
    const found: Told[] = [];
    while (found.length < count) {
      for await (const message of await consumer.fetch({
        max_messages: count - found.length,
        expires: 2_000,
      }))
        found.push({
          subject: message.subject,
          id: message.headers?.get("Nats-Msg-Id") ?? "",
          topic: message.headers?.get("Svc-Topic") ?? "",
          body: message.json(),
        });
    }
    return found;
  } finally {
    await connection.close();
  }
}

describe("outbox and mirror of three nodes", () => {
  let home: Home;
  let nats: NatsServer;
  let nodes: TestServer[];
  const emitted: string[] = [];

  const emit = async (node: TestServer, event: string, data: unknown = {}) => {
    const { status, body } = await node.rpc("SvcService", "Emit", { event, data });
    expect(status).toBe(200);
    emitted.push(body.eventId);
    return body.eventId as string;
  };
  const load = (count: number) =>
    concurrently(count, 8, async (number) => {
      await emit(nodes[number % nodes.length]!, `mirrored.e${number % 5}`, { number });
    });
  const toldOf = async () => new Set((await told(nats.url)).map(({ body }) => body.id as string));
  const allTold = (ids: readonly string[]) =>
    until(
      async () => {
        const found = await toldOf();
        return ids.every((id) => found.has(id));
      },
      { about: `${ids.length} events to be mirrored`, deadlineMs: 60_000, everyMs: 200 },
    );
  const store = () => nodes[0]!.running.domain.store;
  const countOf = async (where: ReturnType<typeof sql>) =>
    (await store().one<{ count: number }>(sql`SELECT count(*) AS count FROM outbox ${where}`))!.count;
  const caughtUp = (count: number) =>
    until(
      async () => {
        const found = await told(nats.url);
        return found.length >= count ? found : undefined;
      },
      { about: `${count} mirrored messages`, deadlineMs: 60_000, everyMs: 200 },
    );

  beforeAll(async () => {
    nats = await startNats();
    home = await makeHome("postgres");
    nodes = [];
    for (const nodeId of ["a", "b", "c"])
      nodes.push(
        await startTestServer({
          engine: "postgres",
          nats: nats.url,
          home,
          settings: { nodeId, natsMirror: true, busPayloadMax: 64 * 1024 },
        }),
      );
  }, 120_000);
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.stop()));
    await nats.stop();
    await home.remove();
  });

  test("readers outside get every event once and in order, under a stable id", async () => {
    await load(200);
    const found = await caughtUp(emitted.length);
    expect(found.map(({ body }) => body.sequence)).toEqual(emitted.map((_, at) => at + 1));
    expect(found.map(({ body }) => body.id).sort()).toEqual([...emitted].sort());
    for (const { id, topic, subject, body } of found) {
      expect(topic).toBe(`events:${body.name}`);
      expect(id).toBe(`${body.id}/${topic}`);
      expect(subject).toBe(`svc.mirror.env_default.events.${body.name}`);
      expect(body).toMatchObject({ environmentId: "env_default", data: { number: expect.any(Number) } });
    }
  }, 120_000);

  test("with the bus gone for a minute under load nothing is dead-lettered, and all arrives afterwards, once", async () => {
    const goneMs = Number(process.env.SVC_TEST_BUS_GONE_MS ?? 6_000);
    await nats.kill9();
    const cancelled: string[] = [];
    const node = nodes[1]!;
    await node.rpc("SvcService", "RegisterFunction", { id: "held", triggers: [{ event: "held.asked" }] });
    for (const since = performance.now(); performance.now() - since < goneMs; ) {
      await load(40);
      const { body } = await node.rpc("SvcService", "Emit", { event: "held.asked" });
      emitted.push(body.eventId);
      const runId = body.runIds[0] as string;
      expect((await node.rpc("SvcService", "CancelRun", { id: runId })).status).toBe(200);
      cancelled.push(runId);
    }
    // Every cancel is promised, none was tried at its expense.
    const entries = await store().all<{ event_id: string; attempts: number }>(
      sql`SELECT event_id, attempts FROM outbox ORDER BY id`,
    );
    expect(entries).toEqual(cancelled.map((runId) => ({ event_id: `cancel-${runId}`, attempts: 0 })));
    await nats.restart();
    const found = await caughtUp(emitted.length);
    expect(found.map(({ body }) => body.id).sort()).toEqual([...emitted].sort());
    await until(async () => (await countOf(sql`WHERE dead_at IS NULL`)) === 0, {
      about: "the outbox to be told",
      deadlineMs: 60_000,
      everyMs: 100,
    });
    expect(await countOf(sql``)).toBe(0);
  }, 180_000);

  test("a wiped bus gets what comes from then on, and nothing stands still", async () => {
    await nats.restart({ wipe: true });
    const before = emitted.length;
    await load(50);
    await allTold(emitted.slice(before));
  }, 120_000);

  test("an event too large for the bus becomes a dead letter, and the others pass it by", async () => {
    const socket = await openSocket(nodes[2]!.url, { key: nodes[0]!.adminKey });
    await socket.subscribe("system.outbox.>");
    const large = await emit(nodes[0]!, "large", { text: "x".repeat(70_000) });
    const before = emitted.length;
    await load(20);
    await allTold(emitted.slice(before));
    await until(
      async () => {
        await store().write((session) => session.run(sql`UPDATE outbox SET due_at = 0`));
        return socket.of("event").find(({ topic }) => topic === `system.outbox.${large}.dead_lettered`);
      },
      { about: "the frame at another node", deadlineMs: 60_000, everyMs: 100 },
    );
    const { body } = await nodes[1]!.api("/api/v1/outbox/dead-letter?env=env_default");
    expect(body.items).toHaveLength(1);
    expect(body.items[0]).toMatchObject({
      event_id: large,
      topic: "events:large",
      kind: "mirror",
      attempts: 10,
    });
    expect(JSON.parse(Buffer.from(body.items[0].payload, "base64").toString())).toMatchObject({ id: large });
    expect((await told(nats.url)).some((message) => message.body.id === large)).toBe(false);
    const gone = await nodes[1]!.api(`/api/v1/outbox/dead-letter/${large}`, { method: "DELETE" });
    expect(gone.status).toBe(200);
    expect((await nodes[2]!.api(`/api/v1/events/${large}`)).status).toBe(200);
    socket.close();
  }, 120_000);

  test("who leads goes, and the next goes on where it stood", async () => {
    const leader = await store().one<{ node_id: string }>(
      sql`SELECT node_id FROM leaders WHERE duty = 'outbox'`,
    );
    const at = nodes.findIndex(({ running }) => running.nodeId === leader!.node_id);
    const [gone] = nodes.splice(at, 1);
    const since = emitted.length;
    // At those that stay.
    await Promise.all([load(100), gone!.stop()]);
    await load(20);
    await allTold(emitted.slice(since));
    const found = await told(nats.url);
    expect(new Set(found.map(({ body }) => body.id)).size).toBe(found.length);
  }, 120_000);
});
