import { describe, expect, test } from "bun:test";
import type { TopicBench } from "./topics-bench.ts";

/** Streams of entities. */
export function entityTopics(bench: TopicBench): void {
  const { heard, begin } = bench;
  const entity = { entityId: "order.7", entityType: "order" };
  const told = { entity_id: "order.7", entity_type: "order" };
  const call = async (method: string, body: object, headers = {}) => {
    const sent = { ...entity, ...body };
    const answer = await bench.server().rpc("EntityStreamService", method, sent, { headers });
    expect({ method, status: answer.status, body: answer.body }).toMatchObject({ status: 200 });
    return answer.body;
  };

  describe("an append", () => {
    test("entity:{entity_type}.{entity_id}.{event_name}, and system.stream.{entity_id}.appended", async () => {
      const { eventId } = await call("AppendEvent", { eventName: "order.made", data: { total: 3 } });
      await heard({
        topic: "entity:order.order.7.order.made",
        fields: [
          ...["id", "name", "data", "metadata", "entityId", "entityType", "entityVersion"],
          ...["version", "timestamp", "source"],
        ],
        data: { id: eventId, name: "order.made", data: { total: 3 }, entityVersion: 1, source: "api" },
      });
      await heard({ topic: "events:order.made", fields: ["total"], data: { total: 3 } });
      await heard({
        topic: "system.stream.order.7.appended",
        fields: ["entity_id", "entity_type", "entity_version", "event_id", "event_name", "timestamp"],
        data: { ...told, entity_version: 1, event_id: eventId, event_name: "order.made" },
      });
    });

    test("by a run names the run", async () => {
      const { runId } = await begin("appender");
      const byRun = { entityId: "order.8", eventName: "order.paid" };
      await call("AppendEvent", byRun, { "x-svc-run-id": runId });
      await heard({
        topic: "system.stream.order.8.appended",
        fields: [
          "entity_id",
          "entity_type",
          "entity_version",
          "event_id",
          "event_name",
          "run_id",
          "timestamp",
        ],
        data: { entity_id: "order.8", entity_version: 1, run_id: runId },
      });
    });
  });

  test("system.stream.{entity_id}.snapshotted", async () => {
    const { snapshotId } = await call("CreateSnapshot", { entityVersion: 1, state: { paid: true } });
    await heard({
      topic: "system.stream.order.7.snapshotted",
      fields: ["entity_id", "entity_type", "entity_version", "snapshot_id", "timestamp"],
      data: { ...told, entity_version: 1, snapshot_id: snapshotId },
    });
  });
}
