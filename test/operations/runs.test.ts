import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";

describe.each(engines)("runs on %s", (engine) => {
  let server: TestServer;
  const rpc = async (method: string, body: unknown) => (await server.rpc("SvcService", method, body)).body;
  const run = (id: string) => rpc("GetRun", { id });

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
  });
  afterAll(() => server.stop());

  test("the total of a list that is read while runs come is of the moment of its page", async () => {
    await rpc("RegisterFunction", { id: "coming-run", triggers: [{ event: "coming.run" }] });
    const pages: { runs: { id: string }[]; totalCount: number }[] = [];
    let isOver = false;
    const readOn = async (limit: number) => {
      while (!isOver) {
        const page = await rpc("ListRuns", { functionId: "coming-run", limit });
        if (page.runs?.length > 0) pages.push(page);
      }
    };
    const reading = [readOn(5), readOn(500)];
    const ids: string[] = [];
    for (let count = 0; count < 200; count++)
      ids.push((await rpc("Emit", { event: "coming.run" })).runIds[0]);
    isOver = true;
    await Promise.all(reading);
    // One run was asked for after the other: of the newest of a page it is known how many were there.
    expect(pages.map(({ totalCount }) => totalCount)).toEqual(
      pages.map(({ runs }) => ids.indexOf(runs[0]!.id) + 1),
    );
    expect(new Set(pages.map(({ totalCount }) => totalCount)).size).toBeGreaterThan(5);
  });

  test("lists of runs: every filter, every spelling, every page", async () => {
    await rpc("RegisterFunction", { id: "listed-run", triggers: [{ event: "listed.run" }] });
    const { results } = await rpc("TriggerBatch", {
      events: Array.from({ length: 45 }, () => ({ event: "listed.run" })),
    });
    const list = (more: object) => rpc("ListRuns", { functionId: "listed-run", ...more });
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await list({ limit: 10, ...(cursor && { cursor }) });
      expect(page.totalCount).toBe(45);
      seen.push(...page.runs.map((one: { id: string }) => one.id));
      cursor = page.nextCursor;
    } while (cursor);
    expect(new Set(seen)).toEqual(new Set(results.flatMap((result: { runIds: string[] }) => result.runIds)));
    expect(seen).toHaveLength(45);
    expect((await list({ limit: 10, offset: 40 })).runs).toHaveLength(5);
    for (const status of [
      "waiting_for_capacity",
      "WAITING_FOR_CAPACITY",
      "RUN_STATUS_WAITING_FOR_CAPACITY",
      7,
    ])
      expect((await list({ status })).totalCount).toBe(45);
    expect((await list({ statuses: ["running", "completed", "failed"] })).totalCount ?? 0).toBe(0);
    expect((await rpc("ListRuns", { eventId: results[0].eventId })).runs).toMatchObject([
      { id: results[0].runIds[0] },
    ]);
    expect((await rpc("ListRuns", { search: "isted-ru", limit: 1 })).totalCount).toBe(45);
    expect((await list({ since: "2999-01-01T00:00:00Z" })).runs ?? []).toEqual([]);
    for (const [field, bad] of [
      ["status", { status: "lost" }],
      ["since", { since: "yesterday" }],
      ["cursor", { cursor: "x" }],
    ] as const) {
      const answer = await server.rpc("SvcService", "ListRuns", bad);
      expect(answer.status).toBe(400);
      expect(answer.body.message).toContain(field);
    }
    const [one] = (await list({ limit: 1 })).runs;
    for (const field of [
      "id",
      "functionId",
      "eventId",
      "status",
      "attempt",
      "maxAttempts",
      "createdAt",
      "updatedAt",
    ])
      expect(one).toHaveProperty(field);
  });

  test("deleting a function cancels what nobody began", async () => {
    await rpc("RegisterFunction", { id: "doomed", triggers: [{ event: "doomed" }] });
    await server.api("/api/v1/workers/w/register", { body: { function_ids: ["doomed"] } });
    const [runId] = (await rpc("Emit", { event: "doomed" })).runIds;
    const [job] = (await server.api("/api/v1/workers/w/jobs?available=1")).body.jobs;
    const { runIds } = await rpc("Emit", { event: "doomed" });
    await rpc("DeleteFunction", { id: "doomed" });
    expect(await run(runIds[0])).toMatchObject({
      status: "RUN_STATUS_CANCELLED",
      cancellationCause: "function_deleted",
    });
    const { execution_seq, lease_token } = job;
    const body = { status: "completed", execution_seq, lease_token };
    expect(await server.api(`/api/v1/workers/w/jobs/${job.job_id}`, { method: "PUT", body })).toMatchObject({
      status: 200,
    });
    expect(await run(runId)).toMatchObject({ status: "RUN_STATUS_COMPLETED" });
  });
});

describe.each(engines)("held polls on %s", (engine) => {
  test("a job answers a held poll at once; admission off means no progress", async () => {
    const server = await startTestServer({
      engine,
      // Longer than the test may take: what answers is the job.
      settings: { pollHoldMs: 120_000, capacityAdmission: false },
    });
    try {
      await server.rpc("SvcService", "RegisterFunction", { id: "held", triggers: [{ event: "held" }] });
      await server.api("/api/v1/workers/w/register", { body: { function_ids: ["held"] } });
      const held = server.api("/api/v1/workers/w/jobs?available=3");
      await server.rpc("SvcService", "Emit", { event: "held" });
      const { jobs } = (await held).body;
      const { job_id, execution_seq, lease_token } = jobs[0]!;
      const body = { status: "progress", execution_seq, lease_token };
      expect((await server.api(`/api/v1/workers/w/jobs/${job_id}`, { method: "PUT", body })).status).toBe(
        404,
      );
      const steps = await server.running.domain.store.all(
        sql`SELECT sequence FROM run_history WHERE run_id = ${jobs[0]!.run_id} ORDER BY sequence`,
      );
      expect(steps).toEqual([{ sequence: 1 }, { sequence: 2 }]);
    } finally {
      await server.stop();
    }
  });
});
