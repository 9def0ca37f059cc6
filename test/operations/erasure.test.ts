import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import {
  type Client,
  createClient,
  createFunction,
  createWorker,
  type HandlerContext,
  NonRetryableError,
} from "../../src/sdk/index.ts";
import { tables } from "../../src/store/tables/index.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { lookerKey } from "../support/thing-doors.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines)("what is over is deleted and redacted on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  /** Of another environment. */
  let elsewhere = "";
  beforeAll(async () => {
    server = await startTestServer({
      engine,
      settings: { pollHoldMs: 100, auditExcludedActions: "runs:*,events:*" },
    });
    client = createClient({ url: server.url, apiKey: server.adminKey });
    const { id } = (await server.api("/api/v1/environments", { body: { name: "elsewhere" } })).body;
    elsewhere = (await server.api("/api/v1/apikeys", { body: { name: "elsewhere", env_id: id } })).body.key;
  }, 60_000);
  afterAll(() => server.stop());

  const rpc = (method: string, body: object, options: object = {}) =>
    server.rpc("SvcService", method, body, options);
  const codeOf = async (asked: ReturnType<typeof rpc>) => (await asked).body.code as string | undefined;
  const all = <Row>(query: ReturnType<typeof sql>) => server.running.domain.store.all<Row & object>(query);
  const runOf = async (id: string) => (await rpc("GetRun", { id })).body;

  /** Which tables have this text in any column. */
  async function tablesWith(text: string): Promise<string[]> {
    const found: string[] = [];
    for (const table of Object.keys(tables))
      if (JSON.stringify(await all(sql`SELECT * FROM ${sql.raw(table)}`)).includes(text)) found.push(table);
    return found;
  }
  const audited = async (operation: string, reason: string) =>
    until(
      async () => {
        const rows = await all<{ payload: string; caller_id: string }>(
          sql`SELECT payload, caller_id FROM auth_audit WHERE operation = ${operation}`,
        );
        return rows.find(({ payload }) => payload?.includes(reason));
      },
      { about: `the row of ${operation}` },
    );

  /** Runs of this function end at once as the event's data says. */
  async function ended(functionId: string, outcomes: readonly ("completed" | "failed")[]): Promise<string[]> {
    await rpc("RegisterFunction", { id: functionId, triggers: [], retryPolicy: { maxAttempts: 1 } });
    const worker = pullWorker(server, `w-${functionId}`);
    await worker.register(functionId);
    const ids: string[] = [];
    for (const outcome of outcomes) {
      const { runId } = (await rpc("InvokeFunction", { functionId })).body;
      ids.push(runId);
      const [job] = await until(
        async () => {
          const jobs = await worker.poll();
          return jobs.length > 0 && jobs;
        },
        { about: "the job" },
      );
      const error = { message: `lost ${functionId}`, retryable: false };
      await worker.report(job!, outcome === "completed" ? { status: outcome } : { status: outcome, error });
    }
    return ids;
  }

  async function withWorker<T>(
    functions: NonNullable<Parameters<typeof createWorker>[0]["functions"]>,
    work: () => Promise<T>,
  ): Promise<T> {
    const worker = createWorker({ client, handleSignals: false, log: silent, functions });
    await worker.start();
    try {
      return await work();
    } finally {
      await worker.drain();
    }
  }

  /** A run that failed, with the text wherever a run can have one. */
  async function told(id: string, text: string): Promise<string> {
    const work = async ({ step, log, run, event }: HandlerContext) => {
      const given = (event.data as { text: string }).text;
      log.warn(`begins with ${given}`, { given });
      await run.output("said").write({ given });
      await step.run("kept", async () => {
        await client.runs.signal(run.id, "hint", { given });
        return { made: given };
      });
      run.set({ who: given });
      await step.run(
        "tried",
        () => {
          throw new Error(`no ${given}`);
        },
        { retry: { maxAttempts: 2, delay: "1ms" } },
      );
    };
    const given = createFunction(
      {
        id,
        event: `${id}.asked`,
        recording: true,
        retry: { maxAttempts: 1 },
        attributes: { who: { path: "text" } },
      },
      work,
    );
    return withWorker([given], async () => {
      const { runIds } = await client.emit(`${id}.asked`, { text });
      const run = await client.waitForRun(runIds[0]!);
      expect(run.status).toBe("failed");
      const [step] = await client.getRunSteps(run.id);
      await client.patchStep(step!.id, { patched: text }, { reason: text });
      return run.id;
    });
  }

  test("a deleted run is gone with all that is its, and its event stays", async () => {
    const runId = await told("gone", "text-of-gone");
    const { eventId } = await runOf(runId);
    expect(await tablesWith(runId)).toContain("run_logs");
    const reason = "asked by the person";
    expect((await rpc("DeleteRun", { runId, reason })).body).toEqual({});
    expect(await codeOf(rpc("GetRun", { id: runId }))).toBe("not_found");
    expect(await codeOf(rpc("DeleteRun", { runId }))).toBe("not_found");
    // The audit says what was deleted, and keys of emits which runs they began.
    expect(
      (await tablesWith(runId)).filter((table) => !/^(auth_audit|idempotency_keys)$/.test(table)),
    ).toEqual([]);
    expect((await server.api(`/api/v1/events/${eventId}`)).body.data).toEqual({ text: "text-of-gone" });
    expect((await audited("runs.delete", reason))?.caller_id).toBe("ak_admin_bootstrap");
  }, 20_000);

  test("neither a run that goes on nor one of another environment is deleted or redacted", async () => {
    await rpc("RegisterFunction", { id: "idle", triggers: [] });
    const { runId } = (await rpc("InvokeFunction", { functionId: "idle" })).body;
    for (const method of ["DeleteRun", "RedactRun"]) {
      expect(await codeOf(rpc(method, { runId }))).toBe("failed_precondition");
      expect(await codeOf(rpc(method, { runId }, { key: elsewhere }))).toBe("not_found");
      expect(await codeOf(rpc(method, { runId: "run_none" }))).toBe("not_found");
    }
    const [over = ""] = await ended("stays", ["completed"]);
    expect(await codeOf(rpc("DeleteRun", { runId: over }, { key: elsewhere }))).toBe("not_found");
    expect(await codeOf(rpc("RedactRun", { runId: over }, { key: elsewhere }))).toBe("not_found");
    const many = await rpc("DeleteRuns", { functionId: "stays" }, { key: elsewhere });
    expect(many.body).toEqual({});
    expect((await runOf(over)).status).toBe("RUN_STATUS_COMPLETED");
    const { eventId } = await runOf(over);
    expect(await codeOf(rpc("RedactEvent", { eventId }, { key: elsewhere }))).toBe("not_found");
  }, 20_000);

  test("roles and deny policies decide", async () => {
    const [runId = "", other = ""] = await ended("judged", ["completed", "completed"]);
    const viewer = await lookerKey(server, `viewer-${engine}`, undefined, "viewer");
    const developer = await lookerKey(server, `developer-${engine}`);
    const { eventId } = await runOf(runId);
    for (const [method, body, role] of [
      ["DeleteRun", { runId }, viewer],
      ["DeleteRuns", {}, viewer],
      ["RedactRun", { runId }, developer],
      ["RedactStep", { stepId: `${runId}:a:0` }, developer],
      ["RedactEvent", { eventId }, developer],
    ] as const)
      expect([method, await codeOf(rpc(method, body, { key: role.key }))]).toEqual([
        method,
        "permission_denied",
      ]);
    const denied = await lookerKey(server, `denied-${engine}`, {
      ...{ actions: "runs:delete", resources: `run:*:${runId}` },
    });
    expect(await codeOf(rpc("DeleteRun", { runId }, { key: denied.key }))).toBe("permission_denied");
    const many = await rpc("DeleteRuns", { functionId: "judged" }, { key: denied.key });
    expect(many.body).toEqual({ deleted: 1 });
    expect((await runOf(runId)).id).toBe(runId);
    expect(await codeOf(rpc("GetRun", { id: other }))).toBe("not_found");
    const hidden = await lookerKey(
      server,
      `hidden-${engine}`,
      { actions: "events:redact", resources: "event:*:secret.*" },
      "admin",
    );
    const { eventId: secret } = (await rpc("Emit", { event: "secret.told", data: { n: 1 } })).body;
    expect(await codeOf(rpc("RedactEvent", { eventId: secret }, { key: hidden.key }))).toBe(
      "permission_denied",
    );
    const appended = await server.rpc("EntityStreamService", "AppendEvent", {
      ...{ entityId: "vip", entityType: "person", eventName: "person.named", data: { n: 1 } },
    });
    const noStream = { actions: "entities:append", resources: "stream:*:vip" };
    const apart = await lookerKey(server, `apart-${engine}`, noStream, "admin");
    const ofStream = { eventId: appended.body.eventId };
    expect(await codeOf(rpc("RedactEvent", ofStream, { key: apart.key }))).toBe("permission_denied");
    expect((await rpc("RedactEvent", { eventId }, { key: hidden.key })).status).toBe(200);
  }, 20_000);

  test("runs go by function, status and time, at most so many a call", async () => {
    const ids = await ended("many", ["failed", "completed", "failed", "completed", "completed"]);
    const { createdAt: until3 } = await runOf(ids[2]!);
    const asked = { functionId: "many", statuses: ["failed"] };
    expect((await rpc("DeleteRuns", { ...asked, limit: 1 })).body).toEqual({ deleted: 1, hasMore: true });
    expect((await rpc("DeleteRuns", { ...asked, limit: 1 })).body).toEqual({ deleted: 1 });
    expect((await rpc("DeleteRuns", asked)).body).toEqual({});
    const timely = { functionId: "many", until: until3, statuses: ["RUN_STATUS_COMPLETED", "CANCELLED"] };
    expect((await rpc("DeleteRuns", timely)).body).toEqual({ deleted: 1 });
    expect((await rpc("ListRuns", { functionId: "many" })).body.totalCount).toBe(2);
    expect(
      (await server.rpc("ErrorService", "ListErrorGroups", { functionId: "many" })).body.groups ?? [],
    ).toEqual([]);
    expect(await codeOf(rpc("DeleteRuns", { statuses: ["running"] }))).toBe("invalid_argument");
    const empty = [{ functionId: "" }, { functionId: null }, { until: "" }, { statuses: [] }];
    for (const odd of [...empty, { functionID: "many" }, { limit: 10_001 }, { until: "yesterday" }])
      expect(await codeOf(rpc("DeleteRuns", odd))).toBe("invalid_argument");
    expect(await client.runs.deleteMany({ functionId: "many" })).toEqual({ deleted: 2, hasMore: false });
  }, 20_000);

  test("of a deletion and a resume at once one wins, and no half run is left", async () => {
    const ids = await ended(
      "raced",
      Array.from({ length: 8 }, () => "failed" as const),
    );
    await Promise.all(
      ids.flatMap((runId, at) => [
        rpc("ResumeRun", { runId }),
        rpc(at % 2 === 0 ? "DeleteRun" : "RedactRun", { runId }),
        rpc("ResumeRun", { runId }),
      ]),
    );
    for (const runId of ids) {
      const [run] = await all<{ status: string; redacted_at: number | null }>(
        sql`SELECT status, redacted_at FROM runs WHERE id = ${runId}`,
      );
      const [execution] = await all(sql`SELECT run_id FROM executions WHERE run_id = ${runId}`);
      const notes = await all(sql`SELECT sequence FROM run_history WHERE run_id = ${runId}`);
      expect(run?.status === "active").toBe(execution !== undefined);
      expect(notes.length > 0).toBe(run !== undefined);
      if (run?.status === "active") expect(run.redacted_at).toBeNull();
    }
  }, 20_000);

  test("a run that another one waits for stays until that was told", async () => {
    const held = Promise.withResolvers<void>();
    const child = createFunction({ id: "leaf", retry: { maxAttempts: 1 } }, async () => {
      await held.promise;
      return { kept: "for the parent" };
    });
    const parent = createFunction({ id: "trunk", event: "trunk.asked" }, async ({ step }) =>
      step.invoke("leaf", {}),
    );
    await withWorker([child, parent], async () => {
      const { runIds } = await client.emit("trunk.asked", {});
      const childId = await until(async () => (await client.listRuns({ functionId: "leaf" })).runs[0]?.id, {
        about: "the child",
      });
      await until(async () => (await client.getRun(runIds[0]!)).status === "paused", { about: "the wait" });
      await client.pauseRun(runIds[0]!);
      held.resolve();
      await client.waitForRun(childId);
      for (const method of ["DeleteRun", "RedactRun"])
        expect(await codeOf(rpc(method, { runId: childId }))).toBe("failed_precondition");
      expect((await rpc("DeleteRuns", { functionId: "leaf" })).body).toEqual({});
      await client.resumeRun(runIds[0]!);
      expect((await client.waitForRun(runIds[0]!)).output).toEqual({ kept: "for the parent" });
      expect((await rpc("DeleteRun", { runId: childId })).status).toBe(200);
    });
  }, 20_000);

  test("a redacted run shows its old text at no door", async () => {
    const text = "text-of-redacted";
    const runId = await told("wiped", text);
    const before = await runOf(runId);
    await server.api("/api/v1/debug/requests");
    await rpc("Emit", { event: "seen.told", data: { text } });
    const reason = "article 17";
    const answer = (await rpc("RedactRun", { runId, reason })).body;
    expect(answer).toMatchObject({ eventId: before.eventId, redactedBy: "ak_admin_bootstrap" });
    expect(answer.eventRedacted).toBeUndefined();
    expect(answer.unredactedEventIds).toEqual([before.eventId]);
    await audited("runs.redact", reason);
    const mark = { $redacted: true, at: expect.any(String), by: "ak_admin_bootstrap" };
    const run = await runOf(runId);
    expect(run).toMatchObject({
      ...{ id: runId, eventId: before.eventId, status: "RUN_STATUS_FAILED", createdAt: before.createdAt },
      ...{ input: mark, redactedAt: answer.redactedAt, redactedBy: "ak_admin_bootstrap" },
      error: { code: "REDACTED", message: expect.stringContaining('"$redacted":true') },
      attributes: [{ name: "who", text: expect.stringContaining('"$redacted":true') }],
    });
    expect(run.errorGroup).toBeUndefined();
    const { steps } = (await rpc("GetRunSteps", { runId, withTries: true })).body;
    expect(steps).toMatchObject([
      { name: "kept", output: mark, originalOutput: mark, redactedAt: answer.redactedAt },
      { name: "tried", error: { code: "REDACTED" }, tryLog: [{ error: { code: "REDACTED" } }, {}] },
    ]);
    expect((await rpc("RedactEvent", { eventId: before.eventId, reason })).status).toBe(200);
    await audited("events.redact", reason);
    // Its other event has it still, and requests that were captured are forgotten.
    expect(await tablesWith(text)).toEqual(["events"]);
    expect(await all(sql`SELECT id FROM events WHERE data LIKE ${`%${text}%`}`)).toHaveLength(1);
    const shown = await Promise.all([
      rpc("GetRun", { id: runId, withAttempts: true }),
      rpc("ListRuns", {}),
      rpc("GetRunLogs", { runId }),
      server.rpc("ErrorService", "ListErrorGroups", {}),
      server.api(`/api/v1/runs/${runId}/logs`),
      server.api(`/api/v1/events/${before.eventId}`),
      server.api("/api/v1/debug/requests"),
      server.rpc("TimeTravelService", "GetRunTimeline", { runId }),
      server.rpc("TimeTravelService", "GetRunStateAt", { runId }),
      server.rpc("QueryService", "ExecuteSQL", { query: `SELECT * FROM runs WHERE id = '${runId}'` }),
      server.rpc("QueryService", "ExecuteSQL", { query: `SELECT * FROM steps WHERE run_id = '${runId}'` }),
    ]);
    expect((await rpc("ListRuns", { errorText: text })).body.runs ?? []).toEqual([]);
    for (const { body } of shown) expect(JSON.stringify(body)).not.toContain(text);
    const [asRow] = shown.slice(-2)[0]!.body.rows ?? [];
    expect(JSON.stringify(asRow)).toContain("null");
    const { unredactedEventIds: _left, ...stays } = answer;
    expect((await rpc("RedactRun", { runId })).body).toEqual({ ...stays, eventRedacted: true });
    expect(await codeOf(rpc("ResumeRun", { runId }))).toBe("failed_precondition");
    expect(await codeOf(rpc("PatchStep", { stepId: steps[0].id, output: { n: 1 } }))).toBe(
      "failed_precondition",
    );
    expect((await rpc("DeleteRun", { runId })).status).toBe(200);
  }, 30_000);

  test("one step is redacted, and what others have stays", async () => {
    const runId = await told("part", "text-of-part");
    const { steps } = (await rpc("GetRunSteps", { runId })).body;
    expect(await codeOf(rpc("RedactStep", { stepId: `${runId}:none:0` }))).toBe("not_found");
    expect(await codeOf(rpc("RedactStep", { stepId: steps[0].id }, { key: elsewhere }))).toBe("not_found");
    const first = (await rpc("RedactStep", { stepId: steps[0].id, reason: "wrong data" })).body;
    expect(first.redactedBy).toBe("ak_admin_bootstrap");
    expect((await rpc("RedactStep", { stepId: steps[0].stepId })).body).toEqual(first);
    const [kept, tried] = (await rpc("GetRunSteps", { runId })).body.steps;
    expect(kept).toMatchObject({ output: { $redacted: true }, redactedAt: first.redactedAt });
    expect(tried.error.message).toBe("no text-of-part");
    const notes = await all<{ detail: string }>(
      sql`SELECT detail FROM run_history WHERE run_id = ${runId} AND type = 'step.patched'`,
    );
    expect(JSON.stringify(notes)).not.toContain("text-of-part");
    expect((await runOf(runId)).redactedAt).toBeUndefined();
    expect(await codeOf(rpc("ResumeRun", { runId }))).toBe("failed_precondition");
  }, 20_000);

  test("an event of a stream loses its snapshots, and twice is a success", async () => {
    const appended = await server.rpc("EntityStreamService", "AppendEvent", {
      ...{ entityId: "ann", entityType: "person", eventName: "person.named", expectedVersion: 0 },
      data: { text: "text-of-ann" },
    });
    await server.rpc("EntityStreamService", "CreateSnapshot", {
      ...{ entityId: "ann", entityType: "person", entityVersion: 1, state: { text: "text-of-ann" } },
    });
    const { eventId } = appended.body;
    const done = (await rpc("RedactEvent", { eventId, reason: "asked" })).body;
    expect(done).toMatchObject({ entityVersion: "1", redactedAt: expect.any(String) });
    expect((await rpc("RedactEvent", { eventId })).body).toEqual(done);
    expect(await codeOf(rpc("RedactEvent", { eventId, entityId: "ann" }))).toBe("invalid_argument");
    expect(await codeOf(rpc("RedactEvent", { eventId: "evt_none" }))).toBe("not_found");
    expect(await tablesWith("text-of-ann")).toEqual([]);
    const source = { name: "hooks", eventPrefix: "hooks" };
    const { id, ingestToken } = (await server.rpc("WebhookService", "CreateWebhookSource", source)).body;
    await server.api(`/api/v1/webhooks/${id}?token=${ingestToken}`, { body: { text: "text-of-hook" } });
    const [hook] = await all<{ event_id: string }>(sql`SELECT event_id FROM webhook_deliveries`);
    await rpc("RedactEvent", { eventId: hook!.event_id });
    expect(await tablesWith("text-of-hook")).toEqual([]);
  }, 20_000);

  test("a child that was deleted is not waited for when its parent is resumed", async () => {
    const child = createFunction({ id: "twig", retry: { maxAttempts: 1 } }, async () => {
      throw new NonRetryableError("broken");
    });
    const parent = createFunction(
      { id: "branch", event: "branch.asked", retry: { maxAttempts: 1 } },
      async ({ step }) => step.invoke("twig", {}),
    );
    await withWorker([child, parent], async () => {
      const { runIds } = await client.emit("branch.asked", {});
      expect((await client.waitForRun(runIds[0]!)).status).toBe("failed");
      expect((await rpc("DeleteRuns", { functionId: "twig" })).body).toEqual({ deleted: 1 });
      await client.resumeRun(runIds[0]!);
      const again = await client.waitForRun(runIds[0]!);
      expect(again.status).toBe("failed");
    });
  }, 20_000);
});
