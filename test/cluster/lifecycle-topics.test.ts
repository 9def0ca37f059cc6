import { socketConformance } from "../conformance/sockets.ts";
import { topicConformance } from "../conformance/topics.ts";
import type { TopicHouse } from "../conformance/topics-bench.ts";
import { startNats } from "../support/nats.ts";
import { makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** Three nodes over one PostgreSQL, with a bus. */
async function threeNodes(): Promise<TopicHouse> {
  const nats = await startNats();
  const home = await makeHome("postgres");
  const nodes: TestServer[] = [];
  for (const nodeId of ["a", "b", "c"])
    nodes.push(
      await startTestServer({
        engine: "postgres",
        nats: nats.url,
        home,
        settings: { nodeId, pollHoldMs: 0, busPayloadMax: 1_024 },
      }),
    );
  await until(
    async () =>
      (await Promise.all(nodes.map((node) => node.api("/ready")))).every(({ status }) => status === 200),
    { about: "the bus", everyMs: 20 },
  );
  return {
    nodes,
    async close() {
      await Promise.all(nodes.map((node) => node.stop()));
      await nats.stop();
      await home.remove();
    },
  };
}

topicConformance("three nodes", threeNodes);
socketConformance("three nodes", threeNodes);
