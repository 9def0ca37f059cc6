import { describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { stepIdOf } from "../support/pull-worker.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";
import type { TopicBench } from "./topics-bench.ts";

const runFields = ["runId", "functionId", "status", "eventId", "eventName", "timestamp"] as const;

/** Runs and their steps. */
export function runTopics(bench: TopicBench): void {
  const { rpc, register, emit, write, tick, begin, framesAt, heard, countHeard, none } = bench;

  describe("system.run.{run_id}.created, by any producer", () => {
    const created = (runId: string, functionId: string, eventName: string) =>
      heard({
        topic: `system.run.${runId}.created`,
        fields: runFields,
        data: { runId, functionId, status: "waiting_for_capacity", eventName },
      });
    const runOf = (functionId: string): Promise<string> =>
      until(async () => (await rpc("ListRuns", { functionId })).runs?.[0]?.id as string | undefined, {
        about: `a run of ${functionId}`,
      });

    test("Emit, Trigger, a batch", async () => {
      await register("emitted");
      const { runIds } = await emit("emitted.asked");
      await created(runIds[0], "emitted", "emitted.asked");
      const { results } = await rpc("TriggerBatch", { events: [{ event: "emitted.asked", data: {} }] });
      await created(results[0].runIds[0], "emitted", "emitted.asked");
    });

    test("InvokeFunction", async () => {
      await register("invoked", { triggers: [] });
      const { runId } = await rpc("InvokeFunction", { functionId: "invoked", data: {} });
      await created(runId, "invoked", "invoked");
    });

    test("a cron fire, which has no frame of its own", async () => {
      await register("fired", { triggers: [{ cron: "0 0 1 1 *" }] });
      await tick("schedules.tick");
      await until(
        async () => {
          await write(sql`UPDATE schedules SET next_at = ${Date.now()} WHERE function_id = 'fired'`);
          await tick("schedules.tick");
          return (await rpc("ListRuns", { functionId: "fired" })).runs?.length > 0;
        },
        { about: "the slot to fire" },
      );
      await created(await runOf("fired"), "fired", "fired");
      expect(await countHeard("system.cron.fired.fired")).toEqual(none());
    });

    test("a debounced event", async () => {
      await register("debounced", { debounce: { periodMs: 1_000 } });
      await emit("debounced.asked");
      await created(await runOf("debounced"), "debounced", "debounced.asked");
    });

    test("a step of another run", async () => {
      await register("child", { triggers: [] });
      const { worker, job } = await begin("parent");
      await worker.leave(job, "call", { type: "invoke_function", function_id: "child", input: {} });
      await created(await runOf("child"), "child", "child");
    });
  });

  describe("system.run.{run_id} between and at its end", () => {
    const topicOf = (runId: string, leaf: string) => `system.run.${runId}.${leaf}`;

    test("updated, with what it is now", async () => {
      const { worker, job, runId } = await begin("naps");
      const updated = (status: string) => ({
        topic: topicOf(runId, "updated"),
        fields: runFields,
        data: { runId, functionId: "naps", status },
      });
      await heard(updated("running"));
      await worker.leave(job, "nap", { type: "sleep", until: new Date(Date.now() + 60_000).toISOString() });
      await until(
        () => bench.sockets().every((socket) => framesAt(socket, topicOf(runId, "updated")).length === 2),
        {
          about: "the pause",
        },
      );
      const { meta } = await heard(updated("paused"));
      expect(meta.sequence).toBe(3);
    });

    test("resumed, running again", async () => {
      const { worker, job, runId } = await begin("rests");
      await worker.leave(job, "nap", { type: "sleep", until: new Date(Date.now() + 60_000).toISOString() });
      await rpc("ResumeRun", { runId });
      await heard({
        topic: topicOf(runId, "resumed"),
        fields: runFields,
        data: { runId, status: "running" },
      });
    });

    test("completed, with its output", async () => {
      const { worker, job, runId } = await begin("does");
      await worker.complete(job, { sum: 3 });
      await heard({
        topic: topicOf(runId, "completed"),
        fields: [...runFields, "output"],
        data: { runId, functionId: "does", status: "completed", output: { sum: 3 } },
      });
    });

    test("failed, with its error", async () => {
      const { worker, job, runId } = await begin("fails");
      const error = { message: "no luck", code: "LUCK", retryable: false };
      await worker.report(job, { status: "failed", error });
      await heard({
        topic: topicOf(runId, "failed"),
        fields: [...runFields, "error"],
        data: { runId, status: "failed", error: { message: "no luck", code: "LUCK" } },
      });
    });

    test("cancelled, with an error and its cause", async () => {
      const { runId } = await begin("stops");
      await rpc("CancelRun", { id: runId });
      await heard({
        topic: topicOf(runId, "cancelled"),
        fields: [...runFields, "error", "cause"],
        data: { runId, status: "cancelled", error: { code: "cancelled" }, cause: "user" },
      });
    });

    test("replay serves all of it from history, the same at every node", async () => {
      const { worker, job, runId } = await begin("replayed");
      await worker.leave(job, "nap", { type: "sleep", until: new Date(Date.now() + 60_000).toISOString() });
      await rpc("ResumeRun", { runId });
      const again = await until(async () => (await worker.poll())[0], { about: "the job again" });
      await worker.complete(again, [1]);
      const late = await Promise.all(
        bench.house().nodes.map(async (node) => {
          const socket = await openSocket(node.url, { key: bench.server().adminKey });
          await socket.subscribe(topicOf(runId, ">"), { replay: 1_000, includeMetadata: true });
          await socket.wait("event", 6);
          socket.close();
          return socket.texts.filter((text) => text.includes('"type":"event"'));
        }),
      );
      const frames = late[0]!.map((text) => JSON.parse(text));
      expect(frames.map(({ topic, data }) => [topic.split(".").at(-1), data.status])).toEqual([
        ["created", "waiting_for_capacity"],
        ["updated", "running"],
        ["updated", "paused"],
        ["resumed", "running"],
        ["updated", "running"],
        ["completed", "completed"],
      ]);
      for (const texts of late) expect(texts).toEqual(late[0]!);
    });
  });

  describe("system.run.{runId}.step.{stepId}.patched", () => {
    const patched = (runId: string, step: { id: string }) =>
      heard({
        topic: `system.run.${runId}.step.${step.id}.patched`,
        fields: ["id", "runId", "stepId", "timestamp"],
        data: { id: step.id, runId },
      });

    test("PatchStep; one that fails publishes nothing", async () => {
      const { worker, job, runId } = await begin("patched");
      const step = { id: stepIdOf(job, "s"), name: "s", type: "invoke", status: "completed", output: 1 };
      await worker.report(job, { status: "completed", output: null, steps: [step] });
      const [row] = (await rpc("GetRunSteps", { runId })).steps;
      await rpc("PatchStep", { stepId: row.id, output: { n: 2 }, reason: "mended" });
      await patched(runId, row);
      const topic = `system.run.${runId}.step.${row.id}.patched`;
      const refused = await bench
        .server()
        .rpc("SvcService", "PatchStep", { stepId: `${row.id}0`, output: 1 });
      expect(refused.status).toBe(404);
      expect(await countHeard(topic)).toEqual(bench.sockets().map(() => 1));
    });

    test("InjectStepOutput", async () => {
      const { worker, job, runId } = await begin("injected");
      const step = { id: stepIdOf(job, "s"), name: "s", type: "invoke", status: "completed", output: 1 };
      await worker.report(job, { status: "progress", steps: [step], step_offset: 0 });
      await worker.leave(job, "nap", { type: "sleep", until: new Date(Date.now() + 60_000).toISOString() });
      await rpc("PauseRun", { run_id: runId });
      const row = (await rpc("GetPausedState", { run_id: runId })).steps.find(
        ({ name }: { name: string }) => name === "s",
      );
      await rpc("InjectStepOutput", { run_id: runId, step_id: row.id, new_output: "2", reason: "tried" });
      await patched(runId, row);
    });
  });
}
