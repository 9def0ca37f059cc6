import { describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";
import type { TopicBench } from "./topics-bench.ts";

const runFields = ["id", "runId", "functionId", "status", "eventId", "eventName", "timestamp"] as const;
const begunFields = [...runFields, "startedAt"] as const;
const overFields = [...begunFields, "endedAt"] as const;
const stepFields = ["id", "stepId", "runId", "name", "type", "status", "timestamp"] as const;

/** Runs and their steps. */
export function runTopics(bench: TopicBench): void {
  const { rpc, register, emit, write, tick, begin, framesAt, heard, countHeard, none } = bench;

  describe("system.run.{run_id}.created, by any producer", () => {
    const created = (runId: string, functionId: string, eventName: string) =>
      heard({
        topic: `system.run.${runId}.created`,
        fields: runFields,
        data: { id: runId, runId, functionId, status: "waiting_for_capacity", eventName },
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
      const updated = (status: string, more: object) => ({
        topic: topicOf(runId, "updated"),
        fields: [...begunFields, ...Object.keys(more)],
        data: { runId, functionId: "naps", status, ...more },
      });
      await heard(updated("running", { attempt: 1 }));
      await worker.leave(job, "nap", { type: "sleep", until: new Date(Date.now() + 60_000).toISOString() });
      await until(
        () => bench.sockets().every((socket) => framesAt(socket, topicOf(runId, "updated")).length === 2),
        {
          about: "the pause",
        },
      );
      const { meta } = await heard(updated("paused", { pauseReason: "sleep" }));
      expect(meta.sequence).toBe(3);
    });

    test("resumed, running again", async () => {
      const { worker, job, runId } = await begin("rests");
      await worker.leave(job, "nap", { type: "sleep", until: new Date(Date.now() + 60_000).toISOString() });
      await rpc("ResumeRun", { runId });
      await heard({
        topic: topicOf(runId, "resumed"),
        fields: begunFields,
        data: { runId, status: "running" },
      });
    });

    test("completed, with its output", async () => {
      const { worker, job, runId } = await begin("does");
      await worker.complete(job, { sum: 3 });
      await heard({
        topic: topicOf(runId, "completed"),
        fields: [...overFields, "output"],
        data: { runId, functionId: "does", status: "completed", output: { sum: 3 } },
      });
    });

    test("failed, with its error", async () => {
      const { worker, job, runId } = await begin("fails");
      const error = { message: "no luck", code: "LUCK", retryable: false };
      await worker.report(job, { status: "failed", error });
      await heard({
        topic: topicOf(runId, "failed"),
        fields: [...overFields, "error"],
        data: { runId, status: "failed", error: { message: "no luck", code: "LUCK" } },
      });
    });

    test("cancelled, with an error and its cause", async () => {
      const { runId } = await begin("stops");
      await rpc("CancelRun", { id: runId });
      await heard({
        topic: topicOf(runId, "cancelled"),
        fields: [...overFields, "error", "cause"],
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
          // Not those of its steps, which no history tells again.
          await socket.subscribe(topicOf(runId, "*"), { replay: 1_000, includeMetadata: true });
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
      // What is told again is what was told.
      const heard = () =>
        bench
          .sockets()[0]!
          .of("event")
          .filter(({ topic }) => topic.startsWith(`system.run.${runId}.`) && !topic.includes(".step."));
      const live = await until(() => heard().length >= 4 && heard(), { about: "four frames as they come" });
      for (const { topic, data } of live)
        expect(frames).toContainEqual(expect.objectContaining({ topic, data }));
    });
  });

  describe("system.run.{runId}.step.{stepId}, by the id that the SDK gave", () => {
    const soon = () => new Date(Date.now() + 60_000).toISOString();
    const told = (stepId: string, verb: string, more: readonly string[], data: Record<string, unknown>) => {
      const [runId = ""] = stepId.split(":");
      return heard({
        topic: `system.run.${runId}.step.${stepId}.${verb}`,
        fields: [...stepFields, ...more],
        data: { stepId, runId, id: expect.stringMatching(/^step_/), ...data },
      });
    };
    const sameFrom = async (open: () => Promise<unknown>) => {
      for (const loop of ["runs.wake", "runs.matcher", "runs.children"]) await tick(loop);
      return open();
    };

    test("created and completed, or failed, of steps that are reported when they are over; once", async () => {
      const { worker, job } = await begin("steps");
      const [good, bad, undo] = ["good", "bad", "undo"].map((name) => stepIdOf(job, name)) as [
        string,
        string,
        string,
      ];
      const startedAt = new Date().toISOString();
      const steps = [
        {
          id: good,
          name: "good",
          type: "invoke",
          status: "completed",
          output: { n: 1 },
          started_at: startedAt,
          ended_at: startedAt,
        },
        {
          id: bad,
          name: "bad",
          type: "invoke",
          status: "failed",
          error: { message: "no luck", code: "LUCK" },
        },
        {
          id: undo,
          name: "undo",
          type: "compensate",
          status: "completed",
          output: null,
          compensation_for: good,
        },
      ];
      await worker.report(job, { status: "progress", steps, step_offset: 0 });
      const times = ["startedAt", "endedAt", "output"];
      const done = { name: "good", type: "invoke", status: "completed", output: { n: 1 } };
      await told(good, "created", times, done);
      await told(good, "completed", times, done);
      await told(bad, "failed", ["error"], { status: "failed", error: { message: "no luck", code: "LUCK" } });
      await told(undo, "completed", ["output"], { type: "compensate", output: null });
      // Reported again with the end of the run: a completed step has not changed.
      await worker.report(job, { status: "completed", output: null, steps: [steps[0]], step_offset: 0 });
      expect(await countHeard(`system.run.${job.run_id}.step.${good}.completed`)).toEqual(
        bench.sockets().map(() => 1),
      );
    });

    test("a sleep: created, and completed when its time has come", async () => {
      const { worker, job, runId } = await begin("dozes");
      await worker.leave(job, "nap", { type: "sleep", until: soon() });
      const id = stepIdOf(job, "nap");
      await told(id, "created", ["startedAt"], { type: "sleep", status: "sleeping" });
      await write(sql`UPDATE executions SET wake_at = 0 WHERE run_id = ${runId}`);
      await sameFrom(() =>
        told(id, "completed", ["startedAt", "endedAt", "output"], { status: "completed", output: null }),
      );
    });

    test("a sleep that ResumeRun ends", async () => {
      const { worker, job, runId } = await begin("shaken");
      await worker.leave(job, "nap", { type: "sleep", until: soon() });
      await rpc("ResumeRun", { runId });
      await told(stepIdOf(job, "nap"), "completed", ["startedAt", "endedAt", "output"], {
        status: "completed",
      });
    });

    test("a wait: created, completed by its event, failed by its timeout, updated when it is asked again", async () => {
      const waitFor = (event: string) => ({ type: "wait_for_event", event_filter: { event } });
      const { worker, job, runId } = await begin("waits");
      await worker.leave(job, "paid", waitFor("paid"));
      const id = stepIdOf(job, "paid");
      await told(id, "created", ["startedAt"], { type: "wait_for_event", status: "waiting" });
      await emit("paid", { data: { cents: 3 } });
      await sameFrom(() =>
        told(id, "completed", ["startedAt", "endedAt", "output"], {
          status: "completed",
          output: expect.objectContaining({ name: "paid", data: { cents: 3 } }),
        }),
      );
      expect(runId).toBe(job.run_id);

      const late = await begin("late");
      await late.worker.leave(late.job, "never", waitFor("never"));
      const lateId = stepIdOf(late.job, "never");
      await told(lateId, "created", ["startedAt"], { status: "waiting" });
      // Sent on without its event, the handler asks for it again.
      await rpc("ResumeRun", { runId: late.runId });
      const again = await until(async () => (await late.worker.poll())[0], { about: "the job again" });
      await late.worker.leave(again, "never", waitFor("never"));
      await told(lateId, "updated", ["startedAt"], { status: "waiting" });
      await write(sql`UPDATE executions SET wake_at = 0 WHERE run_id = ${late.runId} AND state = 'waiting'`);
      await sameFrom(() =>
        told(lateId, "failed", ["startedAt", "endedAt", "error"], {
          status: "timed_out",
          error: { code: "WAIT_TIMEOUT", message: expect.any(String) },
        }),
      );
    });

    test("an invoke: created, completed or failed with its child", async () => {
      const child = async (id: string, end: object) => {
        await register(`${id}-child`, { triggers: [] });
        const { worker, job } = await begin(id);
        await worker.leave(job, "call", { type: "invoke_function", function_id: `${id}-child`, input: {} });
        const helper = pullWorker(bench.server(), `w-${id}-child`);
        await helper.register(`${id}-child`);
        await told(stepIdOf(job, "call"), "created", ["startedAt"], {
          type: "invoke_function",
          status: "waiting",
        });
        await tick("runs.children");
        const task = await until(async () => (await helper.poll())[0], { about: "the child's job" });
        await helper.report(task, end);
        return stepIdOf(job, "call");
      };
      const good = await child("calls", { status: "completed", output: { sum: 3 } });
      await sameFrom(() =>
        told(good, "completed", ["startedAt", "endedAt", "output"], { output: { sum: 3 } }),
      );
      const error = { message: "no luck", code: "LUCK", retryable: false };
      const bad = await child("fumbles", { status: "failed", error });
      await sameFrom(() =>
        told(bad, "failed", ["startedAt", "endedAt", "error"], {
          error: { message: "no luck", code: "INVOKE_FAILED" },
        }),
      );
    });

    const patched = (id: string, output: unknown) =>
      told(id, "patched", ["output"], { status: "completed", output });

    test("patched by PatchStep; one that fails publishes nothing", async () => {
      const { worker, job, runId } = await begin("patched");
      const step = { id: stepIdOf(job, "s"), name: "s", type: "invoke", status: "completed", output: 1 };
      await worker.report(job, { status: "completed", output: null, steps: [step] });
      const [row] = (await rpc("GetRunSteps", { runId })).steps;
      await rpc("PatchStep", { stepId: row.id, output: { n: 2 }, reason: "mended" });
      await patched(step.id, { n: 2 });
      const refused = await bench
        .server()
        .rpc("SvcService", "PatchStep", { stepId: `${row.id}0`, output: 1 });
      expect(refused.status).toBe(404);
      const topic = `system.run.${runId}.step.${step.id}.patched`;
      expect(await countHeard(topic)).toEqual(bench.sockets().map(() => 1));
    });

    test("patched by InjectStepOutput", async () => {
      const { worker, job, runId } = await begin("injected");
      const step = { id: stepIdOf(job, "s"), name: "s", type: "invoke", status: "completed", output: 1 };
      await worker.report(job, { status: "progress", steps: [step], step_offset: 0 });
      await worker.leave(job, "nap", { type: "sleep", until: soon() });
      await rpc("PauseRun", { run_id: runId });
      const row = (await rpc("GetPausedState", { run_id: runId })).steps.find(
        ({ name }: { name: string }) => name === "s",
      );
      await rpc("InjectStepOutput", { run_id: runId, step_id: row.id, new_output: "2", reason: "tried" });
      await patched(step.id, 2);
    });
  });

  describe("system.worker.{id}", () => {
    const fields = ["workerId", "health", "draining", "timestamp"] as const;
    const told = (workerId: string, leaf: string, data: Record<string, unknown>) =>
      heard({ topic: `system.worker.${workerId}.${leaf}`, fields, data: { workerId, ...data } });

    test("connected, health with each sign of life, disconnected once it is given up", async () => {
      await register("served");
      const server = bench.server();
      const worker = pullWorker(server, "w-told");
      await worker.register("served");
      await told("w-told", "connected", { health: "healthy", draining: false });
      const beat = await server.api("/api/v1/workers/w-told/heartbeat", {
        method: "PUT",
        body: { active_jobs: 0 },
      });
      expect(beat.status).toBe(200);
      await told("w-told", "health", { health: "healthy", draining: false });
      await write(sql`UPDATE workers SET last_heartbeat_at = 0 WHERE id = 'w-told'`);
      await tick("workers.forget");
      await told("w-told", "disconnected", { health: "unhealthy", draining: false });
    });

    test("health, when it lets a lease end without a word", async () => {
      const { runId } = await begin("mute");
      await write(sql`UPDATE executions SET wake_at = 0 WHERE run_id = ${runId}`);
      await tick("runs.wake");
      await told("w-mute", "health", { health: "unhealthy", draining: false });
    });
  });
}
