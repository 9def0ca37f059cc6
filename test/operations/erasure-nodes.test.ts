import { expect, test } from "bun:test";
import { startTestCluster, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

// A server of its own: what a node remembers besides the store is asked of two.
test("what is redacted at one node is forgotten by the other", async () => {
  const cluster = await startTestCluster({ engine: "postgres" }, 2);
  try {
    const [one, other] = cluster.nodes as [TestServer, TestServer];
    const text = "text-of-two";
    for (const node of cluster.nodes) await node.api("/api/v1/debug/requests");
    const { eventId } = (await other.rpc("SvcService", "Emit", { event: "two.told", data: { text } })).body;
    const captured = async () => JSON.stringify((await one.api("/api/v1/debug/requests")).body.requests);
    await until(async () => (await captured()).includes(text), { about: "the request of the other node" });
    expect((await one.rpc("SvcService", "RedactEvent", { eventId })).status).toBe(200);
    expect(await captured()).not.toContain(text);
    expect((await other.api(`/api/v1/events/${eventId}`)).body).toMatchObject({ data: null, id: eventId });
  } finally {
    await cluster.stop();
  }
}, 60_000);
