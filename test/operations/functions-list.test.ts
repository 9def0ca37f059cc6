import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { FunctionStatus } from "../../src/gen/svc/v1/types_pb.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("the list of functions on %s", (engine) => {
  let server: TestServer;
  /** Of another environment, where another function of the same name lives. */
  let sibling: string;
  const rpc = (method: string, body: unknown, key = server.adminKey) =>
    server.rpc("SvcService", method, body, { key });
  const list = async (body: Record<string, unknown>, key = server.adminKey) => {
    const answer = await rpc("ListFunctions", body, key);
    expect(answer.status).toBe(200);
    const { functions = [], totalCount = 0, nextCursor } = answer.body;
    return { ids: functions.map((one: { id: string }) => one.id) as string[], totalCount, nextCursor };
  };

  beforeAll(async () => {
    server = await startTestServer({ engine });
    const { keys, tenancy } = server.running.domain;
    const { id: environmentId } = await tenancy.createEnvironment({ orgId: "org_default", name: "sibling" });
    const made = await keys.create({
      orgId: "org_default",
      environmentId,
      name: "test",
      roleIds: ["role_developer"],
    });
    sibling = made.key;
    for (const id of ["one", "two", "three", "four", "five"])
      await rpc("RegisterFunction", { id, name: `Say ${id} 100%` });
    await rpc("RegisterFunction", { id: "pushed", endpointUrl: "http://svc.invalid:1/" });
    await rpc("RegisterFunction", { id: "one", name: "Say one 100%" }, sibling);
    await rpc("UpdateFunctionStatus", { id: "two", status: "paused" });
    await rpc("UpdateFunctionStatus", { id: "three", status: "archived" });
  });
  afterAll(() => server.stop());

  test("is this environment's alone", async () => {
    const { ids, totalCount } = await list({});
    expect(ids.toSorted()).toEqual(["five", "four", "one", "pushed", "three", "two"]);
    expect(totalCount).toBe(6);
    expect(await list({}, sibling)).toEqual({ ids: ["one"], totalCount: 1, nextCursor: undefined });
  });

  test.each<[Record<string, unknown>, string[]]>([
    [{ name: "say" }, ["five", "four", "one", "three", "two"]],
    [{ name: "SAY T" }, ["three", "two"]],
    [{ name: "PUSH" }, ["pushed"]],
    [{ name: "0%" }, ["five", "four", "one", "three", "two"]],
    [{ name: "_" }, []],
    [{ name: "nobody" }, []],
    [{ name: "'; DROP TABLE functions; --" }, []],
    [{ status: "paused" }, ["two"]],
    [{ status: "PAUSED" }, ["two"]],
    [{ status: "FUNCTION_STATUS_PAUSED" }, ["two"]],
    [{ status: FunctionStatus.PAUSED }, ["two"]],
    [{ status: "archived" }, ["three"]],
    [{ status: "active", mode: "pull" }, ["five", "four", "one"]],
    [{ mode: "push" }, ["pushed"]],
    [{ mode: "EXECUTION_MODE_PUSH" }, ["pushed"]],
    [{ name: "say", status: "paused", mode: "push" }, []],
  ])("filters by %o", async (filter, expected) => {
    const { ids, totalCount } = await list(filter);
    expect(ids.toSorted()).toEqual(expected);
    expect(totalCount).toBe(expected.length);
  });

  test("pages by offset and by cursor, every function once", async () => {
    const all = (await list({})).ids;
    expect((await list({ limit: 2, offset: 3 })).ids).toEqual(all.slice(3, 5));
    expect((await list({ offset: 50 })).ids).toEqual([]);
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await list({ limit: 2, ...(cursor && { cursor }) });
      expect(page.totalCount).toBe(6);
      seen.push(...page.ids);
      cursor = page.nextCursor;
    } while (cursor);
    expect(seen).toEqual(all);
  });

  test.each<[string, Record<string, unknown>]>([
    ["status", { status: "asleep" }],
    ["status", { status: 77 }],
    ["mode", { mode: "sideways" }],
    ["cursor", { cursor: "nonsense" }],
    ["cursor", { cursor: "MS5h", offset: 2 }],
    ["offset", { offset: -1 }],
    ["name", { name: "x".repeat(257) }],
  ])("bad input names %s", async (field, body) => {
    const { status, body: answer } = await rpc("ListFunctions", body);
    expect({ status, code: answer.code }).toEqual({ status: 400, code: "invalid_argument" });
    expect(answer.message).toContain(field);
  });
});
