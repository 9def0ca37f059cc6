import { describe, expect, test } from "bun:test";
import { until } from "../support/until.ts";
import type { TopicBench } from "./topics-bench.ts";

const healthFields = [
  ...["name", "status", "mode", "last_event_seq", "error_message", "timestamp", "lag"],
] as const;
const rebuildFields = ["rebuild_target_seq", "rebuild_start_cursor", "rebuild_started_at"] as const;

/** Projections: what they are, how far they are, and their states. */
export function projectionTopics(bench: TopicBench): void {
  const { rpc, framesAt, heard, countHeard, none } = bench;
  const call = async (method: string, body: object) => {
    const answer = await bench.server().rpc("ProjectionService", method, body);
    expect([method, answer.status]).toEqual([method, 200]);
    return answer.body;
  };

  describe("system.projection_health.{name}", () => {
    const topic = "system.projection_health.told";
    const data = (status: string, more: object = {}) => ({ name: "told", status, mode: "managed", ...more });
    const status = async (wanted: string) => {
      await until(
        () => bench.sockets().every((socket) => framesAt(socket, topic).at(-1)?.data.status === wanted),
        { about: `the frame of ${wanted}`, deadlineMs: 20_000, everyMs: 10 },
      );
    };

    test("pause, resume, a failed handler and a rebuild; nothing for what did not happen", async () => {
      await call("RegisterProjection", { name: "told", events: ["told.*"] });
      expect(await countHeard(topic)).toEqual(none());
      await call("PauseProjection", { name: "told" });
      await status("paused");
      await heard({ topic, fields: healthFields, data: data("paused", { lag: 0, error_message: "" }) });
      await call("PauseProjection", { name: "told" });
      expect(await countHeard(topic)).toEqual(bench.sockets().map(() => 1));
      await call("ResumeProjection", { name: "told" });
      await status("running");
      const { eventId, sequence } = await rpc("Emit", { event: "told.first" });
      await call("PollProjectionEvents", { name: "told" });
      await call("ReportProjectionError", { name: "told", eventId, eventSeq: sequence, message: "boom" });
      await status("error");
      await heard({ topic, fields: healthFields, data: data("error", { error_message: "boom" }) });
      await call("RebuildProjection", { name: "told" });
      await status("rebuilding");
      await heard({ topic, fields: [...healthFields, ...rebuildFields], data: data("rebuilding") });
      await call("PollProjectionEvents", { name: "told" });
      await call("SaveProjectionState", {
        name: "told",
        state: {},
        lastEventSeq: sequence,
        lastEventId: eventId,
      });
      await status("running");
      await heard({
        topic,
        fields: healthFields,
        data: data("running", { last_event_seq: Number(sequence) }),
      });
    });
  });

  test("system.projection.{name}.{partition}.updated", async () => {
    await call("RegisterProjection", { name: "shown", events: ["shown.*"], partitionKey: "$.data.id" });
    const { eventId, sequence } = await rpc("Emit", { event: "shown.first", data: { id: "two words" } });
    await call("PollProjectionEvents", { name: "shown" });
    const saved = { lastEventSeq: sequence, lastEventId: eventId };
    await call("SaveProjectionState", {
      name: "shown",
      partitionKey: "two words",
      state: { n: 1 },
      ...saved,
    });
    await heard({
      topic: "system.projection.shown.two%20words.updated",
      fields: ["state", "last_event_id", "last_event_name"],
      data: { state: { n: 1 }, last_event_id: eventId, last_event_name: "shown.first" },
    });
  });
}
