import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { SvcService } from "../../src/gen/svc/v1/svc_pb.ts";
import { ExecutionMode, FunctionStatus } from "../../src/gen/svc/v1/types_pb.ts";
import { sql } from "../../src/kit/sql.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("functions on %s", (engine) => {
  let server: TestServer;
  /** Keys of an environment of its own, of the same org, and of another org. */
  let sibling: string;
  let foreign: string;
  let viewer: string;

  const rpc = (method: string, body: unknown, options: CallOptions = {}) =>
    server.rpc("SvcService", method, body, options);
  const register = async (body: Record<string, unknown>, options: CallOptions = {}) => {
    const answer = await rpc("RegisterFunction", body, options);
    expect({ status: answer.status, body: answer.body }).toMatchObject({ status: 200 });
    return answer.body as { function: Record<string, unknown>; created?: boolean };
  };
  const refused = async (method: string, body: unknown, options: CallOptions = {}) => {
    const answer = await rpc(method, body, options);
    return { status: answer.status, code: answer.body.code, message: answer.body.message as string };
  };
  const definitionsVersion = async () =>
    (
      await server.running.domain.store.one<{ definitions_version: number }>(
        sql`SELECT definitions_version FROM heads WHERE environment_id = ${server.env}`,
      )
    )?.definitions_version;

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { keys, tenancy } = server.running.domain;
    const keyOf = async (orgId: string, environmentId: string, roleIds = ["role_developer"]) =>
      (await keys.create({ orgId, environmentId, name: "test", roleIds })).key;
    const other = await tenancy.createEnvironment({ orgId: "org_default", name: "sibling" });
    const theirs = await tenancy.createEnvironment({ orgId: "org_other", name: "theirs" });
    sibling = await keyOf("org_default", other.id);
    foreign = await keyOf("org_other", theirs.id);
    viewer = await keyOf("org_default", server.env, ["role_viewer"]);
  });
  afterAll(() => server.stop());

  test("a first registration answers the function in both forms", async () => {
    const answer = await register({
      id: "acme/charge.card",
      name: "Charge Card",
      triggers: [{ event: "order.placed", expression: "data.total > 5" }, { cron: "*/30 * * * * *" }],
      retry: { maxAttempts: 5, initialDelayMs: 200 },
      metadata: { __svc_code_hash: "0123456789abcdef" },
    });
    expect(answer.created).toBe(true);
    expect(answer.function).toEqual({
      id: "acme/charge.card",
      name: "Charge Card",
      slug: "charge-card",
      triggers: [{ event: "order.placed", expression: "data.total > 5" }, { cron: "*/30 * * * * *" }],
      retry: { maxAttempts: 5, initialDelayMs: 200, backoffFactor: 2, maxDelayMs: 300_000 },
      retryAttempts: 5,
      retryDelayMs: 200,
      retryBackoff: 2,
      preferredMode: "EXECUTION_MODE_PULL",
      executionMode: "EXECUTION_MODE_PULL",
      metadata: { __svc_code_hash: "0123456789abcdef" },
      status: "FUNCTION_STATUS_ACTIVE",
      version: 1,
      createdAt: expect.stringMatching(/^\d{4}-.*Z$/),
      updatedAt: expect.stringMatching(/^\d{4}-.*Z$/),
    });
  });

  test("only a changed definition gets a version, a changed code hash alone included", async () => {
    const body = {
      id: "versions",
      triggers: [{ event: "v" }],
      metadata: { __svc_code_hash: "a", region: "eu" },
    };
    expect((await register(body)).function.version).toBe(1);
    const before = await definitionsVersion();
    const again = await register({
      ...body,
      metadata: { region: "eu", __svc_code_hash: "a" },
      changeReason: "none",
    });
    expect(again.created).toBeUndefined();
    expect(again.function.version).toBe(1);
    expect(await definitionsVersion()).toBe(before);

    const changed = await register({ ...body, metadata: { __svc_code_hash: "b", region: "eu" } });
    expect(changed.created).toBeUndefined();
    expect(changed.function).toMatchObject({ version: 2, metadata: { __svc_code_hash: "b" } });
    expect(await definitionsVersion()).toBe(before! + 1);
    const versions = await server.running.domain.store.all(sql`SELECT version, actor_id FROM function_versions
      WHERE environment_id = ${server.env} AND function_id = 'versions' ORDER BY version`);
    expect(versions).toEqual([1, 2].map((version) => ({ version, actor_id: expect.stringMatching(/^ak_/) })));
  });

  test("what is answered may be sent back and is no change", async () => {
    const { function: given } = await register({
      id: "echo",
      triggers: [{ event: "a" }],
      concurrency: { limit: 2, key: "data.customer" },
      debounce: { periodMs: 2_000, maxWaitMs: 9_000 },
      retryAttempts: 4,
      timeoutMs: 1_000,
      cancelOn: [{ event: "b", match: "$.data.id" }],
      endpointUrl: "http://svc.invalid:1/run",
    });
    expect(given).toMatchObject({ executionMode: "EXECUTION_MODE_PUSH" });
    const { status: _status, version: _version, createdAt: _created, updatedAt: _updated, ...sent } = given;
    const answer = await register(sent);
    expect(answer.function).toEqual(given);
  });

  test.each([
    [
      "snake_case",
      { preferred_mode: "pull", timeout_ms: 5, debounce: { period_ms: 1_000, max_wait_ms: 2_000 } },
    ],
    [
      "camelCase",
      { executionMode: "EXECUTION_MODE_PULL", timeoutMs: 5, debounce: { periodMs: 1_000, maxWaitMs: 2_000 } },
    ],
    [
      "snake in camel",
      { preferredMode: "PULL", timeoutMs: 5, debounce: { period_ms: 1_000, max_wait_ms: "2000" } },
    ],
    [
      "a number",
      { preferredMode: ExecutionMode.PULL, timeoutMs: 5, debounce: { periodMs: 1_000, maxWaitMs: 2_000 } },
    ],
  ])("the same function in %s", async (spelling, fields) => {
    const { function: answered } = await register({ id: "spelt", change_reason: spelling, ...fields });
    expect(answered).toMatchObject({ version: 1, timeoutMs: 5, executionMode: "EXECUTION_MODE_PULL" });
    expect(answered.debounce).toEqual({ periodMs: 1_000, maxWaitMs: "2000" });
  });

  test("push in lower case, and by nothing but an endpoint", async () => {
    const endpointUrl = "https://example.test/run";
    const push = { preferredMode: "EXECUTION_MODE_PUSH", endpointUrl };
    expect((await register({ id: "push-1", preferredMode: "push", endpointUrl })).function).toMatchObject(
      push,
    );
    expect((await register({ id: "push-2", endpointUrl })).function).toMatchObject(push);
  });

  test.each<[string, Record<string, unknown>]>([
    ["id", {}],
    ["id", { id: "a b" }],
    ["id", { id: 5 }],
    ["triggers[0].event", { id: "a", triggers: [{ event: "a..b" }] }],
    ["triggers[0].expression", { id: "a", triggers: [{ event: "a", expression: "total > 5" }] }],
    ["retryAttempts", { id: "a", retryAttempts: 0 }],
    ["retryAttempts", { id: "a", retryAttempts: "many" }],
    ["concurrency.limit", { id: "a", concurrency: { limit: 0, key: "k" } }],
    ["concurrency.limit", { id: "a", concurrency: { limit: 0 }, checked: true }],
    ["timeoutMs", { id: "a", timeoutMs: -1 }],
    ["timeoutMs", { id: "a", timeoutMs: 1.5 }],
    ["preferredMode", { id: "a", preferredMode: "sideways" }],
    ["endpointUrl", { id: "a", executionMode: "push" }],
    ["metadata", { id: "a", metadata: ["a"] }],
    ["secrets[1]", { id: "a", secrets: ["a", ""] }],
    ["description", { id: "a", description: "x".repeat(4_097) }],
    ["changeReason", { id: "a", changeReason: "x".repeat(1_025) }],
    ["name", { id: "a", name: "a\u0000b" }],
  ])("bad input names %s", async (field, body) => {
    const { status, code, message } = await refused("RegisterFunction", body);
    expect({ status, code }).toEqual({ status: 400, code: "invalid_argument" });
    expect(message).toContain(field);
    expect((await rpc("GetFunction", { id: "a" })).status).toBe(404);
  });

  test("a schedule that does not parse registers all the same", async () => {
    const { function: answered } = await register({
      id: "bad-cron",
      triggers: [{ cron: "every full moon" }],
    });
    expect(answered.triggers).toEqual([{ cron: "every full moon" }]);
  });

  test("a slug that nobody asked for gets a number, one that was asked for must be free", async () => {
    const slugs = [];
    for (const id of ["report-1", "report-2", "report-3"])
      slugs.push((await register({ id, name: "Report" })).function.slug);
    expect(slugs).toEqual(["report", "report-2", "report-3"]);
    expect(await refused("RegisterFunction", { id: "report-4", slug: "report" })).toEqual({
      status: 409,
      code: "already_exists",
      message: 'slug: "report" belongs to function report-1',
    });
    // It keeps its slug when its name changes, and may take another.
    expect((await register({ id: "report-1", name: "Renamed" })).function).toMatchObject({
      slug: "report",
      version: 2,
    });
    expect((await register({ id: "report-1", name: "Renamed", slug: "renamed" })).function.slug).toBe(
      "renamed",
    );
    expect((await register({ id: "report-4", slug: "report" })).function.slug).toBe("report");
  });

  test("by id or by slug, the id first", async () => {
    await register({ id: "second", slug: "first" });
    await register({ id: "first", slug: "third" });
    const found = async (id: string) => (await rpc("GetFunction", { id })).body.id;
    expect([await found("first"), await found("second"), await found("third")]).toEqual([
      "first",
      "second",
      "first",
    ]);
    for (const id of ["fourth", "FIRST", "%"])
      expect(await refused("GetFunction", { id })).toMatchObject({ status: 404, code: "not_found" });
    for (const body of [{}, { id: "a\u0000b" }, { id: "x".repeat(401) }])
      expect(await refused("GetFunction", body)).toMatchObject({ status: 400, code: "invalid_argument" });
  });

  test("workers that start at once register each function once", async () => {
    const versionsBefore = await definitionsVersion();
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, at) => register({ id: `crowd-${at % 3}`, name: "Crowd" })),
    );
    expect(answers.filter((answer) => answer.created)).toHaveLength(3);
    expect(new Set(answers.map((answer) => answer.function.version))).toEqual(new Set([1]));
    expect([...new Set(answers.map((answer) => answer.function.slug))].sort()).toEqual([
      "crowd",
      "crowd-2",
      "crowd-3",
    ]);
    expect(await definitionsVersion()).toBe(versionsBefore! + 3);
  });

  test("statuses move as the table says, and only a move is a change", async () => {
    await register({ id: "moving", triggers: [{ event: "moving.event" }] });
    const to = (status: unknown) => rpc("UpdateFunctionStatus", { id: "moving", status });
    const started = async () => (await rpc("Emit", { event: "moving.event" })).body.runIds ?? [];
    expect(await started()).toHaveLength(1);

    expect((await to("paused")).body).toMatchObject({ status: "FUNCTION_STATUS_PAUSED", version: 1 });
    expect(await started()).toHaveLength(0);
    const unchanged = await definitionsVersion();
    expect((await to("FUNCTION_STATUS_PAUSED")).status).toBe(200);
    expect(await definitionsVersion()).toBe(unchanged);
    // Paused stays paused when its workers come back with it.
    expect(
      (await register({ id: "moving", triggers: [{ event: "moving.event" }], retryAttempts: 9 })).function,
    ).toMatchObject({
      status: "FUNCTION_STATUS_PAUSED",
      version: 2,
    });
    expect((await to(FunctionStatus.ACTIVE)).body.status).toBe("FUNCTION_STATUS_ACTIVE");
    expect(await started()).toHaveLength(1);

    expect((await to("archived")).body.status).toBe("FUNCTION_STATUS_ARCHIVED");
    expect(await started()).toHaveLength(0);
    for (const status of ["active", "paused"])
      expect(await refused("UpdateFunctionStatus", { id: "moving", status })).toEqual({
        status: 400,
        code: "failed_precondition",
        message: `function moving is archived and cannot become ${status}`,
      });
    const back = await register({ id: "moving", triggers: [{ event: "moving.event" }], retryAttempts: 9 });
    expect(back.function).toMatchObject({ status: "FUNCTION_STATUS_ACTIVE", version: 2 });
    expect(back.created).toBeUndefined();
    expect(await started()).toHaveLength(1);
  });

  test.each([
    { id: "moving" },
    { id: "moving", status: "asleep" },
    { id: "moving", status: 0 },
    { status: "paused" },
  ])("a status that is none is refused: %o", async (body) => {
    expect(await refused("UpdateFunctionStatus", body)).toMatchObject({
      status: 400,
      code: "invalid_argument",
    });
  });

  test("deleting cancels what is queued, and the function is gone", async () => {
    const body = { id: "doomed", triggers: [{ event: "doomed.event" }] };
    await register(body);
    const { runIds } = (await rpc("Emit", { event: "doomed.event" })).body;
    const deleted = await rpc("DeleteFunction", { id: "doomed" });
    expect({ status: deleted.status, body: deleted.body }).toEqual({ status: 200, body: {} });
    expect((await rpc("GetRun", { id: runIds[0] })).body).toMatchObject({
      status: "RUN_STATUS_CANCELLED",
      cancellationCause: "function_deleted",
    });
    expect((await rpc("GetFunction", { id: "doomed" })).status).toBe(404);
    expect((await rpc("Emit", { event: "doomed.event" })).body.runIds).toBeUndefined();
    expect(await refused("DeleteFunction", { id: "doomed" })).toEqual({
      status: 404,
      code: "not_found",
      message: "function doomed not found",
    });
    // Runs are pinned to versions, so a name that comes back goes on counting.
    expect(await register(body)).toMatchObject({ created: true, function: { version: 2 } });
  });

  test("no environment sees or moves the functions of another; theirs look like none", async () => {
    await register({ id: "mine", name: "Mine" });
    for (const key of [sibling, foreign]) {
      for (const [method, body] of [
        ["GetFunction", { id: "mine" }],
        ["UpdateFunctionStatus", { id: "mine", status: "paused" }],
        ["DeleteFunction", { id: "mine" }],
      ] as const) {
        const theirs = await refused(method, body, { key });
        const none = await refused(method, { ...body, id: "none" }, { key });
        expect(theirs).toEqual({ ...none, message: none.message.replace("none", "mine") });
        expect(theirs.status).toBe(404);
      }
      const own = await register({ id: "mine", name: "Mine" }, { key });
      expect(own).toMatchObject({ created: true, function: { slug: "mine", version: 1 } });
    }
    await rpc("DeleteFunction", { id: "mine" }, { key: foreign });
    expect((await rpc("GetFunction", { id: "mine" })).body).toMatchObject({
      status: "FUNCTION_STATUS_ACTIVE",
    });
  });

  test("a viewer reads only", async () => {
    for (const [method, body] of [
      ["GetFunction", { id: "mine" }],
      ["ListFunctions", {}],
    ] as const)
      expect((await rpc(method, body, { key: viewer })).status).toBe(200);
    for (const method of ["RegisterFunction", "UpdateFunctionStatus", "DeleteFunction"])
      expect(await refused(method, {}, { key: viewer })).toMatchObject({
        status: 403,
        code: "permission_denied",
      });
    expect((await rpc("ListFunctions", {}, { key: null })).status).toBe(401);
  });

  test("the binary protocol says the same", async () => {
    const transport = createConnectTransport({
      baseUrl: server.url,
      httpVersion: "1.1",
      useBinaryFormat: true,
      interceptors: [
        (next) => (request) => {
          request.header.set("authorization", `Bearer ${server.adminKey}`);
          return next(request);
        },
      ],
    });
    const client = createClient(SvcService, transport);
    const sent = {
      id: "binary",
      triggers: [{ event: "a" }],
      debounce: { periodMs: 1_000, maxWaitMs: 2_000n },
    };
    const registered = await client.registerFunction(sent);
    expect(registered).toMatchObject({
      created: true,
      function: { id: "binary", version: 1, retryAttempts: 3 },
    });
    expect(await client.getFunction({ id: "binary" })).toMatchObject({ debounce: { maxWaitMs: 2_000n } });
    expect((await client.registerFunction(sent)).function).toEqual(registered.function!);
    await client.deleteFunction({ id: "binary" });
    await expect(client.getFunction({ id: "binary" })).rejects.toThrow("[not_found]");
  });
});
