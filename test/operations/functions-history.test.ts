import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("history of functions on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
  });
  afterAll(() => server.stop());

  const call = (method: string, body: unknown, options: object = {}) =>
    server.rpc("SvcService", method, body, options);
  const rpc = async (method: string, body: unknown) => (await call(method, body)).body;
  const register = (id: string, more: object = {}) => rpc("RegisterFunction", { id, ...more });

  test("every change is an entry, newest first, with who and why", async () => {
    await register("pay", { description: "one", change_reason: "not recorded" });
    await register("pay", { description: "two", change_reason: "better words" });
    await register("pay", { description: "two", change_reason: "no change at all" });
    await rpc("UpdateFunctionStatus", { id: "pay", status: "FUNCTION_STATUS_PAUSED" });
    const { entries, hasMore } = await rpc("ListFunctionHistory", { function_id: "pay" });
    expect(hasMore).toBeUndefined();
    expect(
      entries.map((entry: Record<string, unknown>) => [
        entry.entityVersion,
        entry.changeType,
        entry.changeReason,
        entry.actorId,
      ]),
    ).toEqual([
      ["3", "status_change", undefined, "ak_admin_bootstrap"],
      ["2", "update", "better words", "ak_admin_bootstrap"],
      ["1", "update", undefined, "ak_admin_bootstrap"],
    ]);
    expect(entries[2]).toMatchObject({
      functionId: "pay",
      functionSnapshot: { id: "pay", description: "one", version: 1, status: "FUNCTION_STATUS_ACTIVE" },
      eventId: expect.stringMatching(/^evt_/),
    });
    expect(Date.parse(entries[0].recordedAt)).toBeGreaterThan(0);
  });

  test("pages go on below the last entry", async () => {
    const first = await rpc("ListFunctionHistory", { functionId: "pay", limit: 2 });
    expect(first.entries.map((entry: { entityVersion: string }) => entry.entityVersion)).toEqual(["3", "2"]);
    expect(first.hasMore).toBe(true);
    const next = await rpc("ListFunctionHistory", { functionId: "pay", limit: 2, from_version: "2" });
    expect(next.entries.map((entry: { entityVersion: string }) => entry.entityVersion)).toEqual(["1"]);
    expect((await call("ListFunctionHistory", { functionId: "none" })).status).toBe(404);
  });

  test("one entry by its version", async () => {
    const { entry } = await rpc("GetFunctionAtVersion", { function_id: "pay", version: 2 });
    expect(entry).toMatchObject({ entityVersion: "2", functionSnapshot: { description: "two" } });
    expect((await call("GetFunctionAtVersion", { functionId: "pay", version: 9 })).status).toBe(404);
    expect((await call("GetFunctionAtVersion", { functionId: "pay" })).status).toBe(400);
  });

  test("a rollback is a new version, and an entry of its own", async () => {
    const back = await rpc("RollbackFunction", { function_id: "pay", version: 1, change_reason: "worse" });
    expect(back.function).toMatchObject({
      description: "one",
      version: 3,
      status: "FUNCTION_STATUS_ACTIVE",
    });
    const { entries } = await rpc("ListFunctionHistory", { functionId: "pay", limit: 1 });
    expect(entries[0]).toMatchObject({ entityVersion: "4", changeType: "rollback", changeReason: "worse" });
    expect((await rpc("GetFunction", { id: "pay" })).description).toBe("one");
    expect((await call("RollbackFunction", { functionId: "pay", version: 77 })).status).toBe(404);
    expect((await call("RollbackFunction", { functionId: "none", version: 1 })).status).toBe(404);
  });

  test("what was archived by then is no target", async () => {
    await rpc("UpdateFunctionStatus", { id: "pay", status: "archived" });
    const { entries } = await rpc("ListFunctionHistory", { functionId: "pay", limit: 1 });
    const refused = await call("RollbackFunction", { functionId: "pay", version: entries[0].entityVersion });
    expect(refused.body.code).toBe("invalid_argument");
  });

  test("of rollbacks at once one wins, and the others are told to try again", async () => {
    await register("race", { description: "one" });
    await register("race", { description: "two" });
    const answers = await Promise.all(
      Array.from({ length: 6 }, () => call("RollbackFunction", { functionId: "race", version: 1 })),
    );
    for (const answer of answers) if (answer.status !== 200) expect(answer.body.code).toBe("aborted");
    expect(answers.some((answer) => answer.status === 200)).toBe(true);
    const { entries } = await rpc("ListFunctionHistory", { functionId: "race" });
    const versions = entries.map((entry: { entityVersion: string }) => Number(entry.entityVersion));
    expect(versions).toEqual(versions.map((_: number, at: number) => versions.length - at));
  });

  test("the history outlives the function and goes on when it comes back", async () => {
    await register("again");
    await rpc("DeleteFunction", { id: "again" });
    const { entries } = await rpc("ListFunctionHistory", { functionId: "again" });
    expect(entries.map((entry: { changeType: string }) => entry.changeType)).toEqual(["delete", "update"]);
    await register("again");
    const after = await rpc("ListFunctionHistory", { functionId: "again" });
    expect(after.entries[0]).toMatchObject({ entityVersion: "3", changeType: "update" });
  });

  test("a paused function's queued runs go on at once when it is active again", async () => {
    await register("held", { triggers: [{ event: "held.asked" }] });
    const worker = pullWorker(server, "w-held");
    await worker.register("held");
    await rpc("UpdateFunctionStatus", { id: "held", status: "paused" });
    const { runId } = await rpc("InvokeFunction", { functionId: "held" });
    expect(await worker.poll()).toEqual([]);
    expect((await rpc("GetRun", { id: runId })).status).toBe("RUN_STATUS_WAITING_FOR_CAPACITY");
    await rpc("UpdateFunctionStatus", { id: "held", status: "active" });
    const [job] = await worker.poll();
    expect(job!.run_id).toBe(runId);
    await worker.complete(job!);
  });

  test("viewers read and change nothing; another environment's function looks like none", async () => {
    const { keys, tenancy } = server.running.domain;
    const elsewhere = await tenancy.createEnvironment({ orgId: "org_default", name: `fh-${engine}` });
    const keyOf = async (role: string, environmentId: string) =>
      (await keys.create({ orgId: "org_default", environmentId, name: "t", roleIds: [role] })).key;
    const viewer = await keyOf("role_viewer", "env_default");
    const stranger = await keyOf("role_admin", elsewhere.id);
    expect((await call("ListFunctionHistory", { functionId: "pay" }, { key: viewer })).status).toBe(200);
    const rollback = { functionId: "pay", version: 1 };
    expect((await call("RollbackFunction", rollback, { key: viewer })).status).toBe(403);
    for (const method of ["ListFunctionHistory", "GetFunctionAtVersion", "RollbackFunction"])
      expect((await call(method, rollback, { key: stranger })).status).toBe(404);
    expect((await call("ListFunctionHistory", { functionId: "pay" }, { key: stranger })).status).toBe(404);
  });
});
