import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { bearerProtocol, openSocket } from "../support/sockets.ts";

describe.each(engines)("who may open a socket, on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const newKey = (roleIds = ["role_viewer"]) =>
    server.running.domain.keys.create({
      orgId: "org_default",
      environmentId: "env_default",
      name: "test",
      roleIds,
    });
  /** The upgrade as plain HTTP, for its status. */
  const ask = (headers: Record<string, string>, query = "") =>
    fetch(`${server.url}/ws${query}`, {
      headers: {
        connection: "Upgrade",
        upgrade: "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
        ...headers,
      },
    });

  test("by subprotocol, query or header; only svc.v1 is answered, and only when it was offered", async () => {
    const key = server.adminKey;
    const forms = [
      { protocols: ["svc.v1", bearerProtocol(key)], speaks: "svc.v1" },
      { protocols: [bearerProtocol(key), "svc.v1"], query: "?env=env_default", speaks: "svc.v1" },
      { query: `?env=env_default&token=${key}`, speaks: "" },
      { query: `?token=${key}`, protocols: ["svc.v1"], speaks: "svc.v1" },
      { headers: { authorization: `Bearer ${key}` }, speaks: "" },
      { headers: { authorization: `Bearer ${key}` }, query: "?env=default", speaks: "" },
    ];
    for (const { speaks, ...form } of forms) {
      const socket = await openSocket(server.url, form);
      expect(socket.raw.protocol).toBe(speaks);
      expect((await socket.subscribe("a.>")).status).toBe("ok");
      // Clients from before subprotocols wait for another word.
      expect(socket.of("subscribed")).toHaveLength(speaks === "" ? 1 : 0);
      socket.close();
    }
  });

  test("bad credentials are refused before the upgrade", async () => {
    const { key } = await newKey();
    const wrong = `ifkey_${"0".repeat(32)}`;
    const cases: [number, Record<string, string>, string?][] = [
      [401, {}],
      [401, { authorization: `Bearer ${wrong}` }],
      [401, {}, `?token=${wrong}`],
      [401, { "sec-websocket-protocol": `svc.v1, ${bearerProtocol(wrong)}` }],
      [401, { "sec-websocket-protocol": "svc.v1, svc.auth.bearer.%%%" }],
      [400, { authorization: `Bearer ${key}` }, "?env=env_other"],
      [400, { authorization: `Bearer ${key}`, "sec-websocket-protocol": "other.v1" }],
    ];
    for (const [status, headers, query] of cases) {
      const answer = await ask(headers, query);
      expect([answer.status, headers, query]).toEqual([status, headers, query]);
      expect(await answer.text()).not.toContain(wrong);
    }
    const { key: none } = await newKey(["role_none"]);
    expect((await ask({ authorization: `Bearer ${none}` })).status).toBe(403);
    // A session cookie that another site's page sends along is not even looked at.
    const cookie = { cookie: "svc_dashboard_token=a.b.c" };
    const { host } = new URL(server.url);
    expect((await ask({ ...cookie, origin: "https://elsewhere.example" })).status).toBe(403);
    expect((await ask({ ...cookie, origin: `http://${host}` })).status).toBe(401);
    const plain = await fetch(`${server.url}/ws`, { headers: { authorization: `Bearer ${key}` } });
    expect(plain.status).toBe(426);
  });

  test("a key that is revoked closes its sockets, and nobody else's", async () => {
    const { id, key } = await newKey();
    const mine = await openSocket(server.url, { key });
    const other = await openSocket(server.url, { key: server.adminKey });
    await mine.subscribe("a.>");
    expect((await server.api(`/api/v1/apikeys/${id}`, { method: "DELETE" })).status).toBe(204);
    await server.running.tick("edge.standing");
    expect((await mine.whenClosed()).code).toBe(1008);
    expect((await other.subscribe("a.>")).status).toBe("ok");
    other.close();
  });

  test("a platform credential names the org in the query, and nobody else can", async () => {
    const root = { email: "root@example.test", password: "correct horse battery" };
    await server.api("/api/v1/platform/bootstrap", { body: { ...root, name: "Root" } });
    const login = await server.api("/api/v1/platform/auth/login", { body: root, key: null });
    const platform: string = login.body.token;
    const headers = { "x-svc-org": "org_default" };
    const body = { org_name: "Acme" };
    const made = await server.api("/api/v1/tenants/provision", { key: platform, headers, body });
    const { org, api_key } = made.body;
    const socket = await openSocket(server.url, { key: platform, query: `?org=${org.id}` });
    expect((await socket.subscribe("acme.*")).status).toBe("ok");
    const own = await openSocket(server.url, { key: server.adminKey, query: `?org=${org.id}` });
    expect((await own.subscribe("acme.*")).status).toBe("ok");
    await server.rpc("SvcService", "Emit", { event: "acme.sold" }, { key: api_key.key });
    expect((await socket.wait("event"))[0].topic).toBe("events:acme.sold");
    await server.rpc("SvcService", "Emit", { event: "acme.elsewhere" });
    expect((await own.wait("event"))[0].topic).toBe("events:acme.elsewhere");
    expect(own.of("event")).toHaveLength(1);
    await server.running.tick("edge.standing");
    expect((await socket.subscribe("acme.>")).status).toBe("ok");

    const authorization = `Bearer ${platform}`;
    const there = { "x-svc-org": org.id, authorization };
    for (const [byHeader, query] of [
      [{ authorization, "x-svc-org": "org_gone" }, "?org=org_gone"],
      [{ authorization, "x-svc-org": "org_platform" }, "?org=org_platform"],
      [{ ...there }, `?org=${org.id}&env=env_default`],
    ] as const) {
      const env = query.replace(/^.*&/, "?");
      const [one, other] = [await ask(byHeader, env), await ask({ authorization }, query)];
      expect(one.status).toBeGreaterThanOrEqual(400);
      expect([query, other.status, await other.text()]).toEqual([query, one.status, await one.text()]);
    }
    // Without an org it is let in to hear of the platform, and of no tenant.
    const home = await openSocket(server.url, { key: platform });
    for (const pattern of [
      "acme.*",
      "entity:>",
      "topic:>",
      "system.>",
      "system.config.>",
      "system.changed.users",
    ])
      expect([pattern, await home.subscribe(pattern)]).toMatchObject([
        pattern,
        { code: "PERMISSION_DENIED" },
      ]);
    expect((await home.subscribe("system.platform.tenants")).status).toBe("ok");
    home.close();
    // Elsewhere than at a socket the query says nothing about the org.
    expect((await server.api(`/api/v1/events?org=${org.id}`, { key: platform })).status).toBe(403);
    socket.close();
    own.close();
  });

  test("a deny policy forbids the patterns that it names", async () => {
    const { key } = await newKey();
    const policy = await server.api("/api/v1/policies", {
      body: {
        name: "no salaries",
        effect: "deny",
        actions: "events:subscribe",
        resources: "irn:svc:*:*:event:*:events%3Asalary.*",
      },
    });
    expect(policy.status).toBe(201);
    expect(
      (
        await server.api("/api/v1/roles/role_viewer/policies", {
          body: { policy_id: policy.body.id },
        })
      ).status,
    ).toBeLessThan(300);
    const socket = await openSocket(server.url, { key });
    expect(await socket.subscribe("salary.paid")).toMatchObject({
      status: "error",
      code: "PERMISSION_DENIED",
    });
    expect((await socket.subscribe("wage.paid")).status).toBe("ok");
    const stream = await fetch(`${server.url}/svc.v1.PubSubService/Subscribe`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/connect+json" },
      body: enveloped({ pattern: "salary.paid" }),
    });
    expect(await stream.text()).toContain("permission_denied");
    socket.close();
  });

  test("what is too large, binary or asked of an environment that is gone", async () => {
    const socket = await openSocket(server.url, { key: server.adminKey });
    socket.raw.send(new Uint8Array([1, 2, 3]));
    expect((await socket.wait("error"))[0].code).toBe("INVALID_PATTERN");
    socket.sendText(`"${"x".repeat(1024 * 1024)}"`);
    expect((await socket.whenClosed()).code).toBe(1009);

    const { store, keys } = server.running.domain;
    await store.write((session) =>
      session.run(sql`INSERT INTO environments (id, org_id, name, color, created_at, updated_at)
        VALUES ('env_gone', 'org_default', 'gone', '', 1, 1)`),
    );
    await store.write((session) =>
      session.run(sql`INSERT INTO heads (environment_id, position, last_at, definitions_version, retention_floor, epoch)
        VALUES ('env_gone', 0, 0, 0, 0, 1)`),
    );
    const { key } = await keys.create({
      orgId: "org_default",
      environmentId: "env_gone",
      name: "test",
      roleIds: ["role_viewer"],
    });
    const there = await openSocket(server.url, { key });
    await there.subscribe("a.>");
    await store.write((session) => session.run(sql`DELETE FROM heads WHERE environment_id = 'env_gone'`));
    for (const _twice of [1, 2]) await server.running.tick("log.feeds");
    expect((await there.whenClosed()).code).toBe(1008);
  });
});

function enveloped(message: object): Uint8Array<ArrayBuffer> {
  const body = new TextEncoder().encode(JSON.stringify(message));
  const frame = new Uint8Array(5 + body.length);
  new DataView(frame.buffer).setUint32(1, body.length);
  frame.set(body, 5);
  return frame;
}

test("a drain closes sockets with 1012 and ends streams", async () => {
  const server = await startTestServer({ engine: "libsql" });
  const socket = await openSocket(server.url, { key: server.adminKey });
  await socket.subscribe("a.>");
  await server.rpc("SvcService", "Emit", { event: "a.b" });
  const stream = await fetch(`${server.url}/svc.v1.PubSubService/Subscribe`, {
    method: "POST",
    headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/connect+json" },
    body: enveloped({ pattern: "a.>", options: { replay: 1 } }),
  });
  const said = stream.text();
  const stopped = server.stop();
  expect((await socket.whenClosed()).code).toBe(1012);
  expect(await said).toContain("unavailable");
  await stopped;
});
