import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code } from "@connectrpc/connect";
import { AckType } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { sql } from "../../src/kit/sql.ts";
import { joinGroup, pubsubClient, type TestMember } from "../support/group-member.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("consumer groups on %s", (engine) => {
  let server: TestServer;
  const members: TestMember[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(async () => {
    await Promise.all(members.map((member) => member.leave()));
    await server.stop();
  });

  const call = (method: string, body: object, options = {}) =>
    server.rpc("PubSubService", method, body, options);
  const create = async (name: string, settings: object = {}) => {
    const answer = await call("CreateConsumerGroup", { name, pattern: `topic:${name}`, ...settings });
    expect(answer.status).toBe(200);
    return answer.body;
  };
  const get = async (name: string) => (await call("GetConsumerGroup", { name })).body;
  const join = async (groupName: string, consumerId: string) => {
    const before = (await get(groupName)).memberCount ?? 0;
    const member = joinGroup({ url: server.url, key: server.adminKey }, { groupName, consumerId });
    members.push(member);
    await until(async () => ((await get(groupName)).memberCount ?? 0) > before, {
      about: "the member to be seated",
    });
    return member;
  };
  const publish = async (topic: string, numbers: readonly number[]) => {
    const messages = numbers.map((n) => ({ topic, data: { n } }));
    expect((await call("PublishBatch", { messages })).status).toBe(200);
  };
  const upTo = (count: number) => Array.from({ length: count }, (_, at) => at + 1);
  const ack = (groupName: string, eventId: string, more: object = {}) =>
    call("AckEvent", { groupName, eventId, ackType: "ACK_TYPE_ACK", ...more });
  const sorted = (list: readonly number[]) => [...list].sort((a, b) => a - b);

  test("are made, read, listed, changed and deleted", async () => {
    const made = await create("crud", { metadata: { team: "a" } });
    expect(made).toMatchObject({
      id: expect.stringMatching(/^group_/),
      namespace: "default",
      name: "crud",
      pattern: "topic:crud",
      ackMode: "ACK_MODE_AUTO",
      backpressure: "BACKPRESSURE_MODE_BUFFER",
      maxInflight: 100,
      maxRedeliveries: 3,
      redeliverDelayMs: 5_000,
      metadata: { team: "a" },
      status: "CONSUMER_GROUP_STATUS_ACTIVE",
    });
    expect(await get("crud")).toEqual(made);
    const again = await call("CreateConsumerGroup", { name: "crud", pattern: "topic:x" });
    expect([again.status, again.body.code]).toEqual([409, "already_exists"]);
    await call("CreateConsumerGroup", { namespace: "other", name: "crud", pattern: "order.*" });
    const first = await call("ListConsumerGroups", { limit: 1 });
    const cursor = first.body.nextCursor as string;
    expect(first.body).toEqual({ groups: [made], totalCount: 2, nextCursor: cursor });
    const second = await call("ListConsumerGroups", { limit: 1, cursor });
    expect(second.body.groups).toMatchObject([{ namespace: "other", pattern: "events:order.*" }]);
    expect(second.body.nextCursor).toBeUndefined();

    const masked = await call("UpdateConsumerGroup", {
      group: { name: "crud", maxInflight: 7, ackMode: "ACK_MODE_MANUAL", pattern: "topic:ignored" },
      updateMask: "maxInflight,ackMode,metadata",
    });
    expect(masked.body).toMatchObject({
      maxInflight: 7,
      ackMode: "ACK_MODE_MANUAL",
      pattern: "topic:crud",
    });
    expect(masked.body.metadata).toBeUndefined();
    const unmasked = await call("UpdateConsumerGroup", {
      group: { name: "crud", status: "CONSUMER_GROUP_STATUS_PAUSED", redeliver_delay_ms: 50 },
    });
    expect(unmasked.body).toMatchObject({
      status: "CONSUMER_GROUP_STATUS_PAUSED",
      redeliverDelayMs: 50,
      maxInflight: 7,
    });
    const paused = await call("ListConsumerGroups", { status: "CONSUMER_GROUP_STATUS_PAUSED" });
    expect(paused.body.groups).toMatchObject([{ name: "crud" }]);
    expect((await call("DeleteConsumerGroup", { name: "crud" })).body).toEqual({});
    expect((await call("DeleteConsumerGroup", { name: "crud" })).status).toBe(404);
    expect((await call("GetConsumerGroup", { name: "crud" })).status).toBe(404);
    await call("DeleteConsumerGroup", { namespace: "other", name: "crud" });
  });

  test("what is wrong with one is named", async () => {
    await create("wrong");
    const group = { name: "w", pattern: "topic:w" };
    const cases: [string, object, string][] = [
      ["CreateConsumerGroup", { ...group, name: "" }, "name: must not be empty"],
      ["CreateConsumerGroup", { ...group, name: "a b" }, "name: must not contain whitespace"],
      [
        "CreateConsumerGroup",
        { ...group, namespace: "n".repeat(129) },
        "namespace: must be at most 128 bytes",
      ],
      ["CreateConsumerGroup", { ...group, pattern: "" }, "pattern: must not be empty"],
      ["CreateConsumerGroup", { ...group, pattern: "a.>.b" }, "pattern: > must be the last segment"],
      ["CreateConsumerGroup", { ...group, pattern: "system.run.>" }, "pattern: must not be in system.*"],
      ["CreateConsumerGroup", { ...group, filterExpr: "data.a >" }, "filter_expr"],
      ["CreateConsumerGroup", { ...group, maxInflight: 1_001 }, "max_inflight: must be from 1 to 1000"],
      ["CreateConsumerGroup", { ...group, maxRedeliveries: -1 }, "max_redeliveries: must be from 1 to 1000"],
      [
        "CreateConsumerGroup",
        { ...group, redeliverDelayMs: 90_000_000 },
        "redeliver_delay_ms: must be from 1",
      ],
      ["UpdateConsumerGroup", { group: { name: "wrong" }, updateMask: "id" }, 'update_mask: "id" cannot'],
      [
        "UpdateConsumerGroup",
        { group: { name: "wrong", status: "CONSUMER_GROUP_STATUS_DELETED" } },
        "status: must not be deleted: DeleteConsumerGroup deletes a group",
      ],
      ["ListConsumerGroups", { cursor: "x" }, "cursor"],
      ["AckEvent", { groupName: "wrong", eventId: "e" }, "ack_type: must be one of ack, nak, term"],
      ["AckEvent", { groupName: "wrong", ackType: "ACK_TYPE_ACK" }, "event_id: must not be empty"],
    ];
    for (const [method, body, message] of cases) {
      const answer = await call(method, body);
      expect([answer.status, answer.body.code, message]).toEqual([400, "invalid_argument", message]);
      expect(answer.body.message).toContain(message);
    }
    const other = await call("UpdateConsumerGroup", { group: { name: "wrong", pattern: "events:a" } });
    expect([other.status, other.body.code]).toEqual([400, "failed_precondition"]);
    expect((await call("UpdateConsumerGroup", { group: { name: "nobody" } })).status).toBe(404);
    expect((await ack("nobody", "evt_1")).status).toBe(404);
    const over = await joinGroup({ url: server.url, key: server.adminKey }, { groupName: "nobody" }).over;
    expect(over?.code).toBe(Code.NotFound);
    expect((await get("wrong")).pattern).toBe("topic:wrong");
  });

  test("members share what comes; sending acknowledges, and a new group begins with what comes next", async () => {
    await publish("shared", [0]);
    await create("shared");
    const a = await join("shared", "a");
    const b = await join("shared", "b");
    await publish("shared", upTo(100));
    await publish(
      "shared",
      upTo(100).map((n) => n + 100),
    );
    const all = () => sorted([...a.numbers(), ...b.numbers()]);
    await until(() => all().length >= 200, { about: "all deliveries" });
    expect(all()).toEqual(upTo(200));
    expect(a.got.length).toBeGreaterThan(0);
    expect(b.got.length).toBeGreaterThan(0);
    expect(a.got[0]).toMatchObject({
      subscriptionId: expect.stringMatching(/^sub_/),
      topic: "topic:shared",
      eventId: expect.stringMatching(/^evt_/),
      deliveryAttempt: 1,
      metadata: { source: "user", namespace: "topic" },
    });
    await until(async () => (await get("shared")).inflightCount === undefined, {
      about: "everything to be settled",
    });
    expect(await get("shared")).toMatchObject({ memberCount: 2 });
    const stats = await call("GetTopicStats", { topic: "shared" });
    expect(stats.body).toMatchObject({ messageCount: "201", consumerCount: 2 });
    expect(stats.body.lag).toBeUndefined();
  });

  test("held deliveries: acknowledged never again, the rest again, after its delay and only so often", async () => {
    // Minutes: a hold ends when this test says that its time is over, and none by a pause of the machine.
    const delayMs = 600_000;
    await create("held", { ackMode: "ACK_MODE_MANUAL", redeliverDelayMs: delayMs, maxRedeliveries: 2 });
    const a = await join("held", "a");
    const publishedAt = Date.now();
    await publish("held", upTo(4));
    const [one, two, three, four] = await a.wait(4);
    const { store } = server.running.domain;
    /** As if the delay had passed. */
    const endHold = async () => {
      const due = await store.one<{ due_at: number }>(
        sql`SELECT due_at FROM group_deliveries WHERE event_id = ${four!.eventId}`,
      );
      // By the server's clock, which follows the database's.
      expect(due!.due_at).toBeGreaterThan(publishedAt + delayMs - 1_000);
      expect(due!.due_at).toBeLessThan(Date.now() + delayMs + 1_000);
      await store.write((session) =>
        session.run(sql`UPDATE group_deliveries SET due_at = 1 WHERE event_id = ${four!.eventId}`),
      );
      await server.running.tick("groups.look");
    };
    expect((await ack("held", one!.eventId, { consumerId: "a" })).body).toEqual({});
    expect((await ack("held", two!.eventId, { ackType: "ACK_TYPE_TERM" })).status).toBe(200);
    const nak = { ackType: "ACK_TYPE_NAK", redeliverDelayMs: 30, consumerId: "a" };
    expect((await ack("held", three!.eventId, nak)).status).toBe(200);
    const twice = await ack("held", one!.eventId);
    expect([twice.status, twice.body.code]).toEqual([404, "not_found"]);
    const foreign = await ack("held", four!.eventId, { consumerId: "b" });
    expect([foreign.status, foreign.body.code]).toEqual([400, "failed_precondition"]);
    const [, , , , again] = await a.wait(5);
    expect([again!.eventId, again!.deliveryAttempt]).toEqual([three!.eventId, 2]);
    expect((await ack("held", three!.eventId)).status).toBe(200);
    // The fourth is never answered for: three attempts in all.
    await endHold();
    await a.wait(6);
    await endHold();
    await a.wait(7);
    await endHold();
    await until(async () => (await get("held")).givenUpCount === "1", {
      about: "the fourth to be given up",
    });
    const attempts = a.got.filter((event) => event.eventId === four!.eventId);
    expect(attempts.map((event) => event.deliveryAttempt)).toEqual([1, 2, 3]);
    expect(a.got).toHaveLength(7);
    expect((await ack("held", four!.eventId)).status).toBe(404);
    expect((await get("held")).inflightCount).toBeUndefined();
  });

  test("no more is held than the group allows; drop passes over the rest, block waits with it", async () => {
    const manual = { ackMode: "ACK_MODE_MANUAL", maxInflight: 3, redeliverDelayMs: 60_000 };
    await create("tight", manual);
    await create("drops", { ...manual, backpressure: "BACKPRESSURE_MODE_DROP" });
    const tight = await join("tight", "t");
    const drops = await join("drops", "d");
    await publish("tight", upTo(8));
    await publish("drops", upTo(8));
    await Promise.all([tight.wait(3), drops.wait(3)]);
    await until(async () => (await get("drops")).droppedCount === "5", {
      about: "five to be dropped",
    });
    for (let done = 0; done < 8; done++) {
      const got = await tight.wait(done + 1);
      expect(got.length).toBeLessThanOrEqual(done + 3);
      expect((await ack("tight", got[done]!.eventId)).status).toBe(200);
    }
    expect(tight.numbers()).toEqual(upTo(8));
    expect(await get("tight")).not.toHaveProperty("droppedCount");
    expect(drops.numbers()).toEqual([1, 2, 3]);
    for (const { eventId } of drops.got) await ack("drops", eventId);
    await publish("drops", [9]);
    await drops.wait(4);
    expect(drops.numbers()).toEqual([1, 2, 3, 9]);
  });

  test("what a member held goes to the others when it leaves, and when it falls silent", async () => {
    await create("left", { ackMode: "ACK_MODE_MANUAL", redeliverDelayMs: 60_000 });
    const a = await join("left", "a");
    await publish("left", upTo(3));
    await a.wait(3);
    const b = await join("left", "b");
    await a.leave();
    const got = await b.wait(3);
    expect(got.map((event) => event.deliveryAttempt)).toEqual([2, 2, 2]);
    expect((await ack("left", got[0]!.eventId, { consumerId: "a" })).status).toBe(400);

    // As of a node that was killed: a row that nobody signs for.
    const { store } = server.running.domain;
    const { id } = await get("left");
    await store.write(async (session) => {
      await session.run(sql`INSERT INTO group_members (environment_id, group_id, id, consumer_id, client_id, node_id,
        joined_at, seen_at) VALUES ('env_default', ${id}, 'dead', 'dead', '', 'gone', 1, 1)`);
      await session.run(sql`UPDATE group_deliveries SET member_id = 'dead', consumer_id = 'dead'
        WHERE group_id = ${id} AND event_id = ${got[2]!.eventId}`);
    });
    await server.running.tick("groups.look");
    const [, , , back] = await b.wait(4);
    expect([back!.eventId, back!.deliveryAttempt]).toEqual([got[2]!.eventId, 3]);
    for (const eventId of new Set(b.got.map((event) => event.eventId)))
      expect((await ack("left", eventId, { consumerId: "b" })).status).toBe(200);
    expect((await get("left")).memberCount).toBe(1);
  });

  test("a group is paused and goes on, follows its new pattern, and ends for its members with its deletion", async () => {
    await create("moods");
    const a = await join("moods", "a");
    const set = (group: object) => call("UpdateConsumerGroup", { group: { name: "moods", ...group } });
    await set({ status: "CONSUMER_GROUP_STATUS_PAUSED" });
    await publish("moods", [1]);
    await publish("moods.too", [2]);
    await server.running.tick("groups.look");
    expect(a.got).toEqual([]);
    await set({ status: "CONSUMER_GROUP_STATUS_ACTIVE", pattern: "topic:moods.>", filterExpr: "data.n < 9" });
    await a.wait(1);
    await publish("moods.too", [9, 3]);
    await a.wait(2);
    expect(a.numbers()).toEqual([2, 3]);
    expect((await call("DeleteConsumerGroup", { name: "moods" })).status).toBe(200);
    expect((await a.over)?.code).toBe(Code.NotFound);
  });

  test("subscriptions share by a group's name, over both transports", async () => {
    const socket = await openSocket(server.url, { key: server.adminKey });
    const options = { consumerGroup: "made-here", includeMetadata: true };
    const { subscriptionId, status } = await socket.subscribe("order.>", options);
    expect(status).toBe("ok");
    const leave = new AbortController();
    const streamed: number[] = [];
    const stream = (async () => {
      const request = { pattern: "order.>", options: { consumerGroup: "made-here" } };
      const client = pubsubClient(server.url, server.adminKey);
      for await (const event of client.subscribe(request, { signal: leave.signal }))
        streamed.push((event.data as { n: number }).n);
    })().catch(() => {});
    await until(async () => (await get("made-here")).memberCount === 2, { about: "both" });
    for (const n of upTo(60)) await server.rpc("SvcService", "Emit", { event: "order.placed", data: { n } });
    const socketNumbers = () => socket.of("event").map((frame) => frame.data.n as number);
    await until(() => streamed.length + socketNumbers().length >= 60, { about: "all" });
    expect(sorted([...streamed, ...socketNumbers()])).toEqual(upTo(60));
    expect(socket.of("event")[0]).toMatchObject({ subscriptionId, topic: "events:order.placed" });
    const wrong = await socket.subscribe("other.>", { consumerGroup: "made-here" });
    expect(wrong).toMatchObject({ status: "error", code: "INVALID_ARGUMENT" });
    expect(wrong.message).toContain("reads events:order.>");
    const system = await socket.subscribe("system.run.>", { consumerGroup: "g" });
    expect(system).toMatchObject({ status: "error", code: "INVALID_ARGUMENT" });
    leave.abort();
    await stream;
    socket.close();
    // Nobody comes back for a day.
    await until(async () => (await get("made-here")).memberCount === undefined, { about: "both to leave" });
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE consumer_groups SET kept_until = 1
      WHERE name = 'made-here'`),
    );
    await until(
      async () => {
        await server.running.tick("groups.forget");
        return (await call("GetConsumerGroup", { name: "made-here" })).status === 404;
      },
      { about: "the group to lapse" },
    );
  });

  test("a group keeps what it has not handled from expiring, and is none of another environment's", async () => {
    await create("keeps", { ackMode: "ACK_MODE_MANUAL" });
    await publish("keeps", upTo(3));
    const { body } = await call("GetTopicStats", { topic: "keeps" });
    expect(body).toMatchObject({ lag: "3" });
    const { leastUnhandled } = await import("../../src/domain/realtime/groups/rows.ts");
    const { store } = server.running.domain;
    const least = await leastUnhandled(store, "env_default", "topics");
    expect(least).toBeLessThanOrEqual(Number(body.firstSeq));
    const made = await server.api("/api/v1/environments", { body: { name: "elsewhere" } });
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "k", env_id: made.body.id } })).body;
    expect((await call("GetConsumerGroup", { name: "keeps" }, { key })).status).toBe(404);
    const away = joinGroup({ url: server.url, key }, { groupName: "keeps" });
    expect((await away.over)?.code).toBe(Code.NotFound);
    expect((await call("ListConsumerGroups", {}, { key })).body).toEqual({});
    const member = await join("keeps", "k");
    const [held] = await member.wait(3);
    const client = pubsubClient(server.url, key);
    const refused = await client
      .ackEvent({ groupName: "keeps", eventId: held!.eventId, ackType: AckType.ACK })
      .catch((error) => error);
    expect(refused.code).toBe(Code.NotFound);
  });

  test("whose pattern a deny policy forbids cannot be joined by their names", async () => {
    await create("payroll", { pattern: "topic:salaries.>" });
    await create("weather", { pattern: "topic:weather.>" });
    const made = await server.api("/api/v1/apikeys", {
      body: { name: "reader", role_ids: ["role_developer"] },
    });
    const policy = await server.api("/api/v1/policies", {
      body: {
        name: "no salaries",
        effect: "deny",
        actions: "events:subscribe",
        resources: "irn:svc:*:*:event:*:topic%3Asalaries.*",
      },
    });
    const assigned = await server.api("/api/v1/roles/role_developer/policies", {
      body: { policy_id: policy.body.id },
    });
    expect(assigned.status).toBeLessThan(300);
    const joined = (groupName: string) => {
      const member = joinGroup({ url: server.url, key: made.body.key }, { groupName, consumerId: groupName });
      members.push(member);
      return member;
    };
    expect((await joined("payroll").over)?.code).toBe(Code.PermissionDenied);
    const allowed = joined("weather");
    await until(async () => ((await get("weather")).memberCount ?? 0) === 1, {
      about: "the member to be seated",
    });
    await allowed.leave();
  });
});
