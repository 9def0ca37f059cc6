import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createServer } from "node:net";
import { removedRoutes } from "../../src/edge/removed-routes.ts";
import { grpcPortDefault } from "../../src/settings/listen.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("clients of other generations on %s", (engine) => {
  let server: TestServer;

  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  test("register functions with any recordingRetention, and are told what has no effect", async () => {
    for (const [recordingRetention, notices] of [
      ["7y", undefined],
      ["2d", undefined],
      ["forever", undefined],
      ["as long as the law says", [expect.stringContaining("recordingRetention: ")]],
      ["x\0".repeat(5_000), [expect.stringContaining("recordingRetention: ")]],
    ] as const) {
      const input = { id: "kept", recording: true, recordingRetention };
      const answer = await server.rpc("SvcService", "RegisterFunction", input);
      expect([answer.status, answer.body.notices]).toEqual([200, notices]);
    }
  });

  test("create a table that nothing folds", async () => {
    const sqlProjection = {
      ...{ name: "only_a_table", events: ["never.fires"] },
      ...{ tableSql: "CREATE TABLE proj_only_a_table (id TEXT PRIMARY KEY, n INTEGER)", eventHandlers: {} },
    };
    const made = await server.rpc("ProjectionService", "CreateSQLProjection", sqlProjection);
    expect([made.status, made.body.message]).toEqual([200, undefined]);
    await server.rpc("SvcService", "Emit", { event: "never.fires", data: { id: "a" } });
    await server.running.tick("projections.fold");
    const { status, body } = await server.rpc("ProjectionService", "QuerySQLProjection", {
      name: "only_a_table",
    });
    expect([status, body]).toEqual([200, { columns: ["id", "n"] }]);
    const standing = await server.rpc("ProjectionService", "GetProjectionStatus", { name: "only_a_table" });
    expect(standing.body.errorMessage).toBeUndefined();
  });

  test.each(Object.entries(removedRoutes))("are told what took the place of %s", async (route, rpc) => {
    const [method, path] = route.split(" ") as [string, string];
    const answer = await server.api(`/api/v1${path.replace(/\{\w+\}/g, "a.b")}`, {
      method,
      ...(method === "POST" && { body: {} }),
    });
    expect([answer.status, answer.body.code]).toEqual([404, "not_found"]);
    expect(answer.body.error).toContain(`POST /${rpc.parent.typeName}/${rpc.name} took its place`);
  });
});

test("a server beside another one leaves gRPC away where its usual port is taken", async () => {
  // The port may be another program's already: that is as good.
  const other = createServer();
  await new Promise<void>((done) => {
    other.once("error", () => done());
    other.listen(grpcPortDefault, "127.0.0.1", () => done());
  });
  const server = await startTestServer({ engine: "libsql", settings: { grpcPort: undefined } });
  try {
    expect(server.running.grpcUrl).toBeUndefined();
    expect((await server.api("/api/v1/capabilities")).body.transports).not.toContain("grpc");
  } finally {
    await server.stop();
    other.close();
  }
});
