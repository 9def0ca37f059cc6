import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { pullWorker } from "../support/pull-worker.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const name = "svc.run.failed";

describe.each(engines)("the event of a failed run on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
    expect((await tells(true)).body).toMatchObject({ id: server.env, run_failed_events: true });
  }, 120_000);
  afterAll(() => server?.stop());

  const tells = (is: boolean) =>
    server.api(`/api/v1/environments/${server.env}`, { method: "PUT", body: { run_failed_events: is } });
  const ok = async (method: string, body: object) => {
    const answer = await server.rpc("SvcService", method, body);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };
  let made = 0;
  /** A function with a worker of its own. */
  async function fresh(more: object = {}) {
    const id = `f${++made}`;
    await ok("RegisterFunction", { id, retry: { maxAttempts: 1 }, ...more });
    const worker = pullWorker(server, `w-${id}`);
    await worker.register(id);
    return { id, worker };
  }
  const jobOf = ({ id, worker }: Awaited<ReturnType<typeof fresh>>, runId?: string) =>
    until(async () => (await worker.poll(10)).find((job) => runId === undefined || job.run_id === runId), {
      about: `a job of ${id}`,
      deadlineMs: 15_000,
    });
  /** Starts a run and fails it. */
  async function failed(one: Awaited<ReturnType<typeof fresh>>, error: object = {}) {
    const { runId, eventId } = await ok("InvokeFunction", { functionId: one.id });
    const job = await jobOf(one, runId);
    await one.worker.report(job, {
      status: "failed",
      error: { message: "no such card", code: "CARD", retryable: false, ...error },
    });
    return { runId: runId as string, eventId: eventId as string };
  }
  const told = async (): Promise<{ id: string; data: Record<string, unknown>; source: string }[]> =>
    (await server.api(`/api/v1/events?names=${name}&limit=200`)).body.events.filter(
      // One that is redacted says nothing.
      ({ data }: { data: object | null }) => data !== null,
    );
  const toldOf = (runId: string) =>
    until(async () => (await told()).filter(({ data }) => data.runId === runId)[0], {
      ...{ about: `the event of ${runId}`, deadlineMs: 15_000 },
    });
  /** Until every failure so far has its event, or needs none. */
  const isQuiet = () =>
    until(
      async () =>
        (await server.running.domain.store.one<{ count: number }>(
          sql`SELECT count(*) AS count FROM failed_runs`,
        ))!.count === 0,
      { about: "no failure to be left", deadlineMs: 15_000 },
    );

  test("says what failed, and why, once", async () => {
    const one = await fresh();
    const { runId, eventId } = await failed(one);
    const event = await toldOf(runId);
    expect(event).toMatchObject({
      source: "svc",
      data: {
        ...{ runId, function: one.id, attempts: 1, at: expect.any(String) },
        error: { code: "CARD", message: "no such card" },
        event: { id: eventId, name: one.id },
      },
    });
    await isQuiet();
    expect((await told()).filter(({ data }) => data.runId === runId)).toHaveLength(1);
  });

  test("comes after the last attempt, and for a run that timed out; none for one that was cancelled", async () => {
    const one = await fresh({ retry: { maxAttempts: 2, initialDelayMs: 1 } });
    const { runId } = await ok("InvokeFunction", { functionId: one.id });
    for (let attempt = 1; attempt <= 2; attempt++) {
      const job = await jobOf(one, runId);
      expect((await told()).filter(({ data }) => data.runId === runId)).toEqual([]);
      await one.worker.report(job, { status: "failed", error: { message: "again", retryable: true } });
    }
    expect(await toldOf(runId)).toMatchObject({ data: { attempts: 2 } });
    const slow = await fresh({ timeoutMs: 1_000 });
    const late = await ok("InvokeFunction", { functionId: slow.id });
    expect((await toldOf(late.runId)).data).toMatchObject({ function: slow.id });
    const cancelled = await ok("InvokeFunction", { functionId: one.id });
    await ok("CancelRun", { id: cancelled.runId });
    await isQuiet();
    expect((await told()).filter(({ data }) => data.runId === cancelled.runId)).toEqual([]);
  });

  test("holds no secret of the function", async () => {
    await server.api("/api/v1/secrets", { body: { name: "CARD_KEY", value: "sk_live_1234567890" } });
    const one = await fresh({ secrets: ["CARD_KEY"] });
    const { runId } = await failed(one, { message: "refused: sk_live_1234567890 is no key" });
    expect((await toldOf(runId)).data.error).toMatchObject({ message: "refused: *** is no key" });
    // Nor a part of one where the text is cut, and none in its other words.
    const secret = "sk_live_1234567890";
    const long = await failed(one, { message: secret.repeat(300), code: secret, name: `No${secret}` });
    const { error } = (await toldOf(long.runId)).data;
    expect(error).toEqual({ code: "***", name: "No***", message: "***".repeat(300) });
  });

  test("starts functions that name it, and none by a pattern", async () => {
    const handler = await fresh({ triggers: [{ event: name }] });
    const wide = await fresh({ triggers: [{ event: ">" }, { event: "svc.>" }, { event: "svc.run.*" }] });
    const { runId } = await failed(await fresh());
    const job = await jobOf(handler);
    expect(job.event).toMatchObject({ name, data: { runId } });
    await isQuiet();
    const { runs = [] } = await ok("ListRuns", { functionId: wide.id });
    expect(runs).toEqual([]);
    await handler.worker.complete(job);
    await server.rpc("SvcService", "DeleteFunction", { id: wide.id });
    await server.rpc("SvcService", "DeleteFunction", { id: handler.id });
  });

  test("is not emitted for a run that it began, through any chain", async () => {
    const handler = await fresh({ triggers: [{ event: name }] });
    const next = "chain.next";
    const further = await fresh({ triggers: [{ event: next }] });
    const { runId } = await failed(await fresh());
    const first = await jobOf(handler);
    const headers = { "x-svc-run-id": first.run_id };
    await server.rpc("SvcService", "Emit", { event: next }, { headers });
    const second = await jobOf(further);
    const invoked = await fresh();
    const asked = { type: "invoke_function", function_id: invoked.id };
    expect((await further.worker.leave(second, "child", asked)).status).toBe(200);
    const third = await jobOf(invoked);
    for (const [one, job] of [
      [handler, first],
      [invoked, third],
    ] as const)
      await one.worker.report(job, { status: "failed", error: { message: "itself", retryable: false } });
    await toldOf(runId);
    await isQuiet();
    const own = [first.run_id, second.run_id, third.run_id];
    expect((await told()).filter(({ data }) => own.includes(data.runId as string))).toEqual([]);
    await server.rpc("SvcService", "DeleteFunction", { id: handler.id });
  });

  test("cannot be emitted by anybody else, at any door", async () => {
    const refusedBy = async (
      asked: Promise<{ status: number; body: { message?: string; error?: string } }>,
    ) => {
      const { status, body } = await asked;
      return [status, `${body.message ?? body.error}`.includes("the server alone emits")];
    };
    const rpc = (service: string, method: string, body: object) => server.rpc(service, method, body);
    const doors = {
      emit: rpc("SvcService", "Emit", { event: name }),
      trigger: rpc("SvcService", "Trigger", { event: name }),
      pubsub: rpc("PubSubService", "Emit", { event: name }),
      batch: rpc("SvcService", "TriggerBatch", { events: [{ event: "a.b" }, { event: name }] }),
      sync: rpc("SvcService", "TriggerSync", { event: name }),
      delayed: rpc("SvcService", "Emit", { event: name, delayMs: 60_000 }),
      append: rpc("EntityStreamService", "AppendEvent", { entityId: "e1", entityType: "e", eventName: name }),
    };
    for (const [door, asked] of Object.entries(doors))
      expect([door, await refusedBy(asked)]).toEqual([door, [400, true]]);
    const { body: source } = await rpc("WebhookService", "CreateWebhookSource", {
      ...{ name: "hook", eventPrefix: "svc.run", verifyConfig: { eventNamePath: "header:x-event" } },
    });
    const sent = await server.api(`/api/v1/webhooks/${source.id}?token=${source.ingestToken}`, {
      ...{ body: {}, headers: { "x-event": "failed" } },
    });
    expect(sent.status).toBe(400);
    const registered = await rpc("SvcService", "RegisterFunction", { id: name });
    expect([registered.status, registered.body.message]).toEqual([400, expect.stringContaining(name)]);
    expect((await told()).filter(({ source: from }) => from !== "svc")).toEqual([]);
  });

  test("takes no room of a quota, and passes one that is used up", async () => {
    const one = await fresh();
    const path = `/api/v1/environments/${server.env}/quotas`;
    const used = async () =>
      (await server.api(path)).body.quotas.find(({ quota }: { quota: string }) => quota === "stored_bytes")
        .used;
    await server.api(path, { method: "PUT", body: { stored_bytes: 2 ** 40 } });
    const { runId } = await ok("InvokeFunction", { functionId: one.id });
    const job = await jobOf(one, runId);
    const before = await used();
    await server.api(path, { method: "PUT", body: { stored_bytes: 1 } });
    await one.worker.report(job, { status: "failed", error: { message: "full", retryable: false } });
    await toldOf(runId);
    expect(await used()).toBe(before);
    await server.api(path, { method: "PUT", body: { stored_bytes: null } });
  });

  test("is named when its run is redacted", async () => {
    const { runId, eventId } = await failed(await fresh());
    const { id } = await toldOf(runId);
    const { unredactedEventIds } = await ok("RedactRun", { runId });
    expect(unredactedEventIds.sort()).toEqual([eventId, id].sort());
    for (const one of unredactedEventIds) await ok("RedactEvent", { eventId: one });
    expect(await ok("RedactRun", { runId })).toMatchObject({ eventRedacted: true });
  });

  test("is not emitted where the environment does not ask for it", async () => {
    await tells(false);
    const { runId } = await failed(await fresh());
    await isQuiet();
    expect((await told()).filter(({ data }) => data.runId === runId)).toEqual([]);
    expect((await server.api(`/api/v1/environments/${server.env}`)).body).not.toHaveProperty(
      "run_failed_events",
    );
  });

  test("is emitted also of an error that is redacted, or cannot be read", async () => {
    const { store } = server.running.domain;
    const one = await fresh();
    for (const text of [null, "{}", "7", "[]", "no JSON"]) {
      const { runId } = await failed(one);
      await store.write(async (session) => {
        await session.run(sql`UPDATE runs SET error = CAST(${text} AS TEXT) WHERE id = ${runId}`);
        await session.run(sql`INSERT INTO failed_runs (run_id, failed_at, environment_id, due_at)
          SELECT id, ended_at, environment_id, 0 FROM runs WHERE id = ${runId}`);
      });
      const { error } = (await toldOf(runId)).data as { error: { message: string } };
      expect([text, error.message]).toEqual([text, expect.stringContaining("not there any more")]);
    }
    await isQuiet();
  });
});
