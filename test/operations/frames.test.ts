import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { runOnce } from "../support/one-run.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("system frames on %s", (engine) => {
  let server: TestServer;
  let socket: TestSocket;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    socket = await openSocket(server.url, { key: server.adminKey });
  }, 120_000);
  afterAll(async () => {
    socket.close();
    await server.stop();
  });
  const of = async (subscriptionId: string, count: number) => {
    const all = () => socket.of("event").filter((frame) => frame.subscriptionId === subscriptionId);
    for (let total = count; all().length < count; total++) await socket.wait("event", total);
    return all();
  };

  test("a run is told of from its creation to its end, with what came out", async () => {
    const all = await socket.subscribe("system.run.>", { includeMetadata: true });
    const done = await socket.subscribe("system.run.*.completed");
    const { runId } = await runOnce(server, "told", { status: "completed", output: { sum: 3 } });
    await of(done.subscriptionId, 1);
    // A run that is over at once may not be told of in between. The two subscriptions are told one after the other.
    const ends = () =>
      socket
        .of("event")
        .filter((frame) => frame.subscriptionId === all.subscriptionId && !frame.topic.endsWith(".updated"));
    await until(() => ends().length >= 2, { about: "the run's creation and its end" });
    const [created, completed] = ends();
    expect(created).toMatchObject({
      topic: `system.run.${runId}.created`,
      data: { runId, functionId: "told", status: "waiting_for_capacity", eventName: "told.asked" },
      meta: { sequence: 1 },
    });
    expect(completed).toMatchObject({
      topic: `system.run.${runId}.completed`,
      data: { runId, functionId: "told", status: "completed", output: { sum: 3 } },
      meta: { sequence: 3 },
    });
    expect(created).not.toHaveProperty("eventId");
    expect((await of(done.subscriptionId, 1))[0].topic).toBe(`system.run.${runId}.completed`);
    socket.send({ type: "unsubscribe", subscriptionId: all.subscriptionId });
    socket.send({ type: "unsubscribe", subscriptionId: done.subscriptionId });
  });

  test("a run that was created is told of with the time that it is listed with", async () => {
    // As after an emit at a node whose clock is ahead: the log's times never go back, a run's are its node's own.
    const ahead = sql`UPDATE heads SET last_at = ${Date.now() + 60_000} WHERE environment_id = ${server.env}`;
    await server.running.domain.store.write((session) => session.run(ahead));
    const { subscriptionId } = await socket.subscribe("system.run.*.created");
    const { runId } = await runOnce(server, "timed", { status: "completed", output: null });
    const [created] = await of(subscriptionId, 1);
    const { body } = await server.rpc("SvcService", "GetRun", { id: runId });
    expect(created.data).toMatchObject({ runId, timestamp: body.createdAt });
    socket.send({ type: "unsubscribe", subscriptionId });
  });

  test("who comes after the end of a run hears of it all the same, once", async () => {
    const { runId } = await runOnce(server, "agent", {
      status: "failed",
      error: { message: "no luck", code: "LUCK", retryable: false },
    });
    const { subscriptionId } = await socket.subscribe(`system.run.${runId}.>`, {
      replay: 1_000,
      includeMetadata: true,
    });
    const frames = await of(subscriptionId, 3);
    expect(frames.map((frame) => frame.topic)).toEqual([
      `system.run.${runId}.created`,
      `system.run.${runId}.updated`,
      `system.run.${runId}.failed`,
    ]);
    expect(frames[1].data).toMatchObject({ status: "running", attempt: 1 });
    expect(frames[2].data).toMatchObject({ status: "failed", error: { message: "no luck", code: "LUCK" } });
    await server.running.tick("pubsub.runs");
    const again = await socket.subscribe(`system.run.${runId}.>`, {
      startAfterSequence: frames[1].meta.sequence,
    });
    expect((await of(again.subscriptionId, 1))[0].topic).toEndWith(".failed");
    expect(await of(subscriptionId, 3)).toHaveLength(3);
  });

  test("a run that sleeps or waits says why it is paused", async () => {
    const later = { until: new Date(Date.now() + 60_000).toISOString() };
    const reasons = {
      sleep: { type: "sleep", ...later },
      wait_event: { type: "wait_for_event", ...later, event_filter: { event: "never" } },
    };
    for (const [pauseReason, reason] of Object.entries(reasons)) {
      const report = { status: "yielded", yield: { step_id: "s", step_name: "s", ...reason } };
      const { runId, answer } = await runOnce(server, `held-${pauseReason}`, report);
      expect(answer.body).toEqual({ status: "ok" });
      const { subscriptionId } = await socket.subscribe(`system.run.${runId}.>`, { replay: 1_000 });
      // That it began may be told twice: from its history, and a moment later.
      const paused = await until(
        () =>
          socket.of("event").find((f) => f.subscriptionId === subscriptionId && f.data.status === "paused"),
        { about: "the frame of the pause" },
      );
      expect(paused).toMatchObject({ topic: `system.run.${runId}.updated`, data: { pauseReason } });
      socket.send({ type: "unsubscribe", subscriptionId });
    }
  });

  test("who comes before the end of a run gets it, also when the frame was lost", async () => {
    await server.rpc("SvcService", "RegisterFunction", { id: "slow", triggers: [{ event: "slow.asked" }] });
    const { body } = await server.rpc("SvcService", "Emit", { event: "slow.asked" });
    const [runId] = body.runIds;
    const { subscriptionId } = await socket.subscribe(`system.run.${runId}.>`, { replay: 1_000 });
    await of(subscriptionId, 1);
    expect((await server.rpc("SvcService", "CancelRun", { id: runId })).status).toBe(200);
    const [, end] = await of(subscriptionId, 2);
    expect(end).toMatchObject({ topic: `system.run.${runId}.cancelled`, data: { status: "cancelled" } });
    expect(end.data.error).toBeTruthy();
  });

  test("functions are told of, on their own topics", async () => {
    const { subscriptionId } = await socket.subscribe("system.function.>");
    const register = (name: string) =>
      server.rpc("SvcService", "RegisterFunction", { id: "shown", name, triggers: [{ event: "e" }] });
    await register("one");
    await register("one");
    await register("two");
    await server.rpc("SvcService", "DeleteFunction", { id: "shown" });
    const frames = await of(subscriptionId, 3);
    expect(frames.map((frame) => [frame.topic, frame.data.name])).toEqual([
      ["system.function.shown.registered", "one"],
      ["system.function.shown.updated", "two"],
      ["system.function.shown.deleted", "two"],
    ]);
    expect(frames[0].data).toMatchObject({ id: "shown", status: "active", preferredMode: "pull" });
  });

  test("nothing is told of environments whose id is no token, nor of the platform's own streams", async () => {
    const { frames } = server.running.domain;
    const heard: string[] = [];
    const stops = ["a.b", "a*", "x".repeat(111), "", "env_ok"].map((environmentId) =>
      frames.listen(environmentId, ({ topic }) => void heard.push(`${environmentId}: ${topic}`)),
    );
    for (const environmentId of ["a.b", "a*", "x".repeat(111), ""])
      frames.publish(environmentId, "system.function.f.updated", {});
    frames.publish("env_ok", "system.stream.svc:audit.appended", {});
    frames.publish("env_ok", "system.stream.cart-1.appended", {});
    expect(heard).toEqual(["env_ok: system.stream.cart-1.appended"]);
    for (const stop of stops) stop();
  });
});
