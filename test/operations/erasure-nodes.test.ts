import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { joinGroup } from "../support/group-member.ts";
import { startTestCluster, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

// A server of its own: what a node remembers besides the store is asked of two.
describe("what is redacted at one node", () => {
  let cluster: Awaited<ReturnType<typeof startTestCluster>>;
  let one: TestServer;
  let other: TestServer;
  beforeAll(async () => {
    cluster = await startTestCluster({ engine: "postgres" }, 2);
    [one, other] = cluster.nodes as [TestServer, TestServer];
  }, 60_000);
  afterAll(() => cluster?.stop());

  test("is forgotten by the other", async () => {
    const text = "text-of-two";
    for (const node of cluster.nodes) await node.api("/api/v1/debug/requests");
    const { eventId } = (await other.rpc("SvcService", "Emit", { event: "two.told", data: { text } })).body;
    const captured = async () => JSON.stringify((await one.api("/api/v1/debug/requests")).body.requests);
    await until(async () => (await captured()).includes(text), { about: "the request of the other node" });
    expect((await one.rpc("SvcService", "RedactEvent", { eventId })).status).toBe(200);
    expect(await captured()).not.toContain(text);
    expect((await other.api(`/api/v1/events/${eventId}`)).body).toMatchObject({ data: null, id: eventId });
  }, 60_000);

  test.each(["SvcService", "EntityStreamService"])(
    "is delivered to no group, also where the other had read it before, by %s",
    async (service) => {
      const pubsub = (method: string, body: object) => other.rpc("PubSubService", method, body);
      const groupName = `slow-${service}`;
      const [entityId, eventName] = [`e-${service}`, `${service}.told`];
      await pubsub("CreateConsumerGroup", {
        name: groupName,
        pattern: `events:${eventName}`,
        maxInflight: 1,
        ackMode: "ACK_MODE_MANUAL",
      });
      const member = joinGroup({ url: other.url, key: other.adminKey }, { groupName, consumerId: "c1" });
      const ids: string[] = [];
      for (const text of ["first", "text-of-the-second", "third"]) {
        const expectedVersion = ids.length;
        const event = { entityId, entityType: "told", eventName, data: { text }, expectedVersion };
        const { status, body } = await other.rpc("EntityStreamService", "AppendEvent", event);
        expect([status, body]).toEqual([200, expect.anything()]);
        ids.push(body.eventId);
      }
      const taken = (count: number) => member.wait(count);
      await taken(1);
      const asked = service === "SvcService" ? { eventId: ids[1] } : { entityId, eventId: ids[1] };
      expect((await one.rpc(service, "RedactEvent", asked)).status).toBe(200);
      for (let count = 1; count <= 2; count++) {
        await pubsub("AckEvent", { groupName, eventId: ids[count - 1], ackType: "ACK_TYPE_ACK" });
        await taken(count + 1);
      }
      expect(member.got.map(({ eventId }) => eventId)).toEqual(ids);
      expect(JSON.stringify(member.got.map(({ data }) => data))).not.toContain("text-of-the-second");
      expect(member.got.map(({ data }) => (data as { text?: string } | undefined)?.text)).toEqual([
        ...["first", undefined, "third"],
      ]);
      await member.leave();
    },
    60_000,
  );
});
