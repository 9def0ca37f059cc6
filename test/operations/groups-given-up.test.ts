import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { joinGroup, type TestMember } from "../support/group-member.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const list = "/api/v1/outbox/dead-letter";

// A group passed over them in silence: the count of the group was all that was left.
describe.each(engines)("deliveries that a group gives up on %s", (engine) => {
  let server: TestServer;
  let member: TestMember;
  const name = "held";
  const call = (method: string, body: object) => server.rpc("PubSubService", method, body);
  const letters = async () => (await server.api(`${list}?env=env_default`)).body.items;
  const again = (eventId: string, key?: string) =>
    server.api(`${list}/${eventId}/requeue`, { method: "POST", ...(key && { key }) });
  const emitted = async () =>
    (await server.rpc("SvcService", "Emit", { event: "order.placed", data: { n: 1 } })).body
      .eventId as string;
  /** The member has it the so many-th time, and lets its hold end; the group may have it twice. */
  async function letHoldsEnd(eventId: string, times: number) {
    for (let time = 1; time <= 2; time++) {
      await member.wait(times + time);
      await server.running.domain.store.write((session) =>
        session.run(sql`UPDATE group_deliveries SET due_at = 1 WHERE event_id = ${eventId}`),
      );
      await server.running.tick("groups.look");
    }
    await until(async () => (await letters()).length === 1, { about: "the dead letter" });
  }

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const settings = { ackMode: "ACK_MODE_MANUAL", maxRedeliveries: 1, redeliverDelayMs: 3_600_000 };
    await call("CreateConsumerGroup", { name, pattern: "order.*", ...settings });
    member = joinGroup({ url: server.url, key: server.adminKey }, { groupName: name, consumerId: "a" });
    await until(async () => (await call("GetConsumerGroup", { name })).body.memberCount === 1, {
      about: "the member to be seated",
    });
  }, 120_000);
  afterAll(async () => {
    await member.leave();
    await server.stop();
  });

  test("are dead letters, which its owner hands out again or discards", async () => {
    const eventId = await emitted();
    await letHoldsEnd(eventId, 0);
    expect((await call("GetConsumerGroup", { name })).body.givenUpCount).toBe("1");
    const [letter] = await letters();
    expect(letter).toMatchObject({
      ...{ event_id: eventId, topic: "events:order.placed", kind: "group", attempts: 2, entity_id: "" },
      last_error: "consumer group held did not acknowledge 2 deliveries of it",
      payload: Buffer.from("null").toString("base64"),
    });
    expect(JSON.parse(Buffer.from(letter.metadata, "base64").toString())).toMatchObject({
      ...{ namespace: "default", group: name, position: expect.any(Number) },
    });

    const resources = "irn:svc:*:*:event:*:group%3Aheld";
    const denied = { name: "no group", effect: "deny", actions: "events:emit", resources };
    const policy = await server.api("/api/v1/policies", { body: denied });
    await server.api("/api/v1/roles/role_developer/policies", { body: { policy_id: policy.body.id } });
    const developer = { name: "developer", role_ids: ["role_developer"] };
    const { key } = (await server.api("/api/v1/apikeys", { body: developer })).body;
    expect((await again(eventId, key)).status).toBe(403);
    expect(await letters()).toEqual([letter]);

    expect((await again(eventId)).body).toEqual({ event_id: eventId, result: "requeued" });
    const { eventId: redelivered, deliveryAttempt } = (await member.wait(3))[2]!;
    expect([redelivered, deliveryAttempt]).toEqual([eventId, 3]);
    expect([await letters(), (await again(eventId)).status]).toEqual([[], 404]);
    await letHoldsEnd(eventId, 2);
    expect((await letters())[0].attempts).toBe(4);
    expect((await server.api(`${list}/${eventId}`, { method: "DELETE" })).status).toBe(200);
    expect(await letters()).toEqual([]);
  });

  test("stay dead letters where the event has expired or the group is gone, and the answer says so", async () => {
    const before = member.got.length;
    const eventId = await emitted();
    await letHoldsEnd(eventId, before);
    const { store } = server.running.domain;
    const row = await store.one<{ position: number }>(sql`SELECT position FROM events WHERE id = ${eventId}`);
    const move = (to: number) =>
      store.write((session) => session.run(sql`UPDATE events SET position = ${to} WHERE id = ${eventId}`));
    await move(1_000_000);
    const expired = await again(eventId);
    expect([expired.status, JSON.stringify(expired.body)]).toEqual([
      409,
      expect.stringContaining("has expired in its log"),
    ]);
    await move(row!.position);
    expect((await call("DeleteConsumerGroup", { name })).status).toBe(200);
    const gone = await again(eventId);
    expect([gone.status, JSON.stringify(gone.body)]).toEqual([
      409,
      expect.stringContaining("consumer group held of the delivery was deleted"),
    ]);
    expect(await letters()).toHaveLength(1);
  });
});
