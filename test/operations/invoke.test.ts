import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("invoking functions on %s", (engine) => {
  let server: TestServer;
  const rpc = (method: string, body: unknown, options: CallOptions = {}) =>
    server.rpc("SvcService", method, body, options);
  const register = async (id: string, more: object = {}) => {
    const { status, body } = await rpc("RegisterFunction", { id, ...more });
    expect({ status, body }).toMatchObject({ status: 200 });
  };
  const invoke = async (functionId: string, more: object = {}, options: CallOptions = {}) => {
    const { status, body } = await rpc("InvokeFunction", { functionId, ...more }, options);
    expect({ status, body }).toMatchObject({ status: 200 });
    return body as { runId: string; eventId: string };
  };
  const refused = async (method: string, body: unknown, options: CallOptions = {}) => {
    const { status, body: answer } = await rpc(method, body, options);
    return [status, answer.code];
  };
  const listed = async (functionId: string) =>
    ((await rpc("ListRuns", { functionId })).body.runs ?? []) as { id: string; eventName: string }[];

  beforeAll(async () => {
    server = await startTestServer({ engine });
  });
  afterAll(() => server.stop());

  test("one run of that function and one event named by it, whatever triggers there are", async () => {
    await register("plain");
    await register("follower", { triggers: [{ event: "plain" }] });
    const { runId, eventId } = await invoke("plain", { data: { a: 1 } });
    const run = (await rpc("GetRun", { id: runId })).body;
    expect(run).toMatchObject({ functionId: "plain", eventId, eventName: "plain", input: { a: 1 } });
    expect((await server.api(`/api/v1/events/${eventId}`)).body).toMatchObject({
      name: "plain",
      source: "invoke",
      data: { a: 1 },
    });
    expect(await listed("follower")).toEqual([]);
    // A function with event triggers may be invoked by a client, and others with the same trigger stay still.
    await register("triggered", { triggers: [{ event: "t" }] });
    await invoke("triggered", { dataValue: [1, 2] });
    expect(await listed("triggered")).toHaveLength(1);
  });

  test("a step of a run is the parent of what it invokes", async () => {
    await register("child");
    await register("with-trigger", { triggers: [{ event: "x" }] });
    const { events, store } = server.running.domain;
    const origin = { environmentId: server.env, runId: "run_parent" };
    const draft = { data: "{}", value: {}, metadata: null, idempotencyKey: null };
    const parent = { runId: "run_parent", stepId: "s:child:0", depth: 3 };
    const { runIds } = await events.invoke({ ...draft, functionId: "child", parent }, origin);
    expect((await rpc("GetRun", { id: runIds[0] })).body).toMatchObject({
      parentRunId: "run_parent",
      parentStepId: "s:child:0",
    });
    expect(
      await store.one(sql`SELECT r.depth, e.parent_run_id FROM runs r JOIN executions e ON e.run_id = r.id
      WHERE r.id = ${runIds[0]}`),
    ).toEqual({ depth: 4, parent_run_id: "run_parent" });
    for (const [functionId, depth] of [
      ["with-trigger", 0],
      ["child", 32],
    ] as const)
      await expect(
        events.invoke({ ...draft, functionId, parent: { ...parent, depth } }, origin),
      ).rejects.toMatchObject({ kind: "failed_precondition" });
  });

  test("a waiting worker gets it with its answer", async () => {
    await register("worked");
    await server.api("/api/v1/workers/w/register", { body: { function_ids: ["worked"] } });
    const poll = server.api("/api/v1/workers/w/jobs?available=1");
    const { runId } = await invoke("worked", { data: { b: 2 } });
    const jobs =
      (await poll).body?.jobs ??
      (await until(async () => (await server.api("/api/v1/workers/w/jobs?available=1")).body?.jobs, {
        about: "the job",
      }));
    expect(jobs).toMatchObject([
      { run_id: runId, event: { name: "worked", source: "invoke", data: { b: 2 } } },
    ]);
  });

  test("unknown, archived and paused functions", async () => {
    expect(await refused("InvokeFunction", { functionId: "nobody" })).toEqual([404, "not_found"]);
    expect(await refused("InvokeFunction", {})).toEqual([400, "invalid_argument"]);
    await register("paused");
    await rpc("UpdateFunctionStatus", { id: "paused", status: "FUNCTION_STATUS_PAUSED" });
    await server.api("/api/v1/workers/p/register", { body: { function_ids: ["paused"] } });
    const { runId } = await invoke("paused");
    expect((await server.api("/api/v1/workers/p/jobs?available=1")).status).toBe(204);
    expect((await rpc("GetRun", { id: runId })).body.status).toBe("RUN_STATUS_WAITING_FOR_CAPACITY");
    await rpc("UpdateFunctionStatus", { id: "paused", status: "FUNCTION_STATUS_ARCHIVED" });
    expect(await refused("InvokeFunction", { functionId: "paused" })).toEqual([400, "failed_precondition"]);
  });

  test("one idempotency scope over emits and invokes", async () => {
    await register("once");
    await register("other");
    const first = await invoke("once", { data: { n: 1 }, idempotencyKey: "k1" });
    expect(await invoke("once", { data: { n: 2 } }, { headers: { "Idempotency-Key": "k1" } })).toEqual(first);
    expect(await refused("InvokeFunction", { functionId: "other", idempotencyKey: "k1" })).toEqual([
      409,
      "already_exists",
    ]);
    expect(await refused("Emit", { event: "once", idempotencyKey: "k1" })).toEqual([409, "already_exists"]);
    await rpc("Emit", { event: "e", idempotencyKey: "k2" });
    expect(await refused("InvokeFunction", { functionId: "once", idempotencyKey: "k2" })).toEqual([
      409,
      "already_exists",
    ]);
    expect(
      await refused(
        "InvokeFunction",
        { functionId: "once", idempotencyKey: "a" },
        { headers: { "Idempotency-Key": "b" } },
      ),
    ).toEqual([400, "invalid_argument"]);
    // Twins on their way at once are one.
    const twins = await Promise.all(
      Array.from({ length: 8 }, (_, n) => invoke("once", { data: { n }, idempotencyKey: "k3" })),
    );
    expect(new Set(twins.map(({ runId }) => runId)).size).toBe(1);
    expect(await listed("once")).toHaveLength(2);
    // What failed is not recorded; what succeeded is answered again, also when it could not be done any more.
    expect(await refused("InvokeFunction", { functionId: "later", idempotencyKey: "k4" })).toEqual([
      404,
      "not_found",
    ]);
    await register("later");
    const late = await invoke("later", { idempotencyKey: "k4" });
    await rpc("DeleteFunction", { id: "later" });
    expect(await invoke("later", { idempotencyKey: "k4" })).toEqual(late);
    expect(await refused("InvokeFunction", { functionId: "later" })).toEqual([404, "not_found"]);
  });
});
