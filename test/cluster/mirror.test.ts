import { expect, test } from "bun:test";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { startNatsCluster } from "../support/nats.ts";
import { startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

test("three NATS servers keep three copies, and one of them may go", async () => {
  const nats = await startNatsCluster();
  const server = await startTestServer({
    engine: "libsql",
    nats: nats.url,
    settings: { natsMirror: true },
  });
  const emit = async (count: number) => {
    for (let number = 0; number < count; number++)
      expect((await server.rpc("SvcService", "Emit", { event: "copied", data: { number } })).status).toBe(
        200,
      );
  };
  const outside = await connect({ servers: nats.url.split(",") });
  try {
    const manager = await jetstreamManager(outside);
    const kept = (count: number) =>
      until(
        async () => {
          const { state, config } = await manager.streams.info("svc_mirror");
          return state.messages === count ? config : undefined;
        },
        { about: `${count} messages`, deadlineMs: 40_000, everyMs: 200 },
      );
    await emit(20);
    expect((await kept(20)).num_replicas).toBe(3);
    await nats.servers[0]!.kill9();
    await emit(20);
    await kept(40);
  } finally {
    await outside.close();
    await server.stop();
    await nats.stop();
  }
}, 120_000);
