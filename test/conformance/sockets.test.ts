import { engines, startTestServer } from "../support/server.ts";
import { socketConformance } from "./sockets.ts";

for (const engine of engines)
  socketConformance(`one node on ${engine}`, async () => {
    const server = await startTestServer({ engine });
    return { nodes: [server], close: server.stop };
  });
