import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { EntityStreamService } from "../../src/gen/svc/v1/entity_stream_pb.ts";
import { freePort } from "../support/process.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

const transports = {
  grpc: ({ running }: TestServer) => createGrpcTransport({ baseUrl: running.grpcUrl! }),
  "binary Connect": ({ url }: TestServer) =>
    createConnectTransport({ baseUrl: url, httpVersion: "1.1", useBinaryFormat: true }),
  "JSON Connect": ({ url }: TestServer) => createConnectTransport({ baseUrl: url, httpVersion: "1.1" }),
};
const isInstant = (at?: { seconds: bigint }) => Math.abs(Number(at?.seconds) - Date.now() / 1_000) < 600;

describe.each(engines)("entity streams on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { grpcPort: await freePort() } });
    await server.rpc("SvcService", "RegisterFunction", { id: "ship", triggers: [{ event: "cart.sent" }] });
  }, 120_000);
  afterAll(() => server?.stop());

  test.each(Object.keys(transports) as (keyof typeof transports)[])("every method over %s", async (name) => {
    const client = createClient(EntityStreamService, transports[name](server));
    const headers = { headers: { authorization: `Bearer ${server.adminKey}` } };
    const entityId = `cart:${name.replace(" ", "-")}`;
    const target = { entityId, entityType: "cart" };
    const first = await client.appendEvent(
      {
        ...target,
        eventName: "cart.made",
        data: { by: "ada" },
        metadata: { m: 1 },
        idempotencyKey: entityId,
      },
      headers,
    );
    expect(first.entityVersion).toBe(1n);
    expect(first.eventId).toMatch(/^evt_/);
    expect(first.sequence).toBeGreaterThan(0n);
    const failed = await client.appendEvent({ ...target, eventName: "cart.made" }, headers).catch((e) => e);
    expect(ConnectError.from(failed)).toMatchObject({
      code: Code.Aborted,
      rawMessage: "version conflict: expected 0, got 1",
    });
    const { results } = await client.appendEvents(
      {
        streams: [
          {
            ...target,
            expectedVersion: 1n,
            events: [
              { eventName: "cart.filled", dataValue: { kind: { case: "numberValue", value: 3 } } },
              { eventName: "cart.sent", version: 2 },
            ],
          },
          {
            entityId: `${entityId}:stock`,
            entityType: "stock",
            expectedVersion: -1n,
            events: [{ eventName: "stock.taken" }],
          },
        ],
      },
      headers,
    );
    expect(results.map(({ entityVersion }) => entityVersion)).toEqual([2n, 3n, 1n]);
    expect(await client.getStreamInfo({ entityId }, headers)).toMatchObject({
      ...{ ...target, version: 3n, eventCount: 3n, deleted: false },
    });
    const listed = await client.listStreams({ search: entityId, entityType: "cart", limit: 5 }, headers);
    expect(listed).toMatchObject({ totalCount: 1, streams: [{ entityId, version: 3n }] });

    const page = await client.readStream({ entityId, fromVersion: 1n, limit: 2 }, headers);
    expect(page).toMatchObject({ totalCount: 3, nextVersion: 3n });
    expect(page.events).toMatchObject([
      {
        ...{ id: first.eventId, name: "cart.made", data: { by: "ada" }, metadata: { m: 1 } },
        ...{ entityVersion: 1n, version: 1, source: "api", idempotencyKey: entityId, processed: true },
        ...{ ...target, natsSeq: first.sequence },
      },
      { name: "cart.filled", dataValue: { kind: { case: "numberValue", value: 3 } }, entityVersion: 2n },
    ]);
    expect(isInstant(page.events[0]!.timestamp)).toBe(true);
    const backward = await client.readStream({ entityId, direction: "backward", limit: 1 }, headers);
    expect(backward).toMatchObject({ events: [{ entityVersion: 3n, version: 2 }], nextVersion: 2n });

    const history = await client.getEntityHistory({ entityId }, headers);
    expect(history.info).toMatchObject({ entityId, entityType: "cart", currentVersion: 3n });
    expect(history.entries).toMatchObject([
      { eventId: first.eventId, eventData: { by: "ada" }, runs: [] },
      { eventName: "cart.filled" },
      { eventName: "cart.sent", schemaVersion: 2, runs: [{ functionId: "ship" }] },
    ]);

    const { snapshotId } = await client.createSnapshot(
      { ...target, entityVersion: 2n, state: { total: 3 } },
      headers,
    );
    expect(await client.getSnapshot({ entityId, beforeVersion: 3n }, headers)).toMatchObject({
      ...{ snapshotId, entityId, entityVersion: 2n, state: { total: 3 } },
    });
    const redacted = await client.redactEvent({ entityId, eventId: first.eventId }, headers);
    expect(redacted.entityVersion).toBe(1n);
    expect(isInstant(redacted.redactedAt)).toBe(true);
    const [gone] = (await client.readStream({ entityId, limit: 1 }, headers)).events;
    expect(gone).toMatchObject({ redactedAt: redacted.redactedAt });
    expect([gone!.data, gone!.dataValue, gone!.metadata]).toEqual([undefined, undefined, undefined]);
    const deleted = await client.deleteStream({ entityId, purge: true }, headers);
    expect(deleted.version).toBe(3n);
    expect(await client.deleteStream({ entityId }, headers)).toEqual(deleted);
    const missing = await client.getStreamInfo({ entityId }, headers).catch((error) => error);
    expect(ConnectError.from(missing)).toMatchObject({
      code: Code.NotFound,
      rawMessage: "stream not found",
    });
  });
});
