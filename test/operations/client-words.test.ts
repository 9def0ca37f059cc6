import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { joinGroup } from "../support/group-member.ts";
import { freePort } from "../support/process.ts";
import { pullWorker, stepIdOf } from "../support/pull-worker.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

/** What existing clients send and read that is none of the specification's own words. */
describe.each(engines)("words of existing clients on %s", (engine) => {
  let server: TestServer;
  const call = (method: string, body: object, options: CallOptions = {}) =>
    server.rpc(
      method.includes("/") ? method.split("/")[0]! : "SvcService",
      method.split("/").at(-1)!,
      body,
      options,
    );
  const rpc = async (method: string, body: object = {}, options: CallOptions = {}) => {
    const answer = await call(method, body, options);
    expect({ method, status: answer.status, body: answer.body }).toMatchObject({ status: 200 });
    return answer.body;
  };
  const begin = async (id: string, more: object = {}) => {
    await rpc("RegisterFunction", { id, triggers: [{ event: `${id}.asked` }], ...more });
    const worker = pullWorker(server, `w-${id}`);
    await worker.register(id);
    await rpc("Emit", { event: `${id}.asked`, data: { n: 1 } });
    const [job] = await worker.poll();
    return { worker, job: job!, runId: job!.run_id };
  };
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
  });
  afterAll(() => server.stop());

  test("the environment `current` is the key's own, by header and by query", async () => {
    const { keys, tenancy } = server.running.domain;
    const { id: environmentId } = await tenancy.createEnvironment({ orgId: "org_default", name: "staging" });
    const made = { orgId: "org_default", environmentId, name: "test", roleIds: ["role_admin"] };
    const { key } = await keys.create(made);
    const { eventId } = await rpc("Emit", { event: "mine" }, { key, environment: "current" });
    const seen = await server.api(`/api/v1/events/${eventId}?env=current`, { key });
    expect(seen.status).toBe(200);
    expect((await server.api(`/api/v1/events/${eventId}?env=current`)).status).toBe(404);
    // The header says nothing, so the query does.
    const both = await server.api(`/api/v1/events/${eventId}?env=${server.env}`, {
      key,
      environment: "current",
    });
    expect(both.status).toBe(403);
    const unnamed = await server.api("/api/v1/outbox/dead-letter?env=current", { environment: "current" });
    expect(unnamed.status).toBe(400);
  });

  test("status words in any case; `pending` is one for runs that wait for capacity", async () => {
    await rpc("RegisterFunction", { id: "queued", triggers: [{ event: "queued.asked" }] });
    const { runIds } = await rpc("Emit", { event: "queued.asked" });
    for (const status of [
      "pending",
      "PENDING",
      "RUN_STATUS_PENDING",
      "waiting_for_capacity",
      "Waiting_For_Capacity",
    ]) {
      const { runs } = await rpc("ListRuns", { functionId: "queued", status });
      expect({ status, ids: runs?.map(({ id }: { id: string }) => id) }).toEqual({ status, ids: runIds });
    }
    // Its number in messages of earlier generations.
    expect((await rpc("ListRuns", { functionId: "queued", statuses: [1] })).runs).toHaveLength(1);
    expect((await rpc("ListRuns", { functionId: "queued", statuses: ["Running"] })).runs ?? []).toEqual([]);
    expect((await call("ListRuns", { status: "asleep" })).status).toBe(400);
  });

  test("filters by an id that does not exist, or is another's, find nothing; paths with it are not found", async () => {
    const { runId } = await begin("filtered");
    for (const filter of [{ functionId: "none" }, { eventId: "evt_none" }])
      expect((await rpc("ListRuns", filter)).runs ?? []).toEqual([]);
    const { keys, tenancy } = server.running.domain;
    const { id: environmentId } = await tenancy.createEnvironment({ orgId: "org_default", name: "theirs" });
    const made = { orgId: "org_default", environmentId, name: "test", roleIds: ["role_admin"] };
    const { key } = await keys.create(made);
    for (const [id, options] of [
      ["run_none", {}],
      [runId, { key }],
    ] as const) {
      const page = await server.api(`/api/v1/audit?run_id=${id}`, options);
      expect(page).toMatchObject({ status: 200, body: { events: [], total_count: 0, next_cursor: "" } });
      expect(await rpc("AuditService/GetAuditTrail", { runId: id }, options)).toMatchObject({ events: [] });
      expect((await call("GetRun", { id }, options)).status).toBe(404);
      expect((await call("GetRunSteps", { runId: id }, options)).status).toBe(404);
    }
    for (const query of ["function_id=none", "api_key_id=ak_none"])
      expect((await server.api(`/api/v1/audit?${query}`)).body.events).toEqual([]);
    expect((await rpc("PubSubService/ListConsumerGroups", { namespace: "none" })).groups ?? []).toEqual([]);
  });

  test("answers in both spellings; `patched` is always there", async () => {
    const { worker, job, runId } = await begin("spelt", { recording: true });
    const step = { id: stepIdOf(job, "s"), name: "s", type: "invoke", status: "completed", output: 1 };
    await worker.report(job, { status: "progress", steps: [step], step_offset: 0 });
    await worker.leave(job, "nap", { type: "sleep", until: new Date(Date.now() + 60_000).toISOString() });
    await rpc("PauseRun", { runId });
    const state = await rpc("GetPausedState", { runId });
    expect(state).toMatchObject({
      ...{ nextStepHint: "nap", next_step_hint: "nap", pauseReason: "injection", pause_reason: "injection" },
      steps: [
        { name: "s", stepType: "invoke", step_type: "invoke", status: "completed" },
        { name: "nap", stepType: "sleep", step_type: "sleep", status: "sleeping" },
      ],
    });
    const before = await rpc("TimeTravelService/GetStepOutputAt", { runId, stepId: step.id });
    expect(before.patched).toBe(false);
    const target = { runId, stepId: step.id, newOutput: "2", reason: "tried" };
    const injected = await rpc("InjectStepOutput", target);
    expect(injected).toMatchObject({ previousOutput: "1", previous_output: "1", step_id: injected.stepId });
    const trail = await rpc("AuditService/GetAuditTrail", { runId });
    expect(trail).toMatchObject({ total_count: trail.totalCount, next_cursor: "", nextCursor: "" });
    expect(trail.events.length).toBeGreaterThan(3);
    for (const event of trail.events) {
      expect(event).toMatchObject({ run_id: runId, runId, function_id: "spelt", functionId: "spelt" });
      expect([event.eventType, event.createdAt]).toEqual([event.event_type, event.created_at]);
    }
  });

  test("filters see the event, as triggers do: of subscriptions, replays and groups", async () => {
    const filter =
      "event.data.n > 1 && event.name == 'seen.a' && event.metadata.by == 'ada' && event.source == 'api'";
    const emit = (n: number) => rpc("Emit", { event: "seen.a", data: { n }, metadata: { by: "ada" } });
    await emit(0);
    await emit(2);
    const socket = await openSocket(server.url, { key: server.adminKey });
    const numbers = () => socket.of("event").map(({ data }) => data.n);
    expect(await socket.subscribe("seen.*", { filter, replay: 10 })).toMatchObject({ status: "ok" });
    await until(() => numbers().length === 1, { about: "the replay" });
    await rpc("PubSubService/CreateConsumerGroup", { name: "seers", pattern: "seen.*", filterExpr: filter });
    const member = joinGroup({ url: server.url, key: server.adminKey }, { groupName: "seers" });
    await emit(1);
    await emit(3);
    await until(() => numbers().length === 2, { about: "the event" });
    expect(numbers()).toEqual([2, 3]);
    await member.wait(1);
    expect(member.numbers()).toEqual([3]);
    const topics = await openSocket(server.url, { key: server.adminKey });
    await topics.subscribe("topic:moods.>", { filter: "event.name == 'moods.good' && event.data.n == 5" });
    for (const topic of ["moods.bad", "moods.good"])
      await rpc("PubSubService/Publish", { topic, data: { n: 5 } });
    expect((await topics.wait("event", 1))[0]).toMatchObject({ topic: "topic:moods.good" });
    await topics.subscribe("system.function.>", {
      filter: "event.data.name == 'told' && event.name.endsWith('updated')",
    });
    for (const name of ["untold", "told"]) await rpc("RegisterFunction", { id: "framed", name });
    expect((await topics.wait("event", 2))[1]).toMatchObject({ data: { name: "told" } });
    await member.leave();
    for (const each of [socket, topics]) each.close();
  });

  describe("consumer groups", () => {
    const name = "worded";
    test("buffer unless they say otherwise; an update's mask is text or a list, in either spelling", async () => {
      const made = await rpc("PubSubService/CreateConsumerGroup", {
        name,
        pattern: "worded.>",
        ackMode: "manual",
      });
      expect(made.backpressure).toBe("BACKPRESSURE_MODE_BUFFER");
      const update = (updateMask: unknown, more: object, field = "updateMask") =>
        rpc("PubSubService/UpdateConsumerGroup", { group: { name, ...more }, [field]: updateMask });
      expect(
        await update("max_inflight,redeliver_delay_ms", { maxInflight: 7, redeliverDelayMs: 70 }),
      ).toMatchObject({
        maxInflight: 7,
        redeliverDelayMs: 70,
      });
      expect(await update("maxInflight", { maxInflight: 8, redeliverDelayMs: 80 })).toMatchObject({
        maxInflight: 8,
        redeliverDelayMs: 70,
      });
      const paths = ["max_inflight", "maxRedeliveries"];
      expect(await update({ paths }, { maxInflight: 9, maxRedeliveries: 4 }, "update_mask")).toMatchObject({
        maxInflight: 9,
        maxRedeliveries: 4,
      });
      const refused = await call("PubSubService/UpdateConsumerGroup", {
        group: { name },
        updateMask: { paths: ["name"] },
      });
      expect(refused.status).toBe(400);
      expect(
        (await call("PubSubService/UpdateConsumerGroup", { group: { name }, updateMask: 7 })).status,
      ).toBe(400);
    });

    test("the server names the subscription; it is acknowledged by that name and by the consumer's own", async () => {
      // What is not acknowledged so soon is nobody's again.
      const group = { name, redeliverDelayMs: 60_000 };
      await rpc("PubSubService/UpdateConsumerGroup", { group, updateMask: "redeliver_delay_ms" });
      const member = joinGroup(
        { url: server.url, key: server.adminKey },
        { groupName: name, consumerId: "mine" },
      );
      await until(async () => (await rpc("PubSubService/GetConsumerGroup", { name })).memberCount === 1, {
        about: "the member",
      });
      for (const n of [1, 2, 3]) await rpc("Emit", { event: "worded.a", data: { n } });
      const [one, two, three] = await member.wait(3);
      expect(one!.subscriptionId).toMatch(/^sub_/);
      expect(two!.subscriptionId).toBe(one!.subscriptionId);
      const ack = (eventId: string, consumerId: string) =>
        call("PubSubService/AckEvent", { groupName: name, eventId, consumerId, ackType: "ACK_TYPE_ACK" });
      expect((await ack(one!.eventId, one!.subscriptionId)).status).toBe(200);
      expect((await ack(two!.eventId, "mine")).status).toBe(200);
      expect((await ack(three!.eventId, "sub_of_nobody")).body.code).toBe("failed_precondition");
      expect((await ack(three!.eventId, "")).status).toBe(200);
      await member.leave();
    });
  });

  test("capabilities: a transport in both directions where there is one, and no such feature", async () => {
    const told = async (at: TestServer) => (await at.api("/api/v1/capabilities")).body;
    expect((await told(server)).transports).not.toContain("grpc-bidirectional");
    const grpc = await startTestServer({ engine, settings: { grpcPort: await freePort() } });
    const { transports, features } = await told(grpc);
    expect(transports).toContain("grpc");
    expect(transports).toContain("grpc-bidirectional");
    expect(features).not.toContain("grpc-bidirectional");
    await grpc.stop();
  });
});
