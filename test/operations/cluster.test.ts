import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { sharedNats } from "../support/nats.ts";
import { type Answer, engines, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const jwt = (letter: string) => letter.repeat(40);

describe.each(engines)("cluster on %s", (engine) => {
  let server: TestServer;
  const rotate = (body: unknown, headers: Record<string, string> = {}, key?: string | null) =>
    server.api("/api/v1/cluster/rotate-token", { body, headers, ...(key !== undefined && { key }) });
  const keyOf = (roles: readonly string[], orgId = "org_default") =>
    server.running.domain.keys.create({
      orgId,
      environmentId: orgId === "org_default" ? "env_default" : null,
      name: "k",
      roleIds: roles.map((role) => `role_${role}`),
    });

  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  test("health tells of nodes, leaders, database and bus", async () => {
    const health = () => server.api("/api/v1/cluster/health");
    const duties = ["cron", "retention"];
    const { status, body } = await until(
      async () => {
        const answer = await health();
        const led = answer.body.leaders.map(({ duty }: { duty: string }) => duty);
        return duties.every((duty) => led.includes(duty)) && answer;
      },
      { everyMs: 50, about: "a leader of each duty" },
    );
    expect(status).toBe(200);
    expect(body).toMatchObject({
      status: "healthy",
      issues: [],
      mode: "standalone",
      node_id: server.running.nodeId,
      nodes: [{ id: server.running.nodeId, status: "up", bus_connected: true, url: server.url }],
      leaders: expect.arrayContaining(
        duties.map((duty) => expect.objectContaining({ duty, node_id: server.running.nodeId, epoch: 1 })),
      ),
      database: { engine, status: "healthy" },
      bus: { kind: "in-process", status: "connected" },
    });
    const loops = body.nodes[0].loops.map((loop: { name: string }) => loop.name);
    expect(loops).toEqual(
      expect.arrayContaining(["runs.wake", "workers.dispatch", "cluster.lead", "events.keys"]),
    );
    expect((await server.api("/api/v1/cluster/health", { key: null })).status).toBe(401);
  });

  test("health tells who is no admin how many nodes are in which state, and nothing of any one", async () => {
    for (const role of ["role_viewer", "role_developer"]) {
      const { body } = await server.api("/api/v1/apikeys", { body: { name: role, role_ids: [role] } });
      expect((await server.api("/api/v1/cluster/health", { key: body.key })).body).toEqual({
        status: "healthy",
        issues: [],
        mode: "standalone",
        nodes: [{ status: "up" }],
        database: { engine, status: "healthy", round_trip_ms: expect.any(Number) },
        bus: { kind: "in-process", status: "connected" },
      });
    }
  });

  test("health tells when each secret was rotated, and until when the one before is good", async () => {
    const secrets = async () => {
      const { body } = await server.api("/api/v1/cluster/health");
      return new Map<string, Record<string, unknown>>(
        body.secrets.map(({ kind, ...rest }: { kind: string }) => [kind, rest]),
      );
    };
    const before = await secrets();
    expect([...before.keys()]).toEqual([
      "master_key",
      "jwt_secret",
      "platform_jwt_secret",
      "signing_key",
      "audit_key",
    ]);
    for (const one of before.values()) expect(one).toEqual({ version: 1, rotated_at: expect.any(String) });
    const rotated = await rotate({ kind: "signing_key", new_value: jwt("r") });
    const { signing_key, ...others } = Object.fromEntries(await secrets());
    const at = Date.parse(signing_key!.rotated_at as string);
    const dayLater = new Date(at + 24 * 60 * 60_000).toISOString();
    expect([signing_key!.version, signing_key!.previous_until]).toEqual([2, dayLater]);
    expect(Math.abs(at - Date.parse(rotated.body.rotated_at))).toBeLessThan(60_000);
    expect(others).toEqual(Object.fromEntries([...before].filter(([kind]) => kind !== "signing_key")));
    const text = JSON.stringify((await server.api("/api/v1/cluster/health")).body);
    expect(text).not.toContain(jwt("r"));
  });

  test("a secret is rotated once for one Idempotency-Key", async () => {
    const body = { kind: "jwt_secret", new_value: jwt("a") };
    const first = await rotate(body, { "idempotency-key": "turn-1" });
    expect(first).toMatchObject({
      status: 200,
      body: { status: "rotated", confirmed_nodes: [server.running.nodeId] },
    });
    expect(first.headers.get("idempotent-replay")).toBeNull();
    const again = await rotate(body, { "idempotency-key": "turn-1" });
    expect(again.headers.get("idempotent-replay")).toBe("1");
    expect(again.body).toEqual(first.body);
    const other = await rotate({ ...body, new_value: jwt("b") }, { "idempotency-key": "turn-1" });
    expect(other.status).toBe(409);
    const twins = await Promise.all(
      [1, 2, 3].map(() =>
        rotate({ kind: "signing_key", new_value: jwt("c") }, { "idempotency-key": "turn-2" }),
      ),
    );
    expect(twins.map((twin) => twin.status)).toEqual([200, 200, 200]);
    expect(twins.filter((twin) => twin.headers.get("idempotent-replay") === null).length).toBe(1);
    expect(new Set(twins.map((twin) => twin.body.rotated_at)).size).toBe(1);
  });

  test("the store never holds what was rotated in plain", async () => {
    await rotate({ kind: "jwt_secret", new_value: jwt("d") });
    const { store } = server.running.domain;
    const rows = [
      ...(await store.all(sql`SELECT * FROM keyring`)),
      ...(await store.all(sql`SELECT * FROM rotations`)),
    ];
    expect(JSON.stringify(rows)).not.toContain(jwt("d"));
  });

  test("bad input names the field and changes nothing", async () => {
    const { store } = server.running.domain;
    const count = async () => [
      await store.one(sql`SELECT count(*) AS n FROM keyring`),
      await store.one(sql`SELECT count(*) AS n FROM rotations`),
    ];
    const before = await count();
    for (const [field, body] of [
      ["kind", {}],
      ["kind", { kind: "password", new_value: jwt("e") }],
      ["new_value", { kind: "jwt_secret" }],
      ["new_value", { kind: "jwt_secret", new_value: 7 }],
      ["new_value", { kind: "jwt_secret", new_value: "short" }],
      ["new_value", { kind: "jwt_secret", new_value: `${jwt("e")} ${jwt("e")}` }],
      ["new_value", { kind: "master_key", new_value: jwt("e") }],
      ["remote_key_id", { kind: "api_key", new_value: jwt("e") }],
      ["new_value", { kind: "api_key", new_value: "short", remote_key_id: "ak_admin_bootstrap" }],
    ] as const) {
      const answer = await rotate(body);
      expect({ body, status: answer.status }).toEqual({ body, status: 400 });
      expect(answer.body.message).toContain(field);
      expect(answer.body.message).not.toContain("eeee");
    }
    expect(await count()).toEqual(before);
  });

  test("only admins may; what concerns every tenant, only those of the installation", async () => {
    const developer = await keyOf(["developer"]);
    const body = { kind: "jwt_secret", new_value: jwt("f") };
    expect((await rotate(body, {}, developer.key)).status).toBe(403);
    expect((await rotate(body, {}, null)).status).toBe(401);
  });

  test("an API key gets another text; the old one is refused at once", async () => {
    const made = await keyOf(["viewer"]);
    const whoAmI = (key: string) => server.api("/api/v1/routes", { key });
    expect((await whoAmI(made.key)).status).toBe(200);
    const text = `ifkey_${"1".repeat(32)}`;
    expect((await rotate({ kind: "api_key", new_value: text, remote_key_id: made.id })).status).toBe(200);
    expect((await whoAmI(text)).status).toBe(200);
    expect((await whoAmI(made.key)).status).toBe(401);
    const missing = await rotate({ kind: "api_key", new_value: text, remote_key_id: "ak_none" });
    expect(missing.status).toBe(404);
    const other = await keyOf(["viewer"]);
    const taken: Answer = await rotate({ kind: "api_key", new_value: text, remote_key_id: other.id });
    expect(taken.status).toBe(409);
    expect((await whoAmI(other.key)).status).toBe(200);
    const foreign = await keyOf(["viewer"], "org_elsewhere");
    const refused = await rotate({ kind: "api_key", new_value: jwt("9"), remote_key_id: foreign.id });
    expect({ ...refused.body, message: "", error: "" }).toEqual({ ...missing.body, message: "", error: "" });
    expect(refused.status).toBe(404);
  });

  test("an expired key cannot be rotated", async () => {
    const made = await server.running.domain.keys.create({
      orgId: "org_default",
      environmentId: "env_default",
      name: "old",
      roleIds: ["role_viewer"],
      expiresAt: 1,
    });
    const answer = await rotate({ kind: "api_key", new_value: jwt("g"), remote_key_id: made.id });
    expect(answer).toMatchObject({ status: 409, body: { code: "failed_precondition" } });
  });
});

describe("two nodes", () => {
  let nodes: TestServer[];
  let home: Awaited<ReturnType<typeof makeHome>>;
  const lines: string[] = [];

  beforeAll(async () => {
    const { url: nats } = await sharedNats();
    home = await makeHome("postgres");
    const log = (await import("../../src/kit/log.ts")).silentLog;
    nodes = [];
    for (const nodeId of ["a", "b"])
      nodes.push(
        await startTestServer({
          engine: "postgres",
          nats,
          home,
          settings: { nodeId: `${nodeId}-${process.pid}` },
          log: { ...log, warn: (event) => void lines.push(event) },
        }),
      );
  });
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.stop()));
    await home.remove();
  });

  const health = async (node: TestServer) => (await node.api("/api/v1/cluster/health")).body;
  const fingerprints = async (kind: string) =>
    (
      await nodes[0]!.running.domain.store.all<{ fingerprint: string }>(
        sql`SELECT fingerprint FROM keyring WHERE kind = ${kind} ORDER BY version`,
      )
    ).map((row) => row.fingerprint);

  test("each knows the other, and one leads", async () => {
    const ids = nodes.map((node) => node.running.nodeId);
    for (const node of nodes) {
      const seen = await until(
        async () => {
          const body = await health(node);
          return body.nodes.length === 2 && body.leaders.length > 0 && body.status === "healthy"
            ? body
            : undefined;
        },
        { everyMs: 100, about: "two healthy nodes" },
      );
      expect(seen.nodes.map((one: { id: string }) => one.id)).toEqual(ids);
      expect(ids).toContain(seen.leaders[0].node_id);
      expect(seen.mode).toBe("cluster");
    }
  });

  test("a rotation is confirmed by both, and both use it at once", async () => {
    const body = { kind: "jwt_secret", new_value: jwt("n") };
    const answer = await nodes[0]!.api("/api/v1/cluster/rotate-token", { body });
    expect(answer.body.confirmed_nodes).toEqual(nodes.map((node) => node.running.nodeId));
    const [last] = (await fingerprints("jwt_secret")).slice(-1);
    for (const node of nodes)
      expect(node.running.domain.keyring.current("jwt_secret")).toMatchObject({
        id: last!,
        secret: jwt("n"),
      });
  });

  test("a new master key: everything is sealed again, both nodes open old and new", async () => {
    const [a, b] = nodes.map((node) => node.running.domain.keyring) as [never, never] as {
      seal(place: string, text: string): string;
      unseal(place: string, sealed: string): Promise<string>;
      current(kind: "jwt_secret"): { secret: string };
    }[];
    const before = a!.seal("place", "old text");
    const sealed = await nodes[0]!.running.domain.store.all<{ sealed: string }>(
      sql`SELECT sealed FROM keyring WHERE kind = 'jwt_secret'`,
    );
    const answer = await nodes[1]!.api("/api/v1/cluster/rotate-token", {
      body: { kind: "master_key", new_value: "ab".repeat(32) },
    });
    expect(answer.body.confirmed_nodes).toHaveLength(2);
    const after = a!.seal("place", "new text");
    expect(after.split(".")[0]).toBe("2");
    expect(await b!.unseal("place", after)).toBe("new text");
    expect(await b!.unseal("place", before)).toBe("old text");
    expect(await b!.unseal("elsewhere", after).catch((error: { kind: string }) => error.kind)).toBe(
      "unavailable",
    );
    const resealed = await nodes[0]!.running.domain.store.all<{ sealed: string }>(
      sql`SELECT sealed FROM keyring WHERE kind = 'jwt_secret'`,
    );
    expect(resealed.map((row) => row.sealed.split(".")[0])).toEqual(sealed.map(() => "2"));
    expect(b!.current("jwt_secret").secret).toBe(jwt("n"));
  });

  test("a key that one node revoked by rotation is refused on the other", async () => {
    const [a, b] = nodes as [TestServer, TestServer];
    const made = await a.running.domain.keys.create({
      orgId: "org_default",
      environmentId: "env_default",
      name: "k",
      roleIds: ["role_viewer"],
    });
    expect((await b.api("/api/v1/routes", { key: made.key })).status).toBe(200);
    const text = `ifkey_${"2".repeat(32)}`;
    await a.api("/api/v1/cluster/rotate-token", {
      body: { kind: "api_key", new_value: text, remote_key_id: made.id },
    });
    expect((await b.api("/api/v1/routes", { key: made.key })).status).toBe(401);
    expect((await b.api("/api/v1/routes", { key: text })).status).toBe(200);
  });

  test("a node with another master key does not start, and says why", async () => {
    const wrong = startTestServer({ engine: "postgres", home, settings: { masterKey: "cd".repeat(32) } });
    await expect(wrong).rejects.toThrow("SVC_MASTER_KEY");
  });

  test("two processes of one name are told", async () => {
    const [a, b] = nodes as [TestServer, TestServer];
    expect((await health(a)).status).toBe("healthy");
    const { nodeId } = b.running;
    const { url: nats } = await sharedNats();
    // As the others have it by now.
    const settings = { nodeId, masterKey: "ab".repeat(32) };
    const twin = await startTestServer({ engine: "postgres", nats, home, settings });
    try {
      const issue = `two processes are node ${nodeId}: give each a SVC_NODE_ID of its own`;
      const all = [a, b, twin].map((node) =>
        until(async () => (await health(node)).issues.includes(issue), { everyMs: 100, about: issue }),
      );
      await Promise.all(all);
    } finally {
      await twin.stop();
    }
  });

  test("of a node that fell silent only that is told, not what it said last", async () => {
    const [a] = nodes as [TestServer, TestServer];
    const { store } = a.running.domain;
    const silentAt = Date.now() - 20 * 60_000;
    const loops = [
      { name: "runs.wake", progress_at: silentAt, failures: 0 },
      { name: "runs.expire", progress_at: silentAt, failures: 99, error: "no" },
    ];
    const facts = { loops, bus_connected: false, has_twin: true, unbalanced: ["runs are out of balance"] };
    await store.write((session) =>
      session.run(sql`INSERT INTO nodes (id, version, url, started_at, heartbeat_at, draining_at, facts)
        VALUES ('node_silent', '1.0.0', '', 1, ${silentAt}, NULL, ${JSON.stringify({ ...facts, knows: [] })})`),
    );
    const { status, issues } = await health(a);
    await store.write((session) => session.run(sql`DELETE FROM nodes WHERE id = 'node_silent'`));
    expect({ status, issues }).toEqual({ status: "degraded", issues: ["node node_silent is silent"] });
  });

  test("a node that stops leaves the list, and hands its duties over", async () => {
    const [a, b] = nodes as [TestServer, TestServer];
    await a.stop();
    const seen = await until(
      async () => {
        const body = await health(b);
        return body.nodes.length === 1 && body.leaders[0]?.node_id === b.running.nodeId ? body : undefined;
      },
      { everyMs: 50, about: "one node that leads" },
    );
    expect(seen.nodes[0].id).toBe(b.running.nodeId);
    nodes = [b];
  });
});
