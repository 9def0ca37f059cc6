import { expect, test } from "bun:test";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { startNats, startNatsCluster } from "../support/nats.ts";
import { isNight } from "../support/night.ts";
import { engines, spawnServer, startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { concurrently } from "./load.ts";

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
    const manager = await until(() => jetstreamManager(outside), {
      about: "NATS to agree on a leader",
      deadlineMs: 60_000,
      everyMs: 100,
    });
    const kept = (count: number) =>
      until(
        async () => {
          const { state, config } = await manager.streams.info("svc_mirror");
          return state.messages === count ? config : undefined;
        },
        { about: `${count} messages`, deadlineMs: 60_000, everyMs: 200 },
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
}, 180_000);

test.each(engines.filter((engine) => isNight || engine === "postgres"))(
  "a server on %s that is killed while it mirrors tells every event once",
  async (engine) => {
    const nats = await startNats();
    const server = await spawnServer({ engine, nats: nats.url, settings: { natsMirror: true } });
    const outside = await connect({ servers: nats.url });
    const acked = new Set<string>();
    try {
      for (let round = 0; round < 3; round++) {
        const loading = concurrently(400, 8, async (number) => {
          const answer = await server
            .rpc("SvcService", "Emit", { event: `killed.r${round}`, data: { number } })
            .catch(() => undefined);
          if (answer?.status === 200) acked.add(answer.body.eventId);
        });
        await until(() => acked.size > round * 300 + 100, {
          about: "some load",
          deadlineMs: 40_000,
          everyMs: 5,
        });
        await server.kill9();
        await loading;
        await server.restart();
      }
      const head = Number((await server.rpc("SvcService", "Emit", { event: "last" })).body.sequence);
      const manager = await jetstreamManager(outside);
      await until(async () => (await manager.streams.info("svc_mirror")).state.messages >= head, {
        about: "every event",
        deadlineMs: 40_000,
        everyMs: 100,
      });
      const { state } = await manager.streams.info("svc_mirror");
      expect(state.messages).toBe(head);
      const sequences: number[] = [];
      for (let seq = 1; seq <= head; seq++) {
        const message = await manager.streams.getMessage("svc_mirror", { seq });
        const { id, sequence } = message!.json<{ id: string; sequence: number }>();
        acked.delete(id);
        sequences.push(sequence);
      }
      expect(acked.size).toBe(0);
      expect(sequences).toEqual(Array.from({ length: head }, (_, at) => at + 1));
    } finally {
      await outside.close();
      await server.stop();
      await nats.stop();
    }
  },
  180_000,
);
