import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { joinGroup, type TestMember } from "../support/group-member.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("members of a consumer group on %s", (engine) => {
  let server: TestServer;
  const members: TestMember[] = [];
  const sockets: TestSocket[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(async () => {
    for (const socket of sockets) socket.close();
    await Promise.all(members.map((member) => member.leave()));
    await server.stop();
  });

  const call = (method: string, body: object) => server.rpc("PubSubService", method, body);
  const create = async (name: string, settings: object = {}) =>
    expect((await call("CreateConsumerGroup", { name, pattern: `topic:${name}`, ...settings })).status).toBe(
      200,
    );
  const get = async (name: string, withDeliveries = false) =>
    (await call("GetConsumerGroup", { name, withDeliveries })).body;
  const publish = async (topic: string, count: number) => {
    const messages = Array.from({ length: count }, (_, at) => ({ topic, data: { n: at + 1 } }));
    expect((await call("PublishBatch", { messages })).status).toBe(200);
  };
  const connect = async () => {
    const socket = await openSocket(server.url, { key: server.adminKey });
    sockets.push(socket);
    return socket;
  };
  const joinBySocket = async (group: string) => {
    const socket = await connect();
    const { status, subscriptionId, consumerId } = await socket.subscribe(`topic:${group}`, {
      consumerGroup: group,
    });
    expect(status).toBe("ok");
    return { socket, subscriptionId, consumerId };
  };

  test("settle by frames of their socket what they hold, and nothing else", async () => {
    await create("framed", { ackMode: "ACK_MODE_MANUAL", redeliverDelayMs: 60_000, maxInflight: 10 });
    const a = await joinBySocket("framed");
    const b = await joinBySocket("framed");
    // The id of the subscription is what it always was; the member has a name of its own.
    expect(a.subscriptionId).toBe(b.subscriptionId);
    const { members: shown } = await get("framed", true);
    const named = (shown as { consumerId: string }[]).map((member) => member.consumerId);
    expect(named.toSorted()).toEqual([a.consumerId, b.consumerId].toSorted());
    expect(new Set(named).size).toBe(2);

    await publish("framed", 4);
    const ofA = (await a.socket.wait("event", 2)).map((frame) => frame.eventId as string);
    const ofB = (await b.socket.wait("event", 2)).map((frame) => frame.eventId as string);
    const { socket, subscriptionId } = a;
    // What another member holds, what nothing holds, and words that are none: nothing moves.
    for (const eventId of [ofB[0], "evt_none"])
      socket.send({ type: "ack", eventId, ackType: "ack", subscriptionId });
    socket.send({ type: "ack", eventId: ofA[0], ackType: "what", subscriptionId });
    socket.send({ type: "ack", eventId: ofA[0], ackType: "ack", subscriptionId: "sub_other" });
    const before = Date.now();
    socket.send({ type: "ack", eventId: ofA[0], ackType: "nak", subscriptionId, redeliverDelay: 1_000 });
    socket.send({ type: "ack", eventId: ofA[1], ackType: "ack" });
    const again = await until(
      () => [...a.socket.of("event"), ...b.socket.of("event")].filter((one) => one.eventId === ofA[0])[1],
      { about: "the second delivery" },
    );
    expect(again).toBeDefined();
    expect(Date.now() - before).toBeGreaterThanOrEqual(800);
    const { deliveries } = await get("framed", true);
    const heldIds = (deliveries as { eventId: string }[]).map((one) => one.eventId).toSorted();
    expect(heldIds).toEqual([ofA[0]!, ...ofB].toSorted());
    for (const one of [a, b])
      for (const eventId of heldIds) one.socket.send({ type: "ack", eventId, ackType: "term" });
    await until(async () => (await get("framed")).inflightCount === undefined, {
      about: "all to be settled",
    });
    expect((await get("framed")).givenUpCount).toBeUndefined();
    expect([...a.socket.of("error"), ...b.socket.of("error")]).toEqual([]);
  });

  test("settle without the id of the subscription only where one was given the event", async () => {
    await create("one", { pattern: "topic:both", ackMode: "ACK_MODE_MANUAL", redeliverDelayMs: 60_000 });
    await create("two", { pattern: "topic:both", ackMode: "ACK_MODE_MANUAL", redeliverDelayMs: 60_000 });
    const socket = await connect();
    const ids = [];
    for (const consumerGroup of ["one", "two"])
      ids.push((await socket.subscribe("topic:both", { consumerGroup })).subscriptionId);
    await publish("both", 1);
    const [{ eventId }] = await socket.wait("event", 2);
    socket.send({ type: "ack", eventId, ackType: "ack" });
    socket.send({ type: "ack", eventId, ackType: "ack", subscriptionId: ids[0] });
    await until(async () => (await get("one")).inflightCount === undefined, {
      about: "the first to be settled",
    });
    expect((await get("two")).inflightCount).toBe(1);
    // Now there is one.
    socket.send({ type: "ack", eventId, ackType: "ack" });
    await until(async () => (await get("two")).inflightCount === undefined, { about: "the second" });
  });

  const shares = (all: readonly { length: number }[]) => {
    for (const { length } of all) {
      expect(length).toBeGreaterThanOrEqual(12);
      expect(length).toBeLessThanOrEqual(20);
    }
  };

  test("share evenly, over streams and over sockets, whether they acknowledge or not", async () => {
    const tight = { maxInflight: 4, redeliverDelayMs: 60_000 };
    await create("streamed", { ...tight, ackMode: "ACK_MODE_MANUAL" });
    await create("sent", tight);
    const settle = async ({ eventId }: { eventId: string }) => {
      await call("AckEvent", { groupName: "streamed", eventId, ackType: "ACK_TYPE_ACK" });
    };
    const streamed = ["a", "b", "c"].map((consumerId) =>
      joinGroup({ url: server.url, key: server.adminKey }, { groupName: "streamed", consumerId }, settle),
    );
    members.push(...streamed);
    await until(async () => (await get("streamed")).memberCount === 3, { about: "three members" });
    await publish("streamed", 48);
    await until(async () => streamed.reduce((sum, one) => sum + one.got.length, 0) === 48, { about: "all" });
    shares(streamed.map((one) => one.got));

    const bySocket = [await joinBySocket("sent"), await joinBySocket("sent"), await joinBySocket("sent")];
    await publish("sent", 48);
    const got = () => bySocket.map(({ socket }) => socket.of("event"));
    await until(() => got().reduce((sum, one) => sum + one.length, 0) === 48, { about: "all" });
    shares(got());
  });
});
