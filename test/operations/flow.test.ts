import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { flowEdgesMax } from "../../src/domain/record/flow/limits.ts";
import { column, sql } from "../../src/kit/sql.ts";
import { sharedNats } from "../support/nats.ts";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import { type Answer, engines, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const nothing = { edges: [], uncounted: 0, truncated: false, since: expect.any(String) };

describe.each(engines)("the map of flows on %s", (engine) => {
  let server: TestServer;
  let foreignKey: string;

  const write = () => server.running.tick("flow.write");
  const edgesOf = async (kind: string, key?: string): Promise<Answer["body"]> =>
    (await server.api(`/api/v1/flow/${kind}-edges`, key === undefined ? {} : { key })).body;
  const rpc = async (method: string, body: unknown, headers: Record<string, string> = {}) => {
    const [service, name] = method.includes("/") ? method.split("/") : ["SvcService", method];
    const answer = await server.rpc(service!, name!, body, { headers });
    expect(answer.status).toBe(200);
    return answer.body;
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
    const { keys, tenancy } = server.running.domain;
    const theirs = await tenancy.createEnvironment({ orgId: "org_other", name: "theirs" });
    const scope = { orgId: "org_other", environmentId: theirs.id, name: "test", roleIds: ["role_developer"] };
    foreignKey = (await keys.create(scope)).key;
  }, 120_000);
  afterAll(() => server.stop());

  test("has what runs emitted, invoked, published and waited for, and what was appended; others see nothing of it", async () => {
    await rpc("RegisterFunction", { id: "parent", triggers: [{ event: "asked" }] });
    await rpc("RegisterFunction", { id: "child" });
    const worker = pullWorker(server, "w-flow");
    await worker.register("parent");
    const begin = async (): Promise<Assignment> => {
      await rpc("Emit", { event: "asked", data: {} });
      return until(async () => (await worker.poll())[0], { about: "a job" });
    };
    const [waiting, invoking] = [await begin(), await begin()];
    const ofRun = { "X-Svc-Run-ID": waiting.run_id };
    for (const event of ["told", "told", "once"]) await rpc("Emit", { event, data: {} }, ofRun);
    await rpc("PubSubService/Publish", { topic: "news", data: {} }, ofRun);
    await rpc("PubSubService/Publish", { topic: "news", data: {} }, { "X-Svc-Run-ID": "run_none" });
    await rpc("EntityStreamService/AppendEvent", {
      ...{ entityId: "order-1", entityType: "order", eventName: "order.paid", data: {} },
    });
    await worker.leave(waiting, "wait", {
      type: "wait_for_event",
      event_filter: { event: "paid", timeout: "2h" },
    });
    await worker.leave(invoking, "call", { type: "invoke_function", function_id: "child", input: {} });
    await until(async () => (await rpc("ListRuns", { functionId: "child" })).runs?.length === 1, {
      about: "the child to be started",
    });
    await write();

    expect(await edgesOf("emit")).toEqual({
      ...nothing,
      edges: [
        { function_id: "parent", event: "told", count: 2 },
        { function_id: "parent", event: "once", count: 1 },
      ],
    });
    expect((await edgesOf("start")).edges).toEqual([
      { event_name: "asked", function_id: "parent", count: 2 },
    ]);
    expect((await edgesOf("invoke")).edges).toEqual([
      { parent_function_id: "parent", child_function_id: "child", count: 1 },
    ]);
    expect((await edgesOf("stream")).edges).toEqual([
      { entity_type: "order", event: "order.paid", count: 1 },
    ]);
    expect((await edgesOf("topic")).edges).toEqual([{ function_id: "parent", topic: "news", count: 1 }]);
    expect((await edgesOf("wait")).edges).toEqual([{ function_id: "parent", event_name: "paid", count: 1 }]);
    for (const kind of ["start", "emit", "invoke", "stream", "topic", "wait"])
      expect(await edgesOf(kind, foreignKey)).toEqual(nothing);
    expect((await server.api("/api/v1/flow/emit-edges?hours=0")).body.error).toContain("hours");

    const { body } = await server.api("/api/v1/overview");
    expect(body).toMatchObject({
      runs: { active: 3, active_capped: false, by_status: { paused: 2, waiting_for_capacity: 1 } },
      last_hour: { events: 7, runs_started: 3, runs_completed: 0 },
      functions: { active: 2 },
      workers: { connected: 1 },
      cluster: { node_id: server.running.nodeId, nodes: [{ id: server.running.nodeId }] },
    });
    expect(body.runs.oldest_waiting_ms).toBeGreaterThanOrEqual(0);
    const known = await until(async () => (await server.api("/api/v1/overview")).body.integrity, {
      about: "the first look at the invariants",
    });
    expect(known).toMatchObject({ balanced: true });
    const theirs = (await server.api("/api/v1/overview", { key: foreignKey })).body;
    expect(theirs).toMatchObject({
      runs: { active: 0, by_status: {} },
      last_hour: { events: 0, runs_started: 0 },
      functions: {},
    });
    expect(theirs.cluster.nodes).toEqual([{ status: "up" }]);

    await rpc("CancelRun", { id: waiting.run_id });
    await write();
    expect((await server.api("/api/v1/overview")).body.last_hour).toMatchObject({ runs_cancelled: 1 });

    const minutesOf = async (query = "", headers?: { key: string }) =>
      (await server.api(`/api/v1/overview/rates${query}`, headers)).body.minutes as Record<string, number>[];
    const sumOf = (minutes: readonly Record<string, number>[], field: string) =>
      minutes.reduce((sum, minute) => sum + minute[field]!, 0);
    const hour = await minutesOf();
    expect(hour).toHaveLength(60);
    expect(["events", "runs_started", "runs_cancelled"].map((field) => sumOf(hour, field))).toEqual([
      7, 3, 1,
    ]);
    const times = hour.map(({ at }) => Date.parse(String(at)));
    expect(
      times.every((at, place) => at % 60_000 === 0 && (place === 0 || at - times[place - 1]! === 60_000)),
    ).toBe(true);
    expect(Date.now() - times.at(-1)!).toBeLessThan(2 * 60_000);
    expect(await minutesOf("?minutes=1440")).toHaveLength(1_440);
    expect(sumOf(await minutesOf("", { key: foreignKey }), "events")).toBe(0);
    for (const wrong of ["0", "1441", "x"])
      expect((await server.api(`/api/v1/overview/rates?minutes=${wrong}`)).body.error).toContain("minutes");
  });

  test("leaves out edges with an event or a function that deny policies keep from the caller", async () => {
    const deny = async (name: string, action: string, resource: string) => {
      const role = (await server.api("/api/v1/roles", { body: { name, base: "viewer" } })).body;
      const policy = await server.api("/api/v1/policies", {
        body: {
          name,
          effect: "deny",
          actions: action,
          resources: `irn:svc:*:*:${resource}`,
          condition: "true",
        },
      });
      expect(policy.status).toBe(201);
      await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.body.id } });
      return (await server.api("/api/v1/apikeys", { body: { name, role_ids: [role.id] } })).body
        .key as string;
    };
    const blind = await deny("no-told", "events:subscribe", "event:*:told");
    expect((await edgesOf("emit", blind)).edges).toEqual([
      { function_id: "parent", event: "once", count: 1 },
    ]);
    expect((await edgesOf("stream", blind)).edges).toHaveLength(1);
    const childless = await deny("no-child", "functions:read", "function:*:child");
    expect((await edgesOf("invoke", childless)).edges).toEqual([]);
    expect((await edgesOf("wait", childless)).edges).toHaveLength(1);
  });

  test("knows a bounded number of edges an hour, and says what found no room", async () => {
    const { store } = server.running.domain;
    const hour = Date.now() - (Date.now() % 3_600_000);
    // Of the next hour too, which may begin before the counts are written.
    const known = [0, 3_600_000].flatMap((later) =>
      Array.from({ length: flowEdgesMax - 1 }, (_, at) => ({ hour: hour + later, name: `e${at}` })),
    );
    await store.write((session) =>
      session.run(sql`INSERT INTO flow_edges (environment_id, kind, hour, source, target, count)
        SELECT ${server.env}, 'stream', hour, 'order', name, 2 FROM ${session.seams.rowsFrom("v", {
          hour: column.bigint(known.map((one) => one.hour)),
          name: column.text(known.map((one) => one.name)),
        })} WHERE true ON CONFLICT DO NOTHING`),
    );
    for (const eventName of ["order.paid", "late.one", "late.two"])
      await rpc("EntityStreamService/AppendEvent", {
        ...{ entityId: "order-2", entityType: "order", eventName, expectedVersion: -1, data: {} },
      });
    await write();
    const map = await edgesOf("stream");
    expect(map.uncounted).toBe(2);
    expect(map.edges).toHaveLength(flowEdgesMax);
    expect(map.edges.find(({ event }: { event: string }) => event === "order.paid")).toMatchObject({
      count: 2,
    });
    await store.write(async (session) => {
      await session.run(
        sql`UPDATE flow_edges SET hour = hour - ${8 * 24 * 3_600_000} WHERE target <> 'order.paid'`,
      );
      await session.run(sql`UPDATE flow_minutes SET minute = minute - ${26 * 3_600_000}`);
    });
    const kept = () => store.all(sql`SELECT DISTINCT target FROM flow_edges WHERE kind = 'stream'`);
    await until(
      async () => {
        await server.running.tick("flow.forget");
        return (await kept()).length === 1;
      },
      { about: "what is too old to be forgotten" },
    );
    expect((await server.api("/api/v1/overview")).body.last_day.events).toBe(0);
  });
});

test("two nodes count together", async () => {
  const nats = await sharedNats();
  const home = await makeHome("postgres");
  const nodes: TestServer[] = [];
  try {
    for (let number = 0; number < 2; number++)
      nodes.push(await startTestServer({ engine: "postgres", nats: nats.url, home }));
    for (const node of nodes)
      await node.rpc("EntityStreamService", "AppendEvent", {
        ...{ entityId: node.running.nodeId, entityType: "order", eventName: "order.paid", data: {} },
      });
    for (const node of nodes) await node.running.tick("flow.write");
    for (const node of nodes) {
      expect((await node.api("/api/v1/flow/stream-edges")).body.edges).toEqual([
        { entity_type: "order", event: "order.paid", count: 2 },
      ]);
      const { body } = await node.api("/api/v1/overview");
      expect(body.last_hour.events).toBe(2);
      expect(body.cluster.nodes).toHaveLength(2);
    }
  } finally {
    for (const node of nodes) await node.stop();
    await home.remove();
  }
}, 120_000);
