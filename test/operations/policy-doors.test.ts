import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code } from "@connectrpc/connect";
import { AckType } from "../../src/gen/svc/v1/pubsub_pb.ts";
import { joinGroup, pubsubClient } from "../support/group-member.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { openStreamWorker, transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

/** A worker's stream, as it has registered for one function. */
function enlistStream({ url }: { url: string }, key: string, id: string, functionId: string) {
  const transport = transportOf("connect binary", { url, grpcUrl: undefined });
  const worker = openStreamWorker(transport, { key, id });
  worker.register([functionId]).catch(() => {});
  return worker;
}

/** Everything that shows or moves one function, one event or one secret, asked by who was denied it. */
describe.each(engines)("what a policy denies is denied at every door, on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { metricsEnabled: true, pollHoldMs: 3_000 } });
  });
  afterAll(() => server.stop());

  let made = 0;
  /** A developer of a role of its own, whom these policies bind. */
  async function developer(...policies: { actions: string; resources: string; condition?: string }[]) {
    const role = await server.api("/api/v1/roles", { body: { name: `role-${++made}`, base: "developer" } });
    expect(role.status).toBe(201);
    const deny = async (policy: { actions: string; resources: string; condition?: string }) => {
      const { body, status } = await server.api("/api/v1/policies", {
        body: { name: `policy-${++made}`, effect: "deny", ...policy },
      });
      expect(status).toBe(201);
      const assigned = await server.api(`/api/v1/roles/${role.body.id}/policies`, {
        body: { policy_id: body.id },
      });
      expect(assigned.status).toBe(204);
    };
    for (const policy of policies) await deny(policy);
    const key = await server.api("/api/v1/apikeys", {
      body: { name: `key-${made}`, role_ids: [role.body.id] },
    });
    expect(key.status).toBe(201);
    return { key: key.body.key as string, deny };
  }
  const register = (id: string, more: object = {}, key?: string) =>
    server.rpc(
      "SvcService",
      "RegisterFunction",
      { id, triggers: [], ...more },
      key === undefined ? {} : { key },
    );
  const emit = (key: string, event: string, data: object = {}) =>
    server.rpc("SvcService", "Emit", { event, data }, { key });
  const enlist = (key: string, worker: string, ...ids: string[]) =>
    server.api(`/api/v1/workers/${worker}/register`, {
      key,
      body: { function_ids: ids, max_concurrent_jobs: 5 },
    });
  const poll = (key: string, worker: string) =>
    server.api(`/api/v1/workers/${worker}/jobs?available=5`, { key });
  const exchange = (key: string, worker: string, body: object) =>
    server.api(`/api/v1/workers/${worker}/exchange`, { key, body });
  const never = { actions: "functions:invoke", resources: "irn:svc:*:*:function:*:billing" };

  describe("a function", () => {
    test("to whoever starts it, by its name or by an event of its name", async () => {
      await register("billing");
      await register("shipping");
      const { key } = await developer(never);
      const calls: [string, object][] = [
        ["InvokeFunction", { functionId: "billing" }],
        ["InvokeFunctionSync", { functionId: "billing", timeoutMs: 1 }],
        ["Emit", { event: "billing" }],
        ["Trigger", { event: "billing" }],
        ["TriggerSync", { event: "billing", timeoutMs: 1 }],
        ["TriggerBatch", { events: [{ event: "shipping" }, { event: "billing" }] }],
      ];
      for (const [method, body] of calls)
        expect(`${method} ${(await server.rpc("SvcService", method, body, { key })).status}`).toBe(
          `${method} 403`,
        );
      const { body } = await server.api("/api/v1/events?names=shipping,billing");
      expect(body.count).toBe(0);
      expect((await server.rpc("SvcService", "ListRuns", { functionId: "billing" })).body.runs ?? []).toEqual(
        [],
      );
      expect((await emit(key, "shipping")).body.runIds).toHaveLength(1);
      // An event of that name that triggers another function starts that one, and is nobody's invoke.
      await register("listener", { triggers: [{ event: "billing" }] });
      const { status, body: started } = await emit(key, "billing");
      expect([status, started.runIds.length]).toEqual([200, 1]);
      await server.rpc("SvcService", "DeleteFunction", { id: "listener" });
    });

    test("to workers that register, poll, exchange or stream for it", async () => {
      await register("billing");
      await register("shipping");
      const { key } = await developer(never);
      expect((await enlist(key, "w1", "shipping", "billing")).status).toBe(403);
      expect((await poll(key, "w1")).status).toBe(404);
      // Registered by somebody who may: asked for by who may not.
      expect((await enlist(server.adminKey!, "w2", "billing")).status).toBe(200);
      expect((await server.rpc("SvcService", "InvokeFunction", { functionId: "billing" })).status).toBe(200);
      expect((await poll(key, "w2")).status).toBe(403);
      expect((await exchange(key, "w2", { available: 1 })).status).toBe(403);
      expect((await exchange(key, "w2", { available: 0 })).status).toBe(200);
      const stream = enlistStream(server, key, "w3", "billing");
      expect((await stream.ended)?.code).toBe(Code.PermissionDenied);
      const jobs = (await poll(server.adminKey!, "w2")).body.jobs;
      expect(jobs.map((job: { function_id: string }) => job.function_id)).toEqual(["billing"]);
      expect((await enlist(key, "w4", "shipping")).status).toBe(200);
      expect((await poll(key, "w4")).status).toBeLessThan(300);
    });

    test("to a worker that waits already, within a second of the policy", async () => {
      await register("late-function");
      {
        const { key, deny } = await developer();
        expect((await enlist(key, "w5", "late-function")).status).toBe(200);
        const polled = server.api("/api/v1/workers/w5/jobs", { key });
        const stream = enlistStream(server, key, "w6", "late-function");
        await until(
          () =>
            server.running.domain.workers
              .list("env_default")
              .then((all) => all.some(({ id }) => id === "w6")),
          {
            about: "the stream",
          },
        );
        await deny({ actions: "functions:invoke", resources: "irn:svc:*:*:function:*:late-function" });
        expect((await polled).status).toBe(403);
        expect((await stream.ended)?.code).toBe(Code.PermissionDenied);
      }
    });

    test("to a run that a worker with such a credential leads to it: the run fails, and says why", async () => {
      await register("billing");
      await register("caller");
      const { key } = await developer(never);
      await enlist(key, "w7", "caller");
      const { body } = await server.rpc("SvcService", "InvokeFunction", { functionId: "caller" });
      const [job] = (await poll(key, "w7")).body.jobs;
      const reported = await server.api(`/api/v1/workers/w7/jobs/${job.job_id}`, {
        method: "PUT",
        key,
        body: {
          status: "yielded",
          execution_seq: job.execution_seq,
          lease_token: job.lease_token,
          yield: { step_id: "a", type: "invoke_function", function_id: "billing", input: {} },
        },
      });
      expect(reported.status).toBe(200);
      const run = (await server.rpc("SvcService", "GetRun", { id: body.runId })).body;
      expect(run.status).toMatch(/failed/i);
      expect(JSON.stringify(run)).toContain("billing may not be invoked");
    });

    test("that may not be read, in the list as by its name", async () => {
      await register("hidden-one");
      await register("open-one");
      for (const action of ["functions:read", "functions:list"]) {
        const { key } = await developer({ actions: action, resources: "irn:svc:*:*:function:*:hidden-one" });
        const { body } = await server.rpc("SvcService", "ListFunctions", { limit: 100 }, { key });
        const ids = body.functions.map(({ id }: { id: string }) => id);
        expect(ids).toContain("open-one");
        expect(ids).not.toContain("hidden-one");
      }
    });
  });

  describe("an event", () => {
    const hidden = { actions: "events:*", resources: "irn:svc:*:*:event:*:salary.*" };
    const list = async (key: string, query = "") => {
      const { body } = await server.api(`/api/v1/events?limit=3${query}`, { key });
      return { names: body.events.map(({ name }: { name: string }) => name), body };
    };

    test("where it is emitted, got, listed, searched and named", async () => {
      const { key } = await developer(hidden);
      const admin = server.adminKey!;
      const { eventId } = (await emit(admin, "salary.paid", { amount: "secret-amount" })).body;
      for (let at = 0; at < 4; at++) {
        await emit(admin, "wage.paid");
        await emit(admin, "salary.paid", { amount: "secret-amount" });
      }
      expect((await emit(key, "salary.paid")).status).toBe(403);
      expect((await server.api(`/api/v1/events/${eventId}`, { key })).status).toBe(403);
      expect((await server.api(`/api/v1/events/${eventId}`)).status).toBe(200);
      const page = await list(key, "&name=paid");
      expect(page.names).toEqual(["wage.paid", "wage.paid", "wage.paid"]);
      expect(page.body.has_next).toBe(true);
      const rest = await list(key, `&name=paid&cursor=${encodeURIComponent(page.body.next_cursor)}`);
      expect([rest.names, rest.body.has_next]).toEqual([["wage.paid"], false]);
      const searched = await list(key, "&search=secret-amount");
      expect(searched.body).toMatchObject({ events: [], count: 0, has_next: false, approx_total: 0 });
      expect(searched.body.next_cursor).toBeUndefined();
      const { body } = await server.api("/api/v1/events/names", { key });
      const names = body.names.map(({ name }: { name: string }) => name);
      expect(names).toContain("wage.paid");
      expect(names).not.toContain("salary.paid");
    });

    test("to whoever makes a function whose runs end by it: which of them do tells what it holds", async () => {
      const { key } = await developer(hidden);
      const endedBy = (event: string) => ({ cancelOn: [{ event, match: "event.data.amount > 9" }] });
      expect((await register("ends", endedBy("salary.paid"), key)).status).toBe(403);
      expect((await register("ends", endedBy("salary.paid"))).status).toBe(200);
      expect((await register("ends", endedBy("wage.paid"), key)).status).toBe(200);
      const back = { functionId: "ends", version: 1 };
      expect((await server.rpc("SvcService", "RollbackFunction", back, { key })).status).toBe(403);
    });

    test("under a pattern that takes in more, replayed or live, on sockets and streams; what was left out is counted", async () => {
      const { key, deny } = await developer();
      const admin = server.adminKey!;
      const socket = await openSocket(server.url, { key });
      const other = await openSocket(server.url, { key: admin });
      for (const each of [socket, other]) expect((await each.subscribe("*.come")).status).toBe("ok");
      const topics = () => socket.of("event").map(({ topic }) => topic);
      await emit(admin, "salary.come");
      await emit(admin, "wage.come");
      await socket.wait("event", 2);
      // Those who listen already have it no longer, others still do.
      await deny(hidden);
      await server.running.tick("edge.standing");
      await server.running.tick("edge.standing");
      await emit(admin, "salary.come");
      await emit(admin, "wage.come");
      await other.wait("event", 4);
      await socket.wait("event", 3);
      expect(topics()).toEqual(["events:salary.come", "events:wage.come", "events:wage.come"]);
      const again = await openSocket(server.url, { key });
      expect((await again.subscribe(">", { replay: 100 })).status).toBe("ok");
      expect((await again.subscribe("*.come", { filter: "topic != ''", replay: 100 })).status).toBe("ok");
      expect(await again.subscribe("salary.come")).toMatchObject({ code: "PERMISSION_DENIED" });
      await emit(admin, "salary.come");
      await emit(admin, "wage.come");
      await until(() => again.of("event").filter(({ topic }) => topic === "events:wage.come").length >= 6, {
        about: "what is allowed",
      });
      expect(again.texts.filter((text) => text.includes("salary.come") && text.includes('"event"'))).toEqual(
        [],
      );
      const metrics = await (await fetch(server.running.metricsUrl!)).text();
      expect(Number(/^svc_deliveries_denied_total (\d+)/m.exec(metrics)?.[1])).toBeGreaterThan(0);
      for (const each of [socket, other, again]) each.close();
    });

    test("to members of a group: who may not have all that it reads takes no part", async () => {
      const { key, deny } = await developer({
        actions: "events:subscribe",
        resources: "irn:svc:*:*:event:*:salary.*",
      });
      for (const [name, pattern] of [
        ["wide", "*.paidout"],
        ["all", ">"],
        ["other", "wage.>"],
      ])
        await server.rpc("PubSubService", "CreateConsumerGroup", { name, pattern });
      const join = (groupName: string) =>
        joinGroup({ url: server.url, key }, { groupName, consumerId: "mine" });
      for (const name of ["wide", "all"]) expect((await join(name).over)?.code).toBe(Code.PermissionDenied);
      const socket = await openSocket(server.url, { key });
      expect(await socket.subscribe("*.paidout", { consumerGroup: "wide" })).toMatchObject({
        code: "PERMISSION_DENIED",
      });
      expect((await socket.subscribe("wage.*", { consumerGroup: "wages" })).status).toBe("ok");
      const mine = join("other");
      await emit(server.adminKey!, "wage.paidout");
      await mine.wait(1);
      await deny({ actions: "events:subscribe", resources: "irn:svc:*:*:event:*:wage.secret" });
      expect((await mine.over)?.code).toBe(Code.PermissionDenied);
      expect((await socket.wait("subscription_error"))[0].code).toBe("PERMISSION_DENIED");
      socket.close();
    });
  });

  describe("a secret", () => {
    const never = { actions: "secrets:read", resources: "irn:svc:*:*:secret:*:stripe" };

    test("to whoever makes a function declare it, and to workers that would be handed it", async () => {
      expect(
        (await server.api("/api/v1/secrets", { body: { name: "stripe", value: "sk_live" } })).status,
      ).toBe(201);
      expect((await server.api("/api/v1/secrets", { body: { name: "open", value: "sk_open" } })).status).toBe(
        201,
      );
      const { key } = await developer(never);
      expect((await register("thief", { secrets: ["open", "stripe"] }, key)).status).toBe(403);
      expect((await register("honest", { secrets: ["open"] }, key)).status).toBe(200);
      expect((await register("pays", { secrets: ["stripe"] })).status).toBe(200);
      expect((await register("pays", { secrets: [] }, key)).status).toBe(200);
      const back = await server.rpc(
        "SvcService",
        "RollbackFunction",
        { functionId: "pays", version: 1 },
        { key },
      );
      expect(back.status).toBe(403);
      expect(
        (await server.rpc("SvcService", "RollbackFunction", { functionId: "pays", version: 1 })).status,
      ).toBe(200);
      await enlist(key, "w8", "pays");
      expect((await server.rpc("SvcService", "InvokeFunction", { functionId: "pays" })).status).toBe(200);
      expect((await poll(key, "w8")).status).toBe(403);
      expect((await exchange(key, "w8", { available: 1 })).status).toBe(403);
      const stream = enlistStream(server, key, "w9", "pays");
      expect((await stream.ended)?.code).toBe(Code.PermissionDenied);
      const { body } = await server.api("/api/v1/secrets", { key });
      expect(body.map(({ name }: { name: string }) => name)).toEqual(["open"]);
    });

    test("to whoever would give its name to another", async () => {
      const { key } = await developer({ ...never, actions: "secrets:manage" });
      const change = (method: string, name: string, body: object) =>
        server.api(`/api/v1/secrets/${name}`, { method, body, key });
      expect((await change("PATCH", "open", { name: "stripe" })).status).toBe(403);
      expect((await change("PATCH", "open", { name: "opened" })).status).toBe(200);
      expect((await change("PATCH", "opened", { name: "open" })).status).toBe(200);
    });

    test("to workers of a version that declares it, although the newest does not: its job stays where it is", async () => {
      expect((await register("changes", { secrets: ["stripe"] })).status).toBe(200);
      const { body } = await server.rpc("SvcService", "InvokeFunction", { functionId: "changes" });
      expect((await register("changes", { secrets: [] })).status).toBe(200);
      const { key } = await developer(never);
      await enlist(key, "w10", "changes");
      const polled = await poll(key, "w10");
      expect([polled.status, polled.body]).toEqual([204, undefined]);
      await enlist(server.adminKey!, "w11", "changes");
      await until(
        async () => {
          const { body: answer } = await poll(server.adminKey!, "w11");
          return answer?.jobs.some((job: { run_id: string }) => job.run_id === body.runId);
        },
        { about: "the job at a worker that may have it" },
      );
    });
  });

  test("taking part in a group, making one and acknowledging cost more than reading", async () => {
    const viewer = (await server.api("/api/v1/apikeys", { body: { name: "v", role_ids: ["role_viewer"] } }))
      .body.key;
    const socket = await openSocket(server.url, { key: viewer });
    expect((await socket.subscribe("a.b")).status).toBe("ok");
    expect(await socket.subscribe("a.b", { consumerGroup: "made-by-viewer" })).toMatchObject({
      status: "error",
      code: "PERMISSION_DENIED",
    });
    socket.close();
    const client = pubsubClient(server.url, viewer);
    const stream = async () => {
      for await (const _ of client.subscribe({
        pattern: "a.b",
        options: { consumerGroup: "made-by-viewer" },
      }))
        break;
    };
    expect((await stream().catch((error) => error)).code).toBe(Code.PermissionDenied);
    const got = await server.rpc("PubSubService", "GetConsumerGroup", { name: "made-by-viewer" });
    expect(got.status).toBe(404);
    await server.rpc("PubSubService", "CreateConsumerGroup", { name: "owned", pattern: "a.b" });
    const joined = joinGroup({ url: server.url, key: viewer }, { groupName: "owned", consumerId: "" });
    expect((await joined.over)?.code).toBe(Code.PermissionDenied);
    const acked = await client
      .ackEvent({ groupName: "owned", eventId: "evt_1", ackType: AckType.ACK })
      .catch((error) => error);
    expect(acked.code).toBe(Code.PermissionDenied);
    // Once it takes part, a role that is taken from it ends that, and nothing else.
    const developerKey = (
      await server.api("/api/v1/apikeys", { body: { name: "d", role_ids: ["role_developer"] } })
    ).body;
    const both = await openSocket(server.url, { key: developerKey.key });
    const plain = await both.subscribe("a.b");
    const shared = await both.subscribe("a.b", { consumerGroup: "made-by-developer" });
    expect([plain.status, shared.status]).toEqual(["ok", "ok"]);
    await server.api(`/api/v1/apikeys/${developerKey.id}/roles`, {
      method: "PUT",
      body: { role_ids: ["role_viewer"] },
    });
    await server.running.tick("edge.standing");
    const [ended] = await both.wait("subscription_error");
    expect(ended).toMatchObject({ subscriptionId: shared.subscriptionId, code: "PERMISSION_DENIED" });
    await emit(server.adminKey!, "a.b");
    const [event] = await both.wait("event");
    expect(event.subscriptionId).toBe(plain.subscriptionId);
    both.close();
  });
});
