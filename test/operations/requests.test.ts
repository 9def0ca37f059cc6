import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { unary } from "../../src/kit/operation.ts";
import { loggedLines } from "../support/logged.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const operations = [
  unary({
    name: "test.breaks",
    action: "functions:list",
    summary: "Breaks.",
    input: Type.Object({}),
    rest: "GET /api/v1/breaks",
    handle() {
      throw new TypeError("inside");
    },
  }),
];

describe("what is told of requests", () => {
  const { log, lines } = loggedLines();
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql", log, operations, settings: { logLevel: "debug" } });
  });
  afterAll(() => server.stop());

  const lineOf = (requestId: string) =>
    until(
      () => lines.find(({ event, fields }) => event === "request.answered" && fields.requestId === requestId),
      { about: `the line of ${requestId}` },
    );

  test("every answer carries the caller's own id when it is sane", async () => {
    const headers = { "X-Request-Id": "Mine_1.a-b" };
    for (const path of ["/health", "/docs", "/nowhere", "/api/v1/events", "/svc.v1.SvcService/Nothing"]) {
      const { headers: answered } = await server.api(path, { headers });
      expect([path, answered.get("x-request-id")]).toEqual([path, "Mine_1.a-b"]);
    }
    const rpc = await server.rpc("SvcService", "Health", {}, { headers });
    expect(rpc.headers.get("x-request-id")).toBe("Mine_1.a-b");
    const preflight = await server.api("/api/v1/events", { method: "OPTIONS", headers });
    expect(preflight.headers.get("x-request-id")).toBe("Mine_1.a-b");
  });

  test("and a new one when it is not, or when there is none", async () => {
    const insane = ["a b", "a;b", "a/b", '"a"', "ä", "x".repeat(129), "{}"];
    for (const id of insane) {
      const { headers } = await server.api("/health", { headers: { "X-Request-Id": id } });
      expect(headers.get("x-request-id")).toMatch(/^req_[0-9a-z]{26}$/);
    }
    const longest = "x".repeat(128);
    const { headers } = await server.api("/health", { headers: { "X-Request-Id": longest } });
    expect(headers.get("x-request-id")).toBe(longest);
    for (const path of ["/docs", "/nowhere", "/health"])
      expect((await server.api(path)).headers.get("x-request-id")).toMatch(/^req_/);
  });

  test("a line a request: what, how, what came of it, who; nothing of what was sent", async () => {
    const answer = await server.api("/api/v1/workers/w-told/register?hidden=query", {
      body: { function_ids: ["hidden-body"] },
      headers: { "X-Request-Id": "line-1", "X-Hidden": "hidden-header" },
    });
    expect(answer.status).toBe(200);
    const line = await lineOf("line-1");
    expect(line).toEqual({
      severity: "debug",
      event: "request.answered",
      fields: {
        requestId: "line-1",
        operation: "workers.register",
        route: "POST /api/v1/workers/{workerId}/register",
        protocol: "rest",
        status: 200,
        ms: expect.any(Number),
        outcome: "ok",
        callerKind: "key",
        callerId: expect.stringMatching(/^ak_/),
        environmentId: server.env,
      },
    });
    expect(JSON.stringify(lines)).not.toContain("hidden");
  });

  test("over RPC, without a key, and nowhere", async () => {
    await server.rpc("SvcService", "ListRuns", {}, { headers: { "X-Request-Id": "line-2" } });
    expect((await lineOf("line-2")).fields).toMatchObject({
      operation: "runs.list",
      protocol: "connect",
      status: 200,
    });
    await server.rpc("SvcService", "ListRuns", {}, { key: null, headers: { "X-Request-Id": "line-3" } });
    const refused = (await lineOf("line-3")).fields;
    expect(refused).toMatchObject({ status: 401, outcome: "unauthenticated", callerKind: "anonymous" });
    expect(refused).not.toHaveProperty("environmentId");
    await server.api("/nowhere/hidden", { headers: { "X-Request-Id": "line-4" } });
    expect((await lineOf("line-4")).fields).toEqual({
      requestId: "line-4",
      operation: undefined,
      route: "GET *",
      protocol: "rest",
      status: 404,
      ms: expect.any(Number),
    });
  });

  test("a defect is told with the request's id, here and there", async () => {
    const headers = { "X-Request-Id": "line-5" };
    const { status, headers: answered } = await server.api("/api/v1/breaks", { headers });
    expect([status, answered.get("x-request-id")]).toEqual([500, "line-5"]);
    expect(await lineOf("line-5")).toMatchObject({ severity: "info", fields: { outcome: "internal" } });
    const defect = lines.find(
      ({ event, fields }) => event === "request.defect" && fields.requestId === "line-5",
    );
    expect(defect?.severity).toBe("error");
  });
});

test("above debug only failures of ours are told", async () => {
  const { log, lines } = loggedLines();
  const server = await startTestServer({ engine: "libsql", log, operations });
  try {
    await server.api("/api/v1/events");
    await server.api("/nowhere");
    await server.api("/api/v1/breaks");
    const told = await until(
      () => {
        const found = lines.filter(({ event }) => event === "request.answered");
        return found.length > 0 && found;
      },
      { about: "the line of the failure" },
    );
    expect(told.map(({ fields }) => [fields.operation, fields.status])).toEqual([["test.breaks", 500]]);
  } finally {
    await server.stop();
  }
});
