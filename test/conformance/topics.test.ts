import { engines, startTestServer } from "../support/server.ts";
import { topicConformance } from "./topics.ts";

for (const engine of engines)
  topicConformance(`one node on ${engine}`, async () => {
    const server = await startTestServer({ engine, settings: { pollHoldMs: 0, busPayloadMax: 1_024 } });
    return { nodes: [server], close: server.stop };
  });
