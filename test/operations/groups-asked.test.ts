import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code } from "@connectrpc/connect";
import { joinGroup, type TestMember } from "../support/group-member.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { openSubscriber, type StreamSubscriber } from "../support/stream-subscriber.ts";
import { transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

describe.each(engines)("a group that comes to read something else, on %s", (engine) => {
  let server: TestServer;
  /** May listen to everything but salaries. */
  let bound: string;
  let policyId: string;
  const members: (TestMember | TestSocket | StreamSubscriber)[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const role = await made("/api/v1/roles", { name: "bound", base: "developer" });
    const policy = await made("/api/v1/policies", {
      name: "no salaries",
      effect: "deny",
      actions: "events:subscribe, events:emit",
      resources: "irn:svc:*:*:event:*:topic%3Asalaries.*",
    });
    policyId = policy.id;
    await made(`/api/v1/roles/${role.id}/policies`, { policy_id: policy.id });
    bound = (await made("/api/v1/apikeys", { name: "bound", role_ids: [role.id] })).key;
  }, 120_000);
  afterAll(async () => {
    for (const member of members)
      if ("leave" in member) await member.leave();
      else "cut" in member ? member.cut() : member.close();
    await server.stop();
  });

  const made = async (path: string, body: object) => {
    const answer = await server.api(path, { body });
    expect(answer.status, `${path} ${JSON.stringify(answer.body)}`).toBeLessThan(300);
    return answer.body;
  };
  const call = (method: string, body: object, options = {}) =>
    server.rpc("PubSubService", method, body, options);
  const create = async (name: string, settings: object) =>
    expect((await call("CreateConsumerGroup", { name, ...settings })).status).toBe(200);
  const update = (name: string, group: object, options = {}) =>
    call("UpdateConsumerGroup", { group: { name, ...group } }, options);
  const get = async (name: string) => (await call("GetConsumerGroup", { name })).body;
  const publish = async (topic: string, numbers: readonly number[]) =>
    expect(
      (await call("PublishBatch", { messages: numbers.map((n) => ({ topic, data: { n } })) })).status,
    ).toBe(200);
  const joinedBy = (name: string, count: number) =>
    until(async () => ((await get(name)).memberCount ?? 0) === count, {
      about: `${count} members of ${name}`,
      deadlineMs: 10_000,
    });
  function join(groupName: string, key: string): TestMember {
    const member = joinGroup({ url: server.url, key }, { groupName, consumerId: key.slice(-6) });
    members.push(member);
    return member;
  }

  test("what is wrong with a call is said in the same words whether policies are asked or not", async () => {
    for (const key of [bound, server.adminKey]) {
      const refused = await call("CreateConsumerGroup", { name: "", pattern: "a b" }, { key });
      expect(refused.body).toEqual({ code: "invalid_argument", message: "name: must not be empty" });
    }
  });

  test("is changed and deleted by nobody who may not read what it reads", async () => {
    await create("paid", { pattern: "topic:salaries.now" });
    const changes = [
      update("paid", { maxInflight: 7 }, { key: bound }),
      update("paid", { pattern: "topic:weather.now" }, { key: bound }),
      call("DeleteConsumerGroup", { name: "paid" }, { key: bound }),
    ];
    for (const { body } of await Promise.all(changes)) expect(body.code).toBe("permission_denied");
    const missing = await call("DeleteConsumerGroup", { name: "nowhere" }, { key: bound });
    expect(missing.body.code).toBe("not_found");
    expect((await get("paid")).pattern).toBe("topic:salaries.now");
    expect((await call("DeleteConsumerGroup", { name: "paid" })).status).toBe(200);
  });

  test("sends away whom a policy denies that, and the others have all of it", async () => {
    await create("moving", { pattern: "topic:weather.now" });
    const denied = join("moving", bound);
    const allowed = join("moving", server.adminKey);
    await joinedBy("moving", 2);
    await publish("weather.now", [1, 2, 3, 4]);
    await until(() => denied.got.length + allowed.got.length === 4, { about: "the weather" });
    const before = denied.got.length;
    expect((await update("moving", { pattern: "topic:salaries.paid" })).status).toBe(200);
    await publish("salaries.paid", [5, 6, 7, 8, 9]);
    expect((await denied.over)?.code).toBe(Code.PermissionDenied);
    await until(() => [5, 6, 7, 8, 9].every((n) => allowed.numbers().includes(n)), {
      about: "all salaries at the other member",
      deadlineMs: 10_000,
    });
    expect(denied.got.length).toBe(before);
    await joinedBy("moving", 1);
    // And whom it was that it was refused is in the audit.
    await until(
      async () => {
        await server.running.tick("audit.flush");
        const { body } = await server.rpc("AuditService", "GetAuthAuditTrail", { limit: 50 });
        return body.events.some(
          ({ payload }: { payload: Record<string, string> }) =>
            payload.operation === "groups.join" && payload.decision === "denied" && payload.rule === policyId,
        );
      },
      { about: "the refusal's row", deadlineMs: 5_000 },
    );
  }, 120_000);

  test("asks those who came by a subscription, over both transports", async () => {
    const socket = await openSocket(server.url, { key: bound });
    members.push(socket);
    const options = { consumerGroup: "subscribed" };
    const asked = await socket.subscribe("topic:weather.now", options);
    const neighbour = await socket.subscribe("topic:weather.now");
    expect([asked.status, neighbour.status]).toEqual(["ok", "ok"]);
    const stream = openSubscriber(transportOf("connect json", { url: server.url, grpcUrl: undefined }), {
      key: bound,
      pattern: "topic:weather.now",
      group: "subscribed",
    });
    members.push(stream);
    await joinedBy("subscribed", 2);
    // What nobody forbids is followed.
    await update("subscribed", { pattern: "topic:weather.>" });
    await publish("weather.then", [1, 2, 3, 4]);
    const heard = () => socket.of("event").length + stream.heard.length;
    await until(() => heard() === 4, { about: "the weather", deadlineMs: 10_000 });
    await update("subscribed", { pattern: "topic:salaries.paid" });
    await publish("salaries.paid", [5, 6, 7]);
    const [told] = await socket.wait("subscription_error");
    expect(told).toMatchObject({
      subscriptionId: asked.subscriptionId,
      code: "PERMISSION_DENIED",
      retrying: false,
    });
    await until(() => stream.over(), { about: "the stream's end", deadlineMs: 10_000 });
    expect(stream.over()?.code).toBe(Code.PermissionDenied);
    await joinedBy("subscribed", 0);
    // The connection goes on, with all that is not denied.
    await publish("weather.now", [8]);
    await until(() => socket.of("event").some(({ data }) => data.n === 8), { about: "the neighbour" });
    expect(socket.closed).toBeUndefined();
    expect(JSON.stringify([socket.texts, stream.heard.map(({ topic }) => topic)])).not.toContain("salaries");
    // Nothing of it is lost for those who may have it.
    const allowed = join("subscribed", server.adminKey);
    await allowed.wait(3);
    expect(allowed.numbers().sort()).toEqual([5, 6, 7]);
  }, 120_000);

  test("what is denied later is what the group reads then, not what it read when they joined", async () => {
    const role = await made("/api/v1/roles", { name: "later", base: "developer" });
    const { key } = await made("/api/v1/apikeys", { name: "later", role_ids: [role.id] });
    await create("drifting", { pattern: "topic:here.now" });
    await create("staying", { pattern: "topic:here.now" });
    const drifting = join("drifting", key);
    const staying = join("staying", key);
    const socket = await openSocket(server.url, { key });
    members.push(socket);
    expect((await socket.subscribe("topic:here.now", { consumerGroup: "followed" })).status).toBe("ok");
    await Promise.all([joinedBy("drifting", 1), joinedBy("staying", 1)]);
    for (const name of ["drifting", "followed"]) await update(name, { pattern: "topic:there.now" });
    await publish("there.now", [1]);
    await drifting.wait(1);
    await socket.wait("event");
    const policy = await made("/api/v1/policies", {
      name: "not there",
      effect: "deny",
      actions: "events:subscribe",
      resources: "irn:svc:*:*:event:*:topic%3Athere.*",
    });
    await made(`/api/v1/roles/${role.id}/policies`, { policy_id: policy.id });
    expect((await drifting.over)?.code).toBe(Code.PermissionDenied);
    const [told] = await socket.wait("subscription_error");
    expect(told.code).toBe("PERMISSION_DENIED");
    await publish("here.now", [2]);
    await staying.wait(1);
    await joinedBy("staying", 1);
  }, 120_000);

  test("who may not have it cannot make a group read it, and nothing has changed", async () => {
    await create("guarded", { pattern: "topic:weather.now" });
    const member = join("guarded", bound);
    await joinedBy("guarded", 1);
    const was = await get("guarded");
    for (const body of [
      { group: { name: "guarded", pattern: "topic:salaries.paid" } },
      { group: { name: "guarded", pattern: "topic:salaries.paid" }, updateMask: "pattern" },
      {
        group: { name: "guarded", pattern: "topic:salaries.paid", filterExpr: "true" },
        updateMask: "pattern,filterExpr",
      },
    ])
      expect((await call("UpdateConsumerGroup", body, { key: bound })).status).toBe(403);
    expect(await get("guarded")).toEqual(was);
    expect(
      (await call("CreateConsumerGroup", { name: "own", pattern: "topic:salaries.>" }, { key: bound }))
        .status,
    ).toBe(403);
    // Another filter is none of a policy's business, and ends nobody.
    expect((await update("guarded", { filterExpr: "data.n > 1" }, { key: bound })).status).toBe(200);
    await publish("weather.now", [1, 2]);
    await member.wait(1);
    expect(member.numbers()).toEqual([2]);
  }, 120_000);
});
