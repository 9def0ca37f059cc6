import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { makeSource, sendToSource, signed } from "../dashboard/furnish-data.ts";
import { joinGroup } from "../support/group-member.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("frames of groups, webhooks and schemas on %s", (engine) => {
  let server: TestServer;
  let socket: TestSocket;
  const received: string[] = [];
  const receiver = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      received.push(await request.text());
      return new Response(null, { status: 204 });
    },
  });
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pushAllowPrivate: ["127.0.0.0/8"] } });
    socket = await openSocket(server.url, { key: server.adminKey });
    expect((await socket.subscribe("system.>")).status).toBe("ok");
  }, 120_000);
  afterAll(async () => {
    socket.close();
    await server.stop();
    await receiver.stop(true);
  });

  const told = (topic: string) =>
    socket.of("event").filter((frame: { topic: string }) => frame.topic === topic);
  const heard = (topic: string, more = 1) =>
    until(() => told(topic)[more - 1], { about: `${topic}, ${more} times` });
  const emit = async (event: string) =>
    (await server.rpc("SvcService", "Emit", { event, data: { order: 1 } })).body.eventId as string;

  test("a group is made, joined, given something, acknowledged, changed and deleted", async () => {
    const group = { name: "till", pattern: "events:paid.*", ackMode: "ACK_MODE_MANUAL" };
    await server.rpc("PubSubService", "CreateConsumerGroup", group);
    const created = await heard("system.group.default.till.created");
    expect(Object.keys(created.data).sort()).toEqual(["change", "name", "namespace", "timestamp"]);
    const moved = "system.group.default.till.moved";
    const member = joinGroup({ url: server.url, key: server.adminKey }, { groupName: "till" });
    await heard(moved);
    const before = told(moved).length;
    const eventId = await emit("paid.now");
    await heard(moved, before + 1);
    await member.wait(1);
    const given = told(moved).length;
    const ack = { groupName: "till", eventId, ackType: "ACK_TYPE_ACK" };
    expect((await server.rpc("PubSubService", "AckEvent", ack)).status).toBe(200);
    await heard(moved, given + 1);
    const change = { group: { name: "till", maxInflight: 3 }, updateMask: "maxInflight" };
    await server.rpc("PubSubService", "UpdateConsumerGroup", change);
    await heard("system.group.default.till.updated");
    await member.leave();
    await server.rpc("PubSubService", "DeleteConsumerGroup", { name: "till" });
    await heard("system.group.default.till.deleted");
  });

  test("a source is told of when it is made, changed, sent something good or bad, and deleted", async () => {
    const source = await makeSource(server, "shop", "the secret of the shop", "shop");
    const of = (change: string) => `system.webhook_source.${source.id}.${change}`;
    await heard(of("created"));
    const body = '{"order": 1}';
    await sendToSource(server, source, { body, signature: signed("the secret of the shop", body) });
    await heard(of("received"));
    const refused = await sendToSource(server, source, { body, signature: "bad" });
    expect(refused.status).toBe(401);
    await heard(of("received"), 2);
    const update = { id: source.id, name: "renamed" };
    expect((await server.rpc("WebhookService", "UpdateWebhookSource", update)).status).toBe(200);
    await heard(of("updated"));
    await server.rpc("WebhookService", "DeleteWebhookSource", { id: source.id });
    await heard(of("deleted"));
    expect(JSON.stringify(told(of("received")))).not.toContain("order");
  });

  test("an endpoint is told of when it is made, sent something, paused and deleted", async () => {
    const url = `http://127.0.0.1:${receiver.port}/`;
    const { body } = await server.rpc("WebhookEndpointService", "CreateWebhookEndpoint", {
      ...{ name: "books", url, pattern: "events:books.*" },
    });
    const id = body.endpoint?.id ?? body.id;
    const of = (change: string) => `system.webhook_endpoint.${id}.${change}`;
    await heard(of("created"));
    await emit("books.closed");
    await until(() => received.length > 0, { about: "the delivery" });
    await heard(of("moved"));
    await server.rpc("WebhookEndpointService", "PauseWebhookEndpoint", { id });
    await heard(of("updated"));
    await server.rpc("WebhookEndpointService", "DeleteWebhookEndpoint", { id });
    await heard(of("deleted"));
  });

  test("a schema is told of when it is registered and deleted, and so is its enforcement; the same again is not", async () => {
    const schema = { eventName: "ledger.closed", version: 1, schemaJson: '{"type": "object"}' };
    for (let at = 0; at < 2; at++) await server.rpc("EventSchemaService", "RegisterSchema", schema);
    const registered = await heard("system.schema.ledger.closed.registered");
    expect(registered.data).toMatchObject({ eventName: "ledger.closed", version: 1, change: "registered" });
    await server.api("/api/v1/events/enforcement", { method: "PUT", body: { mode: "warn" } });
    expect((await heard("system.enforcement.updated")).data).toMatchObject({ mode: "warn" });
    await server.rpc("EventSchemaService", "DeleteSchema", { eventName: "ledger.closed", version: 1 });
    await heard("system.schema.ledger.closed.deleted");
    expect(told("system.schema.ledger.closed.registered").length).toBe(1);
  });

  test("of what moves all the time few frames are made, and none while nobody reads them", async () => {
    const source = await makeSource(server, "busy", "the secret of the busy", "busy");
    const topic = `system.webhook_source.${source.id}.received`;
    const send = (n: number) => {
      const body = JSON.stringify({ n });
      return sendToSource(server, source, { body, signature: signed("the secret of the busy", body) });
    };
    await Promise.all(Array.from({ length: 50 }, (_, n) => send(n)));
    await heard(topic);
    expect(told(topic).length).toBeLessThan(25);
    const { frames } = server.running.domain;
    expect(frames.wants("webhooks", server.env)).toBe(true);
    const narrow = await openSocket(server.url, { key: server.adminKey });
    await narrow.subscribe("system.run.>");
    socket.close();
    await until(() => !frames.wants("webhooks", server.env), { about: "the reader to be gone" });
    await send(99);
    narrow.close();
  });
});
