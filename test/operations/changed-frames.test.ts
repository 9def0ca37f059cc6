import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { changedLists } from "../../src/domain/realtime/pubsub/changed-lists.ts";
import { platformSessionOf } from "../dashboard/visit.ts";
import { openFrames } from "../support/projections.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

const password = "correct horse battery staple";

describe.each(engines)("frames of changed lists on %s", (engine) => {
  let server: TestServer;
  /** A key of an environment beside the first, of the same org. */
  let beside: string;
  /** A key of the admin of another org. */
  let foreign: string;
  let platform: string;
  const open: TestSocket[] = [];
  beforeAll(async () => {
    // Reads leave rows too: a page of the audit that is read again must not be told of that.
    server = await startTestServer({ engine, settings: { auditReads: true } });
    const { id } = (await server.api("/api/v1/environments", { body: { name: "beside" } })).body;
    beside = (await newKey(["role_admin"], id)).key;
    platform = await platformSessionOf(server);
    const as = { key: platform, headers: { "x-svc-org": "org_default" } };
    const body = { org_name: "foreign", env_name: "production" };
    foreign = (await server.api("/api/v1/tenants/provision", { ...as, body })).body.api_key.key;
  }, 120_000);
  afterAll(async () => {
    for (const socket of open) socket.close();
    await server.stop();
  });

  async function listener(key: string, ...patterns: string[]): Promise<TestSocket> {
    const socket = await openSocket(server.url, { key });
    open.push(socket);
    for (const pattern of patterns)
      expect([pattern, await socket.subscribe(pattern)]).toMatchObject([pattern, { status: "ok" }]);
    return socket;
  }
  const topicsOf = (socket: TestSocket): string[] =>
    socket.of("event").map(({ topic }: { topic: string }) => topic);
  const heard = (socket: TestSocket, topic: string, more = 1) =>
    until(() => topicsOf(socket).filter((one) => one === topic)[more - 1], {
      about: `${topic}, ${more} times`,
    });
  const newKey = (roleIds: string[], environmentId = server.env) =>
    server.running.domain.keys.create({
      ...{ orgId: "org_default", environmentId, name: "test", roleIds },
    });
  const refusal = async (key: string, pattern: string) => {
    const socket = await listener(key);
    const { status, code } = await socket.subscribe(pattern);
    return [pattern, status, code];
  };

  /** What changes each list of an environment or its org. */
  const changes: Record<keyof typeof changedLists.changed, () => Promise<{ status: number }>> = {
    projections: () =>
      server.rpc("ProjectionService", "RegisterProjection", { name: "sums", events: ["order.placed"] }),
    kv: () => server.api("/api/v1/kv/buckets", { body: { name: "carts" } }),
    topics: () => server.rpc("PubSubService", "Publish", { topic: "prices", data: { sku: 1 } }),
    tools: () =>
      server.rpc("AgentToolsService", "RegisterTool", {
        ...{ agentName: "planner", callbackUrl: "http://127.0.0.1:9/tools" },
        tools: [
          {
            ...{ name: "plan", description: "Plans", requiredScopes: [], timeoutMs: 1_000 },
            inputSchemaJson: "{}",
          },
        ],
      }),
    alerts: () =>
      server.rpc("AlertService", "PutAlertRule", {
        ...{ name: "lost", condition: "dead_letter" },
        targets: [{ type: "slack", url: "http://127.0.0.1:9/alerts" }],
      }),
    repairs: () =>
      server.api("/api/v1/repairs", {
        body: { action: "cancel", reason: "nothing to do", filter: { statuses: ["failed"] } },
      }),
    quotas: () =>
      server.api(`/api/v1/environments/${server.env}/quotas`, {
        method: "PUT",
        body: { concurrent_runs: 7 },
      }),
    retention: () => server.api("/api/v1/retention", { method: "PUT", body: { days: 400 } }),
    users: () =>
      server.api("/api/v1/users", { body: { email: "ada@example.test", password, roles: ["viewer"] } }),
    roles: () => server.api("/api/v1/roles", { body: { name: "teller" } }),
    keys: () => server.api("/api/v1/apikeys", { body: { name: "till", role_ids: ["role_viewer"] } }),
    sessions: () =>
      server.api("/api/v1/auth/login", { key: null, body: { email: "ada@example.test", password } }),
    policies: () =>
      server.api("/api/v1/policies", {
        body: { name: "none", effect: "deny", actions: "events:emit", resources: "irn:svc:*:*:event:*:x" },
      }),
    audit: () => server.api("/api/v1/secrets", { body: { name: "OF_AUDIT", value: "hidden" } }),
  };

  test("each list is told of, without what stands in it, and only where it is", async () => {
    const own = await listener(server.adminKey, "system.changed.>");
    const near = await listener(beside, "system.changed.*");
    const far = await listener(foreign, "system.changed.>");
    const wide = await listener(server.adminKey, "system.>");
    for (const [list, change] of Object.entries(changes)) {
      const before = topicsOf(own).filter((one) => one === `system.changed.${list}`).length;
      const { status } = await change();
      expect([list, status < 300]).toEqual([list, true]);
      if (before === 0) await heard(own, `system.changed.${list}`);
    }
    // Its start was told by the call, its end by the node that worked on it.
    await heard(own, "system.changed.repairs", 2);
    for (const { topic, data } of own.of("event")) {
      expect(Object.keys(data).sort()).toEqual(["list", "timestamp"]);
      expect(topic).toBe(`system.changed.${data.list}`);
    }
    // What the org has is told in each of its environments; what the first environment has, in that alone.
    for (const list of ["users", "roles", "keys", "sessions", "policies", "audit"])
      await heard(near, `system.changed.${list}`);
    const ofEnvironment = ["projections", "kv", "topics", "tools", "repairs", "quotas", "retention"];
    expect(topicsOf(near).filter((topic) => ofEnvironment.includes(topic.split(".")[2]!))).toEqual([]);
    // Frames of an event of the other org come: nothing before them was for it.
    const last = await listener(foreign, "system.changed.topics");
    await server.rpc("PubSubService", "Publish", { topic: "prices", data: {} }, { key: foreign });
    await heard(last, "system.changed.topics");
    await heard(far, "system.changed.topics");
    expect(topicsOf(far).filter((topic) => !/topics|audit/.test(topic))).toEqual([]);
    expect(topicsOf(wide).filter((topic) => topic.startsWith("system.changed."))).toEqual([]);
  });

  test("a reader needs the action of the list, and no policy that denies the whole of it", async () => {
    const { key: viewer } = await newKey(["role_viewer"]);
    const admins = ["users", "roles", "keys", "sessions", "policies", "audit", "*", ">"];
    for (const list of admins) {
      const pattern = `system.changed.${list}`;
      expect(await refusal(viewer, pattern)).toEqual([pattern, "error", "PERMISSION_DENIED"]);
    }
    const socket = await listener(viewer, "system.changed.projections", "system.changed.kv");
    const role = (await server.api("/api/v1/roles", { body: { name: "folder", base: "viewer" } })).body;
    const deny = { effect: "deny", actions: "projections:read", resources: "irn:svc:*:*:projection:*:*" };
    const policy = (await server.api("/api/v1/policies", { body: { name: "no folds", ...deny } })).body;
    const { key: denied, id } = await newKey(["role_viewer", role.id]);
    const bound = await listener(denied, "system.changed.projections");
    await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: policy.id } });
    const [ended] = await bound.wait("subscription_error");
    expect(ended).toMatchObject({ code: "PERMISSION_DENIED", retrying: false });
    expect(await refusal(denied, "system.changed.projections")).toContain("PERMISSION_DENIED");
    expect(await refusal(denied, "system.changed.kv")).toContain("ok");
    await server.api(`/api/v1/apikeys/${id}`, { method: "DELETE" });
    await server.api("/api/v1/kv/buckets", { body: { name: "other" } });
    await heard(socket, "system.changed.kv");
  });

  test("the audit is not told of who reads it", async () => {
    await server.api("/api/v1/kv/buckets", { body: { name: "paces" } });
    const socket = await listener(server.adminKey, "system.changed.audit", "system.changed.kv");
    const count = (list: string) =>
      topicsOf(socket).filter((topic) => topic === `system.changed.${list}`).length;
    /** Until whatever was noted so far has been told: the second of two frames ends a pace that began now. */
    const settled = async () => {
      await server.running.tick("audit.flush");
      const before = count("kv");
      for (const more of [1, 2]) {
        await server.api(`/api/v1/kv/buckets/paces/keys/k${more}`, { method: "PUT", body: {} });
        await heard(socket, "system.changed.kv", before + more);
      }
    };
    await settled();
    await settled();
    const before = count("audit");
    for (let at = 0; at < 3; at++) {
      const { status } = await server.rpc("AuditService", "GetAuthAuditTrail", { limit: 1 });
      expect(status).toBe(200);
    }
    await settled();
    expect(count("audit")).toBe(before);
    await server.api("/api/v1/secrets", { body: { name: "OF_AUDIT_AGAIN", value: "hidden" } });
    await heard(socket, "system.changed.audit", before + 1);
  });

  test("the platform's are for its own credentials at home, which have no others", async () => {
    const lists = Object.keys(changedLists.platform);
    const home = await listener(platform, "system.platform.>");
    const as = { key: platform };
    const user = { email: "grace@example.test", name: "Grace", password, role_ids: ["role_platform_viewer"] };
    await server.api("/api/v1/platform/users", { ...as, body: user });
    await server.api("/api/v1/platform/roles", { ...as, body: { name: "watcher" } });
    const policy = {
      name: "none",
      effect: "deny",
      actions: "platform:tenants:manage",
      resources: "irn:svc:*:*:tenants:*:x",
    };
    await server.api("/api/v1/platform/policies", { ...as, body: policy });
    await server.api("/api/v1/apikeys", {
      ...as,
      body: { name: "of the platform", platform: true, role_ids: ["role_platform_viewer"] },
    });
    await server.api("/api/v1/platform/tenants", { ...as, body: { name: "acme" } });
    await server.api("/api/v1/platform/auth/login", { key: null, body: { email: user.email, password } });
    await server.rpc("SvcService", "RegisterFunction", { id: "count", triggers: [{ event: "counted" }] });
    await server.rpc("SvcService", "Emit", { event: "counted" });
    for (const list of lists) await heard(home, `system.platform.${list}`);
    for (const pattern of [
      "events:>",
      "system.>",
      "system.run.>",
      "system.changed.topics",
      "system.config.>",
    ])
      expect(await refusal(platform, pattern)).toEqual([pattern, "error", "PERMISSION_DENIED"]);
    for (const list of lists) {
      const pattern = `system.platform.${list}`;
      expect(await refusal(server.adminKey, pattern)).toEqual([pattern, "error", "PERMISSION_DENIED"]);
    }
    const inside = await openSocket(server.url, {
      ...{ key: platform, query: `?org=org_default&env=${server.env}` },
    });
    open.push(inside);
    expect(await inside.subscribe("system.changed.users")).toMatchObject({ status: "ok" });
    expect(await inside.subscribe("system.platform.users")).toMatchObject({ code: "PERMISSION_DENIED" });
    const told = topicsOf(home).filter((topic) => topic === "system.platform.audit").length;
    const inOrg = { key: platform, headers: { "x-svc-org": "org_default" } };
    await server.api("/api/v1/kv/buckets", { ...inOrg, body: { name: "of-the-platform" } });
    await heard(home, "system.platform.audit", told + 1);
    const url = `${server.url}/svc.v1.PubSubService/Subscribe`;
    const ofEvents = await openFrames(url, { pattern: "events:>" }, platform);
    await ofEvents.over();
    expect(ofEvents.end()?.error?.code).toBe("permission_denied");
    // A stream that asks where it begins is told that its log has no place: the platform has no log.
    const ofTenants = await openFrames(
      url,
      { pattern: "system.platform.tenants", options: { withStart: true } },
      platform,
    );
    await ofTenants.wait(1);
    ofTenants.cut();
    expect(topicsOf(home).filter((topic) => !topic.startsWith("system.platform."))).toEqual([]);
  });

  test("many changes are few frames, and none are made while nobody reads them", async () => {
    const socket = await listener(server.adminKey, "system.changed.kv");
    await server.api("/api/v1/kv/buckets", { body: { name: "burst" } });
    await Promise.all(
      Array.from({ length: 50 }, (_, n) =>
        server.api(`/api/v1/kv/buckets/burst/keys/k${n}`, { method: "PUT", body: { n } }),
      ),
    );
    await heard(socket, "system.changed.kv");
    expect(topicsOf(socket).length).toBeLessThan(25);
    const { frames } = server.running.domain;
    expect(frames.wants("changes")).toBe(true);
    for (const one of open.splice(0)) one.close();
    await until(() => !frames.wants("changes"), { about: "the readers to be gone" });
    await server.api("/api/v1/kv/buckets/burst/keys/last", { method: "PUT", body: {} });
  });
});
