import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { configBytesMax } from "../../src/domain/state/config/limits.ts";
import { configBase, configOf } from "../support/config.ts";
import { base, expectFault, kvOf } from "../support/kv.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("config documents on %s", (engine) => {
  let server: TestServer;
  const { put, patch, get, remove, watch } = configOf(() => server);
  const { environment } = kvOf(() => server);
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { auditKv: true } });
  }, 120_000);
  afterAll(() => server.stop());

  const roleWith = async (name: string, body: object, denied?: string) => {
    const role = (await server.api("/api/v1/roles", { body: { name, ...body } })).body;
    if (denied !== undefined) {
      const policy = { name, effect: "deny", actions: "*", resources: `irn:svc:*:*:config:*:${denied}` };
      const { id } = (await server.api("/api/v1/policies", { body: policy })).body;
      await server.api(`/api/v1/roles/${role.id}/policies`, { body: { policy_id: id } });
    }
    return (await server.api("/api/v1/apikeys", { body: { name, role_ids: [role.id] } })).body as {
      id: string;
      key: string;
    };
  };

  test("are set, merged, listed and deleted, each time with a higher revision", async () => {
    expect(await get("")).toMatchObject({ status: 200, body: { configs: [] } });
    expectFault(await get("/app"), 404, { message: "config app not found" });
    expect((await remove("app")).status).toBe(204);
    expectFault(await patch("app", { a: 1 }), 404, { message: "config app not found" });
    const first = await put("app", { a: 1, inner: { x: 1 }, list: [1] });
    expect(first).toMatchObject({ status: 200, body: { name: "app", revision: 1 } });
    expect(await get("/app")).toMatchObject({
      status: 200,
      body: {
        name: "app",
        data: { a: 1, inner: { x: 1 }, list: [1] },
        revision: 1,
        updatedAt: expect.stringMatching(/^\d{4}-.*Z$/),
      },
    });
    const second = (await patch("app", { inner: { y: 2 }, b: null })).body.revision;
    expect((await get("/app")).body.data).toEqual({ a: 1, inner: { y: 2 }, list: [1], b: null });
    await put("other.name", {});
    const { configs } = (await get("")).body;
    expect(configs.map(({ name }: { name: string }) => name)).toEqual(["app", "other.name"]);
    expect(configs[0]).toEqual({ name: "app", revision: second, updatedAt: expect.any(String) });
    expect((await remove("app")).status).toBe(204);
    expectFault(await get("/app"), 404, {});
    const third = (await put("app", { back: true })).body.revision;
    expect(third).toBeGreaterThan(second);
  });

  test("a write says what it expects, and 412 what was found", async () => {
    const { revision } = (await put("cas", { n: 1 }, { headers: { "if-none-match": "*" } })).body;
    expectFault(await put("cas", {}, { headers: { "if-none-match": "*" } }), 412, {
      message: `config cas exists at revision ${revision}`,
    });
    const stale = { headers: { "if-match": `${revision + 1}` } };
    expectFault(await put("cas", {}, stale), 412, { field: "If-Match" });
    expectFault(await patch("cas", {}, stale), 412, { field: "If-Match" });
    expectFault(await remove("cas", stale), 412, { field: "If-Match" });
    expectFault(await remove("none", stale), 412, { message: "config none does not exist" });
    expect((await patch("cas", { m: 2 }, { headers: { "if-match": `"${revision}"` } })).status).toBe(200);
    expect((await get("/cas")).body.data).toEqual({ n: 1, m: 2 });
  });

  test("of many that merge at once, each key is there", async () => {
    await put("many", { seed: true });
    const wanted = Array.from({ length: 40 }, (_, at) => `k${at}`);
    await Promise.all(wanted.map((key, at) => patch("many", { [key]: at })));
    expect(Object.keys((await get("/many")).body.data).toSorted()).toEqual(["seed", ...wanted].toSorted());
  });

  test("the past is kept, and comes back", async () => {
    const revisions: number[] = [];
    for (const n of [1, 2, 3]) revisions.push((await put("past", { n })).body.revision);
    expect((await get(`/past?revision=${revisions[0]}`)).body).toMatchObject({
      data: { n: 1 },
      revision: revisions[0],
    });
    expectFault(await get("/past?revision=1"), 404, { message: "revision 1 of config past not found" });
    const back = await server.api(`${configBase}/past/rollback/${revisions[1]}`, { method: "POST" });
    expect((await get("/past")).body).toMatchObject({ data: { n: 2 }, revision: back.body.revision });
    const { history } = (await get("/past/history")).body;
    expect(history.map(({ revision }: { revision: number }) => revision)).toEqual([
      back.body.revision,
      ...revisions.toReversed(),
    ]);
    expect(history[0]).toEqual({
      revision: back.body.revision,
      operation: "put",
      bytes: 7,
      updatedAt: expect.any(String),
    });
    expectFault(await get("/none/history"), 404, {});
    expectFault(await server.api(`${configBase}/past/rollback/1`, { method: "POST" }), 404, {});
  });

  test("what is no document or no name is refused by its name, and nothing is kept", async () => {
    for (const body of [[], 1, "text", null])
      expectFault(await put("bad", body), 400, { message: "body: must be an object", field: "body" });
    expectFault(await put("bad", { a: "x".repeat(configBytesMax) }), 400, { field: "body" });
    expectFault(await put("bad", { a: { b: "\ud800" } }), 400, { field: "a.b" });
    for (const name of ["a b", "a..b", ".a", "a%2Fb", "*", ">", "é", "x".repeat(129), "%00"])
      expectFault(await put(name, {}), 400, { field: "name" });
    expectFault(await get("/bad"), 404, {});
    const odd = { __proto__x: 1, constructor: { prototype: 2 } };
    await put("odd", odd);
    await patch("odd", JSON.parse('{"__proto__": {"polluted": true}}'));
    const text = JSON.stringify((await get("/odd")).body.data);
    expect(text).toBe('{"__proto__x":1,"constructor":{"prototype":2},"__proto__":{"polluted":true}}');
  });

  test("stand apart by environment, and no bucket of theirs is seen", async () => {
    const other = await environment("config-other");
    await put("mine", { secret: "no" });
    expectFault(await get("/mine", { key: other.key }), 404, { message: "config mine not found" });
    expectFault(await patch("mine", {}, { key: other.key }), 404, {});
    expect((await get("", { key: other.key })).body).toEqual({ configs: [] });
    const hidden = `${base}/SYS_config_documents`;
    const { buckets } = (await server.api(base)).body;
    expect(buckets.filter(({ name }: { name: string }) => name.startsWith("SYS_"))).toEqual([]);
    for (const [path, method] of [
      [hidden, "GET"],
      [hidden, "DELETE"],
      [`${hidden}/keys`, "GET"],
      [`${hidden}/keys/mine`, "GET"],
      [`${hidden}/keys/mine`, "DELETE"],
    ] as const)
      expectFault(await server.api(path, { method }), 404, {
        message: "bucket SYS_config_documents not found",
      });
  });

  test("a watch tells the document as it is, each change and the end of it", async () => {
    const early = await watch("told");
    await put("told", { n: 1 });
    await put("untold", { n: 9 });
    await patch("told", { m: 2 });
    await remove("told");
    // A watch that reads late hears of the put alone: a put replaces the marker of a deletion.
    await early.wait("config_update", 3);
    await put("told", { n: 3 });
    const frames = await early.wait("config_update", 4);
    expect(frames.map(({ data }) => data)).toEqual([{ n: 1 }, { n: 1, m: 2 }, null, { n: 3 }]);
    const { revision, updatedAt } = (await get("/told")).body;
    expect(frames[3]).toEqual({ type: "config_update", name: "told", data: { n: 3 }, revision, updatedAt });
    const late = await watch("told");
    expect((await late.wait("config_update"))[0]).toEqual(frames[3]);
    await remove("told");
    expect((await late.wait("config_update", 2))[1].data).toBeNull();
    // Who comes back after a deletion is told of it.
    const back = await watch("told");
    expect((await back.wait("config_update"))[0].data).toBeNull();
    for (const socket of [early, late, back]) socket.close();
  });

  test("frames tell what was written to who may read it, and to nobody else", async () => {
    const reader = await openSocket(server.url, { key: server.adminKey });
    expect((await reader.subscribe("system.config.framed.updated")).status).toBe("ok");
    const wide = await openSocket(server.url, { key: server.adminKey });
    for (const pattern of ["system.>", "system.*.framed.updated"])
      expect((await wide.subscribe(pattern)).status).toBe("ok");
    await put("framed", { n: 1 });
    await remove("framed");
    const [first, second] = await reader.wait("event", 2);
    expect(first).toMatchObject({
      topic: "system.config.framed.updated",
      data: { name: "framed", data: { n: 1 } },
    });
    expect(second.data).toEqual({ ...second.data, data: null, revision: first.data.revision + 1 });
    const listening = await roleWith("only-listens", { base: "viewer" }, "*");
    const denied = await roleWith("denied-framed", { base: "developer" }, "framed");
    const refusedFor = async (key: string, pattern: string) => {
      const socket = await openSocket(server.url, { key });
      const { status, code } = await socket.subscribe(pattern);
      socket.close();
      return code ?? status;
    };
    expect(await refusedFor(denied.key, "system.config.framed.updated")).toBe("PERMISSION_DENIED");
    expect(await refusedFor(denied.key, "system.config.>")).toBe("PERMISSION_DENIED");
    expect(await refusedFor(denied.key, "system.config.other.updated")).toBe("ok");
    expect(await refusedFor(listening.key, "system.config.other.updated")).toBe("PERMISSION_DENIED");
    expect(await refusedFor(listening.key, "system.>")).toBe("ok");
    await server.api("/api/v1/secrets", { body: { name: "LAST", value: "v" } });
    await wide.wait("event");
    expect(wide.of("event").filter(({ topic }) => topic.startsWith("system.config."))).toEqual([]);
    reader.close();
    wide.close();
  });

  test("policies bind each way to them, and a revoked key hears no more", async () => {
    await put("open", { n: 1 });
    await put("closed", { n: 1 });
    const { id, key } = await roleWith("config-bound", { base: "developer" }, "closed");
    const as = { key };
    for (const answer of [
      await get("/closed", as),
      await get("/closed/history", as),
      await put("closed", {}, as),
      await patch("closed", {}, as),
      await remove("closed", as),
    ])
      expect(answer.status).toBe(403);
    const { configs } = (await get("", as)).body;
    const names = configs.map(({ name }: { name: string }) => name);
    expect([names.includes("open"), names.includes("closed")]).toEqual([true, false]);
    expect(await watch("closed", key).catch(() => "refused")).toBe("refused");
    const socket = await watch("open", key);
    await socket.wait("config_update");
    await server.api(`/api/v1/apikeys/${id}`, { method: "DELETE" });
    expect((await socket.whenClosed()).code).toBe(1008);
    const viewer = (await server.api("/api/v1/apikeys", { body: { name: "v", role_ids: ["role_viewer"] } }))
      .body;
    expect((await get("/open", { key: viewer.key })).status).toBe(200);
    expect((await put("open", {}, { key: viewer.key })).status).toBe(403);
  });

  test("changes are audited by their names", async () => {
    await put("audited", { password: "not to be seen" });
    await remove("audited");
    await server.running.tick("audit.flush");
    const rows = await until(
      async () => {
        const { body } = await server.rpc("AuditService", "GetAuthAuditTrail", { action: "secrets:manage" });
        const own = body.events.filter((event: object) =>
          JSON.stringify(event).includes("config:env_default:audited"),
        );
        return own.length === 2 && own;
      },
      { about: "two rows" },
    );
    expect(rows.map(({ event_type }: { event_type: string }) => event_type)).toEqual([
      "config.delete",
      "config.put",
    ]);
    expect(JSON.stringify(rows)).not.toContain("not to be seen");
  });
});
