import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code } from "@connectrpc/connect";
import { joinGroup } from "../support/group-member.ts";
import { type LivedTime, livedTime } from "../support/lived.ts";
import { longCalls, openLongCalls, prepareLongCalls } from "../support/long-calls.ts";
import { type NatsServer, startNats } from "../support/nats.ts";
import {
  type CallOptions,
  type Home,
  makeHome,
  startTestServer,
  type TestServer,
} from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

/** What is promised, counted from the answer to the change. */
const promisedMs = 1_000;

describe.each(["the bus up", "the bus down"])("what one node of two takes away, with %s,", (bus) => {
  let nats: NatsServer;
  let home: Home;
  let here: TestServer;
  let there: TestServer;
  let time: LivedTime;

  beforeAll(async () => {
    nats = await startNats();
    home = await makeHome("postgres");
    const node = (nodeId: string) =>
      startTestServer({
        engine: "postgres",
        home,
        nats: nats.url,
        settings: { nodeId, pollHoldMs: 30_000 },
      });
    here = await node("here");
    there = await node("there");
    for (const { api } of [here, there])
      await until(async () => (await api("/ready")).status === 200, { about: "the bus" });
    time = await livedTime(home.place.databaseUrl);
    await prepareLongCalls(here);
    if (bus === "the bus down") await nats.kill9();
  }, 120_000);
  afterAll(async () => {
    await time?.stop();
    await there?.stop();
    await here?.stop();
    await home?.remove();
    await nats?.stop();
  }, 120_000);

  const change = async (path: string, options: CallOptions = {}) => {
    const answer = await here.api(path, options);
    expect(answer.status, `${path}: ${JSON.stringify(answer.body)}`).toBeLessThan(300);
    return answer.body;
  };
  const newKey = (body: object = {}) =>
    change("/api/v1/apikeys", { body: { name: "k", role_ids: ["role_developer"], ...body } });
  const emit = async (by: string, event = "a.b", headers: Record<string, string> = {}) =>
    (await there.rpc("SvcService", "Emit", { event }, { key: by, headers })).status;

  /** Waits for it, and holds it against the promise: whoever looks later must find it so. */
  async function soon(about: string, condition: () => unknown): Promise<void> {
    const since = time.now();
    let inVainMs = 0;
    await until(
      async () => {
        const afterMs = time.now() - since;
        const isSo = await condition();
        if (!isSo) inVainMs = afterMs;
        return isSo;
      },
      { about, everyMs: 10 },
    );
    expect(inVainMs, about).toBeLessThan(promisedMs);
  }

  let opened = 0;
  /** All of a caller's at the other node: refused and ended in time. */
  async function endsThere(key: string, take: () => Promise<unknown>, status = 401): Promise<void> {
    await soon("a good call", async () => (await emit(key)) === 200);
    const calls = await openLongCalls(there, key, `w${opened++}`);
    await take();
    await Promise.all([
      soon(`a call's ${status}`, async () => (await emit(key)) === status),
      soon("the end of all that was open", () => calls.ended().length === longCalls.length),
    ]);
    expect(calls.socket.closed?.code).toBe(1008);
    calls.close();
  }

  test("a deleted key", async () => {
    const { id, key } = await newKey();
    await endsThere(key, () => change(`/api/v1/apikeys/${id}`, { method: "DELETE" }));
  }, 120_000);

  test("a rotated key", async () => {
    const { id, key } = await newKey();
    let next = "";
    await endsThere(key, async () => {
      next = (await change(`/api/v1/apikeys/${id}/rotate`, { method: "POST" })).key;
    });
    expect(await emit(next)).toBe(200);
  }, 120_000);

  test("a key whose time is over", async () => {
    // Time enough to open all, whatever comes between.
    const { key, expires } = await newKey({ expires_in: "6s" });
    await endsThere(key, () => until(() => Date.now() >= Date.parse(expires), { about: "its end" }));
  }, 120_000);

  test("a deleted role", async () => {
    const role = await change("/api/v1/roles", { body: { name: "doomed", base: "developer" } });
    const { key } = await newKey({ role_ids: [role.id] });
    await endsThere(key, () => change(`/api/v1/roles/${role.id}?force=true`, { method: "DELETE" }), 403);
  }, 120_000);

  test("roles that a key has no more", async () => {
    const { id, key } = await newKey();
    expect(await emit(key)).toBe(200);
    const calls = await openLongCalls(there, key, "roles");
    await change(`/api/v1/apikeys/${id}/roles`, { method: "PUT", body: { role_ids: ["role_viewer"] } });
    await Promise.all([
      soon("a call's 403", async () => (await emit(key)) === 403),
      soon("the end of work", () => calls.ended().length === 3),
    ]);
    expect(calls.ended()).toEqual(["worker", "poll", "invoke"]);
    calls.close();
  }, 120_000);

  test("what a changed policy denies, listening included", async () => {
    const role = await change("/api/v1/roles", { body: { name: "bound", base: "developer" } });
    const policy = await change("/api/v1/policies", {
      body: { name: "later", effect: "deny", actions: "runs:cancel", resources: "irn:svc:*:*:*:*:a*" },
    });
    await change(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
    const { key } = await newKey({ role_ids: [role.id] });
    await soon("a good call", async () => (await emit(key)) === 200);
    const calls = await openLongCalls(there, key, "policy");
    const patch = (body: object) => change(`/api/v1/policies/${policy.id}`, { method: "PATCH", body });
    await patch({ actions: "events:*", resources: "irn:svc:*:*:event:*:*a*" });
    await Promise.all([
      soon("a call's 403", async () => (await emit(key)) === 403),
      soon("the end of the subscription", () => calls.socket.of("subscription_error").length === 1),
      soon("the end of the stream", () => calls.stream.over()),
    ]);
    // Only what is denied: the socket itself, work and other events go on.
    expect(calls.ended()).toEqual(["stream"]);
    expect(await emit(key, "b")).toBe(200);
    expect((await calls.socket.subscribe("b.>")).status).toBe("ok");
    await patch({ actions: "functions:invoke", resources: "*" });
    await soon("the end of work", () => calls.ended().length === 4);
    expect(calls.socket.closed).toBeUndefined();
    calls.close();
  }, 120_000);

  test("what a group comes to read, from those who may not have it", async () => {
    const role = await change("/api/v1/roles", { body: { name: "unpaid", base: "developer" } });
    const policy = await change("/api/v1/policies", {
      body: {
        name: "no salaries",
        effect: "deny",
        actions: "events:subscribe",
        resources: "irn:svc:*:*:event:*:topic%3Asalaries.*",
      },
    });
    await change(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
    const { key } = await newKey({ role_ids: [role.id] });
    const groups = async (method: string, body: object) =>
      change(`/svc.v1.PubSubService/${method}`, { body });
    await groups("CreateConsumerGroup", { name: "moving", pattern: "topic:weather.now" });
    await soon("a good call", async () => (await emit(key)) === 200);
    const member = joinGroup({ url: there.url, key }, { groupName: "moving" });
    const admins = joinGroup({ url: there.url, key: there.adminKey }, { groupName: "moving" });
    const socket = await openSocket(there.url, { key });
    const options = { consumerGroup: "subscribed" };
    expect((await socket.subscribe("topic:weather.now", options)).status).toBe("ok");
    const seated = async (name: string) => (await groups("GetConsumerGroup", { name })).memberCount;
    await until(async () => (await seated("moving")) === 2 && (await seated("subscribed")) === 1, {
      about: "all members",
    });
    let ended: unknown;
    void member.over.then((error) => {
      ended = error;
    });
    for (const name of ["moving", "subscribed"])
      await groups("UpdateConsumerGroup", { group: { name, pattern: "topic:salaries.paid" } });
    await Promise.all([
      soon("the member's end", () => ended !== undefined),
      soon("the subscription's end", () => socket.of("subscription_error").length === 1),
    ]);
    expect(await member.over).toMatchObject({ code: Code.PermissionDenied });
    expect(socket.of("subscription_error")[0]).toMatchObject({ code: "PERMISSION_DENIED", retrying: false });
    expect(socket.closed).toBeUndefined();
    await groups("Publish", { topic: "salaries.paid", data: { n: 1 } });
    await admins.wait(1);
    expect(member.got).toEqual([]);
    await admins.leave();
    socket.close();
  }, 120_000);

  test("a deleted environment", async () => {
    const { id } = await change("/api/v1/environments", { body: { name: "doomed" } });
    const { key } = await newKey({ env_id: id });
    await prepareLongCalls(here, key);
    await endsThere(key, () => change(`/api/v1/environments/${id}`, { method: "DELETE" }));
  }, 120_000);

  test("a user's session: by a new password, and with the user", async () => {
    const password = "correct horse battery";
    const login = async (email: string) =>
      (await change("/api/v1/auth/login", { key: null, body: { email, password } })).token as string;
    const add = async (email: string) =>
      (await change("/api/v1/users", { body: { email, password, roles: ["developer"] } })).id as string;
    const changing = await add(`changing-${opened}@example.test`);
    const token = await login(`changing-${opened}@example.test`);
    await endsThere(token, () =>
      change(`/api/v1/users/${changing}/password`, {
        method: "PATCH",
        key: token,
        body: { current_password: password, new_password: "another horse battery" },
      }),
    );
    const leaving = await add("leaving@example.test");
    const last = await login("leaving@example.test");
    await endsThere(last, () => change(`/api/v1/users/${leaving}`, { method: "DELETE" }));
  }, 120_000);

  test("a session: by a logout, and with all that were made with a rotated key", async () => {
    const login = { email: "out@example.test", password: "correct horse battery" };
    await change("/api/v1/users", { body: { ...login, roles: ["developer"] } });
    const { token } = await change("/api/v1/auth/login", { key: null, body: login });
    await endsThere(token, () => change("/api/v1/auth/logout", { method: "POST", key: token }));
    const { id, key } = await newKey();
    const { token: desktop } = await change("/api/v1/auth/desktop-session", { method: "POST", key });
    await endsThere(desktop, () => change(`/api/v1/apikeys/${id}/rotate`, { method: "POST" }));
  }, 120_000);
});
