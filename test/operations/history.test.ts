import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe.each(engines)("history on %s", (engine) => {
  let server: TestServer;
  let runId = "";
  const travel = (method: string, body: object, options = {}) =>
    server.rpc("TimeTravelService", method, body, options);
  const trail = async (query: string) => (await server.api(`/api/v1/audit?${query}`)).body;

  async function run(id: string, more: object): Promise<string> {
    await server.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: id }], ...more });
    await server.api("/api/v1/workers/w/register", { body: { function_ids: [id] } });
    await server.rpc("SvcService", "Emit", { event: id, data: { n: 1 } });
    const [job] = await until(
      async () => (await server.api("/api/v1/workers/w/jobs?available=1")).body?.jobs,
      { about: "the job" },
    );
    const { execution_seq, lease_token } = job;
    const steps = [{ id: "a", name: "first", type: "invoke", status: "completed", output: { got: 1 } }];
    const body = { status: "completed", execution_seq, lease_token, steps, output: 7 };
    const answer = await server.api(`/api/v1/workers/w/jobs/${job.job_id}`, { method: "PUT", body });
    expect(answer.status).toBe(200);
    return job.run_id;
  }

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0 } });
    runId = await run("recorded", { recording: true });
  });
  afterAll(() => server.stop());

  test("a recorded run as it stands now, flat and wrapped, in both cases", async () => {
    const { status, body } = await travel("GetRunStateAt", { run_id: runId });
    expect(status).toBe(200);
    expect(body).toMatchObject({ runId, run_id: runId, status: "completed" });
    expect(body.snapshot.steps[0]).toMatchObject({
      stepId: "a",
      step_id: "a",
      status: "completed",
      injected: false,
    });
    expect(JSON.parse(atob(body.snapshot.steps[0].output))).toEqual({ got: 1 });
    const long = await travel("GetRunStateAt", { runId, timestamp: "2001-01-01T00:00:00Z" });
    expect(long.status).toBe(404);
    const one = await travel("GetStepOutputAt", { runId, stepId: "a" });
    expect(one.body).toMatchObject({ stepId: "a", status: "completed" });
    expect((await travel("GetStepOutputAt", { runId, stepId: "none" })).status).toBe(404);
  });

  test("a timeline has its zero fields; profiles and recording are honoured", async () => {
    const { events } = (await travel("GetRunTimeline", { runId })).body;
    expect(events.map((event: { eventType: string }) => event.eventType)).toEqual([
      "run.created",
      "run.started",
      "step.completed",
      "run.completed",
    ]);
    for (const event of events)
      for (const field of ["id", "eventType", "summary", "significant", "timestamp"])
        expect(event).toHaveProperty(field);
    const lifecycle = await run("lifecycle", { recording: true, recordingProfile: "run_lifecycle" });
    const shown = (await travel("GetRunTimeline", { runId: lifecycle })).body.events;
    expect(shown).toHaveLength(3);
    const silent = await run("silent", {});
    expect((await travel("GetRunTimeline", { runId: silent })).body.events ?? []).toEqual([]);
    expect((await travel("GetRunStateAt", { runId: silent })).status).toBe(404);
  });

  test("a foreign run is a missing one", async () => {
    const { tenancy, keys } = server.running.domain;
    const made = await tenancy.createEnvironment({ orgId: "org_default", name: "other" });
    const environment = made.id;
    const { key } = await keys.create({
      orgId: "org_default",
      environmentId: environment,
      name: "theirs",
      roleIds: ["role_admin"],
    });
    for (const method of ["GetRunStateAt", "GetRunTimeline"]) {
      expect((await travel(method, { runId: "run_none" })).status).toBe(404);
      expect((await travel(method, { runId }, { environment, key })).status).toBe(404);
    }
    const theirs = await server.api(`/api/v1/audit?run_id=${runId}`, { environment, key });
    expect({ status: theirs.status, ...theirs.body }).toMatchObject({
      status: 200,
      events: [],
      total_count: 0,
    });
    expect((await server.api("/api/v1/audit", { environment, key })).body.events).toEqual([]);
  });

  test("the trail: by run, by function, by type, page by page, and the same over RPC", async () => {
    const all = await trail(`run_id=${runId}`);
    expect(all.events.map((event: { event_type: string }) => event.event_type)).toEqual([
      "run.completed",
      "step.completed",
      "run.started",
      "run.created",
    ]);
    expect(all).toMatchObject({ total_count: 4, retention_days: 90, next_cursor: "" });
    expect(all.events[1]).toMatchObject({ function_id: "recorded", step_id: "a", run_id: runId });
    await run("counted", {});
    await run("counted", {});
    const seen: string[] = [];
    let cursor = "";
    do {
      const page = await trail(`function_id=counted&limit=3&cursor=${cursor}`);
      seen.push(...page.events.map((event: { id: string }) => event.id));
      cursor = page.next_cursor;
    } while (cursor);
    expect(seen).toHaveLength(8);
    expect(new Set(seen).size).toBe(8);
    const completed = await trail("function_id=counted&event_type=run.completed");
    expect(completed.events).toHaveLength(2);
    expect((await trail("to=2001-01-01T00:00:00Z")).events).toEqual([]);
    expect((await server.api("/api/v1/audit?from=yesterday")).status).toBe(400);
    expect((await server.api("/api/v1/audit?cursor=x")).status).toBe(400);
    const none = await server.api("/api/v1/audit?run_id=run_none");
    expect({ status: none.status, ...none.body }).toMatchObject({ status: 200, events: [], total_count: 0 });
    const { body } = await server.rpc("AuditService", "GetAuditTrail", { runId });
    // The same, in both spellings.
    expect(body.events).toMatchObject(all.events);
    expect(body.entries).toHaveLength(4);
  });

  test("a page goes on where the last one ended, whatever happened meanwhile", async () => {
    const first = await run("paged", { recording: true });
    await run("paged", { recording: true });
    const [newest] = (await trail("function_id=paged&limit=1")).events;
    const page = await trail("function_id=paged&limit=6");
    expect(page.total_count).toBe(8);
    const seen = page.events.map((event: { id: string }) => event.id);
    expect(seen[0]).toBe(newest.id);
    // A run that is over gets another event, in front of the place where the page ended.
    const step_id = `step_${first.slice("run_".length)}_`;
    const { steps } = (await server.rpc("SvcService", "GetRunSteps", { runId: first })).body;
    expect(steps[0].id).toStartWith(step_id);
    // By the server's clock: it follows the database's, not this machine's.
    const since = new Date(Date.parse(newest.created_at) + 1).toISOString();
    const patch = { step_id: steps[0].id, output: { got: 2 } };
    expect((await server.rpc("SvcService", "PatchStep", patch)).status).toBe(200);
    const rest = await trail(`function_id=paged&limit=6&cursor=${page.next_cursor}`);
    expect(rest).toMatchObject({ total_count: 8, next_cursor: "" });
    const all = [...seen, ...rest.events.map((event: { id: string }) => event.id)];
    expect(new Set(all).size).toBe(8);
    const query = { runId: first, limit: 2, fromTimestamp: since };
    const { body } = await server.rpc("AuditService", "GetAuditTrail", query);
    expect(body).toMatchObject({ total_count: 1, totalCount: 1 });
    expect(body.events[0]).toMatchObject({ event_type: "step.patched", run_id: first });
    expect(body.events).toMatchObject((await trail(`run_id=${first}&limit=2&from=${since}`)).events);
    // By environment too: what happens to a run after its end is no less found.
    expect(body.events).toMatchObject((await trail(`function_id=paged&from=${since}`)).events);
  });

  test("REST and RPC answer the same, page by page", async () => {
    let cursor = "";
    let pages = 0;
    do {
      const rest = await trail(`run_id=${runId}&limit=3&cursor=${cursor}`);
      const { body } = await server.rpc("AuditService", "GetAuditTrail", { runId, limit: 3, cursor });
      for (const key of ["events", "next_cursor", "total_count", "retention_days"])
        expect({ [key]: body[key] }).toMatchObject({ [key]: rest[key] });
      expect(rest.total_count).toBe(4);
      cursor = rest.next_cursor;
      pages++;
    } while (cursor);
    expect(pages).toBe(2);
  });
});
