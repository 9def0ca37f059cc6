import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Code } from "@connectrpc/connect";
import { sql } from "../../src/kit/sql.ts";
import { type LongCalls, longCalls, openLongCalls, prepareLongCalls } from "../support/long-calls.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { openSubscriber } from "../support/stream-subscriber.ts";
import { transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

describe.each(engines)("what goes on for long, on %s", (engine) => {
  let server: TestServer;

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 120_000 } });
    await prepareLongCalls(server);
  }, 120_000);
  afterAll(() => server.stop());

  const newKey = (roleId = "role_developer", expiresAt?: number) =>
    server.running.domain.keys.create({
      orgId: "org_default",
      environmentId: "env_default",
      name: "test",
      roleIds: [roleId],
      ...(expiresAt !== undefined && { expiresAt }),
    });
  const json = () => transportOf("connect json", { url: server.url, grpcUrl: undefined });
  const look = () => server.running.tick("edge.standing");

  const ended = (calls: LongCalls) =>
    until(() => calls.ended().length === longCalls.length, { about: "the end of all" });

  test("ends with its key, and nobody else's does", async () => {
    const { id, key } = await newKey();
    const mine = await openLongCalls(server, key, "mine");
    const other = await openLongCalls(server, server.adminKey, "other");
    expect((await server.api(`/api/v1/apikeys/${id}`, { method: "DELETE" })).status).toBe(204);
    await look();
    await ended(mine);
    expect(mine.socket.closed?.code).toBe(1008);
    expect(mine.stream.over()?.code).toBe(Code.Unauthenticated);
    expect(mine.worker.over()?.code).toBe(Code.Unauthenticated);
    expect([mine.poll.status, mine.invoke.status]).toEqual([401, 401]);
    expect((await other.socket.subscribe("b.>")).status).toBe("ok");
    expect(other.ended()).toEqual([]);
    other.close();
  }, 120_000);

  test("ends when its key expires", async () => {
    const expiring = await newKey("role_developer", Date.now() + 3_600_000);
    const mine = await openLongCalls(server, expiring.key, "expires");
    await server.running.domain.store.write((session) =>
      session.run(sql`UPDATE api_keys SET expires_at = ${Date.now() + 700} WHERE id = ${expiring.id}`),
    );
    await until(
      async () => {
        await look();
        return mine.socket.closed;
      },
      { about: "the key to expire", everyMs: 20 },
    );
    await ended(mine);
    expect(mine.stream.over()?.rawMessage).toBe("API key expired");
    expect(mine.poll.status).toBe(401);
  }, 120_000);

  test("ends when the roles of its key allow it no longer", async () => {
    const { id, key } = await newKey();
    const mine = await openLongCalls(server, key, "roles");
    const put = { method: "PUT", body: { role_ids: ["role_viewer"] } };
    expect((await server.api(`/api/v1/apikeys/${id}/roles`, put)).status).toBe(200);
    await look();
    // A viewer may listen, and may not work.
    await until(() => mine.ended().length === 3, { about: "the end of work" });
    expect(mine.worker.over()?.code).toBe(Code.PermissionDenied);
    expect([mine.poll.status, mine.invoke.status]).toEqual([403, 403]);
    expect(mine.stream.over()).toBeUndefined();
    expect((await mine.socket.subscribe("b.>")).status).toBe("ok");
    mine.close();
  }, 120_000);

  test("ends with its environment, and hears of that first, however late the frame comes", async () => {
    const { store, keys, frames } = server.running.domain;
    const { id } = (await server.api("/api/v1/environments", { body: { name: "going" } })).body;
    const { key } = (await server.api("/api/v1/apikeys", { body: { name: "going", env_id: id } })).body;
    const socket = await openSocket(server.url, { key });
    await socket.subscribe("system.environment.>");
    // As another node commits it, whose frame and hint are still to come.
    const [row] = await store.all<{ key_hash: string }>(
      sql`SELECT key_hash FROM api_keys WHERE environment_id = ${id}`,
    );
    await store.write(async (session) => {
      await session.run(sql`DELETE FROM api_keys WHERE environment_id = ${id}`);
      await session.run(sql`DELETE FROM heads WHERE environment_id = ${id}`);
      await session.run(sql`DELETE FROM environments WHERE id = ${id}`);
      await session.run(sql`INSERT INTO deleted_environments (id, org_id, project_id, name, deleted_at)
        VALUES (${id}, 'org_default', NULL, 'going', ${Date.now()})`);
    });
    keys.forget(row!.key_hash);
    for (const _twice of [1, 2]) await look();
    const timestamp = new Date().toISOString();
    const topic = `system.environment.${id}.deleted` as const;
    frames.publish(id, topic, { id, name: "going", projectId: null, timestamp });
    await socket.wait("event");
    expect(socket.of("event").map((frame) => frame.topic)).toEqual([topic]);
    await socket.whenClosed();
  }, 60_000);

  test("ends where a later policy denies it: that subscription, not its neighbour", async () => {
    const { key } = await newKey("role_viewer");
    const socket = await openSocket(server.url, { key });
    const denied = await socket.subscribe("salary.paid");
    const allowed = await socket.subscribe("wage.paid");
    await server.rpc("SvcService", "Emit", { event: "salary.paid" });
    const streams = ["salary.paid", "a.>"].map((pattern) =>
      openSubscriber(json(), { key, pattern, replay: 1 }),
    );
    await until(() => streams.every(({ heard }) => heard.length > 0), { about: "both streams" });
    await socket.wait("event");
    const { body: policy } = await server.api("/api/v1/policies", {
      body: {
        name: "no salaries",
        effect: "deny",
        actions: "events:subscribe",
        resources: "irn:svc:*:*:event:*:events%3Asalary.*",
      },
    });
    const assign = { body: { policy_id: policy.id } };
    expect((await server.api("/api/v1/roles/role_viewer/policies", assign)).status).toBeLessThan(300);
    await look();
    const [told] = await socket.wait("subscription_error");
    expect(told).toMatchObject({
      subscriptionId: denied.subscriptionId,
      code: "PERMISSION_DENIED",
      retrying: false,
    });
    await until(() => streams[0]!.over(), { about: "the denied stream's end" });
    expect(streams[0]!.over()!.code).toBe(Code.PermissionDenied);
    await server.rpc("SvcService", "Emit", { event: "salary.paid" });
    await server.rpc("SvcService", "Emit", { event: "wage.paid" });
    await socket.wait("event", 2);
    expect(socket.of("event").map(({ topic }) => topic)).toEqual(["events:salary.paid", "events:wage.paid"]);
    expect(socket.of("event")[1].subscriptionId).toBe(allowed.subscriptionId);
    expect(streams[1]!.over()).toBeUndefined();
    streams[1]!.cut();
    socket.close();
    // The denial at the stream's end is in the audit, by the policy's id.
    await server.running.tick("audit.flush");
    const trail = await server.rpc("AuditService", "GetAuthAuditTrail", { limit: 50 });
    expect(JSON.stringify(trail.body)).toContain(policy.id);
  }, 120_000);
});
