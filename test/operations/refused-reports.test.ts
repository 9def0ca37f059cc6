import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { reportBytesMax } from "../../src/kit/limits.ts";
import { sql } from "../../src/kit/sql.ts";
import { type CallOptions, engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

interface Assignment {
  job_id: string;
  run_id: string;
  execution_seq: number;
  lease_token: string;
  step_sequence_base: number;
  attempt: number;
  completed_steps: { step_id: string; name: string; output: unknown }[];
  event: Record<string, unknown>;
}

/** A report that is refused for what it holds ends its run with the reason: the run is never handed out for it again and again. */
describe.each(engines)("reports that can never be stored, on %s", (engine) => {
  let server: TestServer;

  const rpc = async (method: string, body: unknown, options: CallOptions = {}) =>
    (await server.rpc("SvcService", method, body, options)).body;
  const api = (path: string, body?: unknown, method = "PUT", options: CallOptions = {}) =>
    server.api(`/api/v1/workers${path}`, { method, ...(body !== undefined && { body }), ...options });
  const register = (id: string, functionIds: string[]) =>
    api(`/${id}/register`, { function_ids: functionIds }, "POST");
  const poll = async (id: string, available = 1): Promise<Assignment[]> => {
    const { status, body } = await server.api(`/api/v1/workers/${id}/jobs?available=${available}`);
    return status === 204 ? [] : body.jobs;
  };
  const fenceOf = (job: Assignment) => ({ execution_seq: job.execution_seq, lease_token: job.lease_token });
  const report = (worker: string, job: Assignment, body: object) =>
    api(`/${worker}/jobs/${job.job_id}`, { ...fenceOf(job), ...body });
  /** As clients send it that say the lease behind the output. */
  const unfenced = (worker: string, job: Assignment, body: object) =>
    api(`/${worker}/jobs/${job.job_id}`, { ...body, ...fenceOf(job) });
  const step = (name: string, more: object = {}) => ({
    id: `s:${name}:0`,
    name,
    type: "invoke",
    status: "completed",
    output: { name },
    ...more,
  });
  /** A function, a worker and a job of its own. */
  const begin = async (name: string, definition: object = {}) => {
    await rpc("RegisterFunction", { id: name, triggers: [{ event: name }], ...definition });
    await register(`w-${name}`, [name]);
    const { runIds } = await rpc("Emit", { event: name, data: { n: 1 }, metadata: { trace: "t" } });
    const [job] = await poll(`w-${name}`);
    expect(job?.run_id).toBe(runIds[0]);
    return { worker: `w-${name}`, job: job!, runId: runIds[0] as string };
  };
  const run = (id: string) => rpc("GetRun", { id });
  const steps = async (runId: string) => (await rpc("GetRunSteps", { runId })).steps ?? [];
  /** Lets everything that is planned become due. */
  const letTimePass = async (runId: string) => {
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${runId}`),
    );
    await server.running.tick("runs.wake");
  };

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 60_000 } });
  });
  afterAll(() => server.stop());

  test("steps that are too large to be read at once are read cut, or one by one", async () => {
    const { worker, job, runId } = await begin("large-steps");
    const output = "x".repeat(4_000_000);
    for (let n = 0; n < 17; n++)
      expect(
        (await report(worker, job, { status: "progress", steps: [step(`n${n}`, { output })] })).status,
      ).toBe(200);
    const whole = await server.rpc("SvcService", "GetRunSteps", { runId });
    expect([whole.status, whole.body.message]).toEqual([400, expect.stringContaining("max_value_bytes")]);
    const cut = await rpc("GetRunSteps", { runId, maxValueBytes: 10 });
    expect(cut.steps.map(({ name }: { name: string }) => name)).toEqual(
      Array.from({ length: 17 }, (_, n) => `n${n}`),
    );
    const [one] = (await rpc("GetRunSteps", { runId, stepId: "s:n3:0" })).steps;
    expect(JSON.stringify(one).length).toBeGreaterThan(output.length);
  }, 60_000);

  test("a last report that can never be stored fails its run with the reason, once its fence holds", async () => {
    const morrow = new Date(Date.now() + 3_600_000).toISOString();
    const nap = (runId: string) => ({ step_id: `${runId}:nap:0`, type: "sleep", until: morrow });
    const many = Array.from({ length: 10_001 }, (_, place) => step(`s${place}`));
    const bad: [name: string, report: (runId: string) => Record<string, unknown>, code?: string][] = [
      ["no-filter", (id) => ({ status: "yielded", yield: { ...nap(id), type: "wait_for_event" } })],
      ["no-instant", (id) => ({ status: "yielded", yield: { ...nap(id), until: "soon" } })],
      ["no-yield", () => ({ status: "yielded" })],
      [
        "odd-type",
        (id) => ({ status: "yielded", yield: { ...nap(id), type: "odd" } }),
        "UNSUPPORTED_YIELD_TYPE",
      ],
      ["many-steps", () => ({ status: "completed", steps: many })],
      ["no-steps", () => ({ status: "completed", steps: "none" })],
      ["long-id", () => ({ status: "failed", steps: [{ ...step("x"), id: "漢".repeat(342) }] })],
    ];
    for (const [name, body, code = "INVALID_REPORT"] of bad) {
      const { worker, job, runId } = await begin(name);
      // Of who cannot prove anything the run hears nothing.
      const stranger = await report(worker, { ...job, lease_token: "lease_of_nobody" }, body(runId));
      expect([name, stranger.status]).toEqual([name, 400]);
      expect((await run(runId)).status).toBe("RUN_STATUS_RUNNING");
      // Steps of a progress may be sent again otherwise.
      expect((await report(worker, job, { ...body(runId), status: "progress", steps: [{}] })).status).toBe(
        400,
      );
      expect((await run(runId)).status).toBe("RUN_STATUS_RUNNING");
      const refused = await report(worker, job, body(runId));
      expect([name, refused.status]).toEqual([name, 400]);
      // A worker that was refused a yield may still say that the job failed; one that says nothing more let its lease end.
      if (body(runId).status === "yielded") {
        expect((await run(runId)).status).toBe("RUN_STATUS_RUNNING");
        await letTimePass(runId);
      }
      const { status, error } = await run(runId);
      expect([name, status, error.code]).toEqual([name, "RUN_STATUS_FAILED", code]);
      expect(error.message).toStartWith("result refused: ");
      expect((await report(worker, job, { status: "completed" })).body.error).toBe("RUN_NOT_RUNNING");
    }
  }, 120_000);

  test("a last report brings all steps that are not stored yet, as many as a run of quick steps has", async () => {
    const { worker, job, runId } = await begin("quick");
    const many = Array.from({ length: 700 }, (_, place) => step(`s${place}`));
    expect((await report(worker, job, { status: "progress", steps: many, step_offset: 0 })).status).toBe(400);
    const done = await report(worker, job, { status: "completed", steps: many, step_offset: 0, output: 1 });
    expect(done.status).toBe(200);
    expect((await run(runId)).status).toBe("RUN_STATUS_COMPLETED");
    expect(await steps(runId)).toHaveLength(700);
  });

  test("a report too large to be read fails the run at once where it says its lease", async () => {
    const huge = { status: "completed", output: "x".repeat(reportBytesMax) };
    const path = ({ worker, job }: { worker: string; job: Assignment }) => `/${worker}/jobs/${job.job_id}`;
    const [first, named, chunked, others] = [
      await begin("large-first"),
      await begin("large-named"),
      await begin("large-chunked"),
      await begin("large-others"),
    ];
    expect((await report(first.worker, first.job, huge)).status).toBe(413);
    const headers = { "X-Svc-Lease-Token": named.job.lease_token };
    expect((await api(path(named), huge, "PUT", { headers })).status).toBe(413);
    const text = JSON.stringify({ ...fenceOf(chunked.job), ...huge });
    const pieces = new ReadableStream({
      start(controller) {
        for (let at = 0; at < text.length; at += 1_000_000)
          controller.enqueue(new TextEncoder().encode(text.slice(at, at + 1_000_000)));
        controller.close();
      },
    });
    const sent = await fetch(`${server.url}/api/v1/workers${path(chunked)}`, {
      ...{ method: "PUT", body: pieces, duplex: "half" },
      headers: { authorization: `Bearer ${server.adminKey}`, "content-type": "application/json" },
    } as RequestInit);
    expect(sent.status).toBe(413);
    // Neither what is no last word nor the token of another lease ends it.
    for (const body of [
      { ...fenceOf(others.job), ...huge, status: "progress" },
      { ...fenceOf(first.job), ...huge },
    ])
      expect((await api(path(others), body)).status).toBe(413);
    for (const { runId } of [first, named, chunked]) {
      const { status, error } = await run(runId);
      expect([status, error?.code]).toEqual(["RUN_STATUS_FAILED", "REPORT_TOO_LARGE"]);
    }
    expect((await run(others.runId)).status).toBe("RUN_STATUS_RUNNING");
  }, 120_000);

  test("a report too large to be read is believed when its lease ends without another word", async () => {
    const [lost, alive] = [await begin("large"), await begin("large-alive")];
    const huge = { status: "completed", output: "x".repeat(reportBytesMax) };
    for (const { worker, job, runId } of [lost, alive]) {
      // Of a job that another worker holds nothing is noted.
      await api(`/someone-else/register`, { function_ids: ["large"] });
      for (const name of ["someone-else", worker, worker])
        expect((await unfenced(name, job, huge)).status).toBe(413);
      expect((await run(runId)).status).toBe("RUN_STATUS_RUNNING");
    }
    const later = await report(alive.worker, alive.job, {
      status: "progress",
      steps: [step("a")],
      step_offset: 0,
    });
    expect(later.status).toBe(200);
    await letTimePass(lost.runId);
    await letTimePass(alive.runId);
    const { status, error } = await run(lost.runId);
    expect([status, error.code]).toEqual(["RUN_STATUS_FAILED", "REPORT_TOO_LARGE"]);
    expect((await run(alive.runId)).status).toBe("RUN_STATUS_WAITING_FOR_CAPACITY");
  }, 120_000);

  test("a report too large to be read is not believed once the lease was renewed after it", async () => {
    const usual = server;
    server = await startTestServer({ engine, settings: { pollHoldMs: 0, leaseMs: 1_500 } });
    try {
      const huge = { status: "completed", output: "x".repeat(reportBytesMax) };
      // Whoever sent it, the worker goes on; of the other it was the last word after all.
      const [renewed, again] = [await begin("renewed"), await begin("renewed-before")];
      for (const { worker, job } of [renewed, again]) {
        expect((await unfenced(worker, job, huge)).status).toBe(413);
        const beat = await api(`/${worker}/heartbeat`, { jobs: [{ job_id: job.job_id }] }, "POST");
        expect(beat.status).toBe(200);
      }
      expect((await unfenced(again.worker, again.job, huge)).status).toBe(413);
      const ended = async ({ runId }: { runId: string }) => {
        const { status, error } = await run(runId);
        return status === "RUN_STATUS_RUNNING" ? undefined : [status, error?.code];
      };
      const about = { about: "the end of the lease" };
      expect(await until(() => ended(again), about)).toEqual(["RUN_STATUS_FAILED", "REPORT_TOO_LARGE"]);
      expect(await until(() => ended(renewed), about)).toEqual([
        "RUN_STATUS_WAITING_FOR_CAPACITY",
        undefined,
      ]);
    } finally {
      await server.stop();
      server = usual;
    }
  }, 120_000);

  test("a report or ack of another form costs the others of its exchange nothing", async () => {
    const good = await begin("good-report");
    const odd = await begin("odd-report");
    const { body } = await api(
      `/${good.worker}/exchange`,
      {
        reports: [
          { job_id: odd.job.job_id, ...fenceOf(odd.job), status: "completed", steps: 5 },
          { job_id: odd.job.job_id, status: 7 },
          { job_id: good.job.job_id, ...fenceOf(good.job), status: "completed", output: 1 },
        ],
        acks: [{ job_id: good.job.job_id, execution_seq: "one" }],
      },
      "POST",
    );
    expect(body.results.map(({ status }: { status: unknown }) => status)).toEqual([400, 400, "ok"]);
    expect(body.acked[0].status).toBe(400);
    expect((await run(good.runId)).status).toBe("RUN_STATUS_COMPLETED");
    expect((await run(odd.runId)).error.code).toBe("INVALID_REPORT");
  });
});
