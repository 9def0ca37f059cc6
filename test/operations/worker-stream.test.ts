import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { JsonObject } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { JobNackReason, LeaseState } from "../../src/gen/svc/v1/worker_pb.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
import { freePort } from "../support/process.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import {
  fenceOf,
  openStreamWorker,
  protocols,
  type StreamWorker,
  transportOf,
} from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

describe.each(engines)("worker streams on %s", (engine) => {
  let server: TestServer;
  /** Added to what durations are measured by. */
  let aheadMs = 0;
  const open: StreamWorker[] = [];
  let named = 0;

  const rpc = async (method: string, body: unknown) => (await server.rpc("SvcService", method, body)).body;
  const run = (id: string) => rpc("GetRun", { id });
  const steps = async (runId: string) => (await rpc("GetRunSteps", { runId })).steps ?? [];
  const runIs = (id: string, status: string) =>
    until(async () => ((await run(id)).run ?? (await run(id))).status === status || undefined, {
      about: `${id} to be ${status}`,
    });
  const emit = async (event: string, data: object = {}): Promise<string> =>
    (await rpc("Emit", { event, data })).runIds[0];
  const fn = async (definition: object = {}) => {
    const id = `f${++named}`;
    await rpc("RegisterFunction", { id, triggers: [{ event: id }], ...definition });
    return id;
  };
  const worker = (
    protocol: (typeof protocols)[number] = "connect binary",
    more: { key?: string; id?: string } = {},
  ) => {
    const transport = transportOf(protocol, server.running);
    const made = openStreamWorker(transport, { key: server.adminKey, id: `w${++named}`, ...more });
    open.push(made);
    return made;
  };
  /** A function, a worker on a stream and a job of its own. */
  const begin = async (protocol: (typeof protocols)[number] = "connect binary", definition: object = {}) => {
    const id = await fn(definition);
    const one = worker(protocol);
    const workerId = await one.register([id]);
    const runId = await emit(id, { n: 1 });
    const job = await one.hear("job");
    expect(job.runId).toBe(runId);
    return { one, job, runId, workerId, functionId: id };
  };
  const later = async (ms: number) => {
    aheadMs += ms;
    await server.running.tick("workers.streams");
  };

  beforeAll(async () => {
    const clock = systemClock();
    server = await startTestServer({
      engine,
      settings: { leaseMs: 60_000, grpcPort: await freePort() },
      clock: { ...clock, elapsed: () => clock.elapsed() + aheadMs },
    });
  });
  afterEach(async () => {
    for (const one of open.splice(0)) {
      one.cut();
      await one.ended;
    }
  });
  afterAll(() => server.stop());

  describe.each(protocols)("%s", (protocol) => {
    test("a run from its job to its output, with its steps", async () => {
      const { one, job, runId, workerId } = await begin(protocol);
      expect(one.heard[0]).toMatchObject({
        case: "registered",
        value: { workerId, heartbeatIntervalMs: 20_000 },
      });
      expect(job.jobId).toStartWith("job_");
      expect(job.leaseToken).not.toBe("");
      expect(job).toMatchObject({
        attempt: 1,
        maxAttempts: 3,
        executionSeq: 1n,
        completedSteps: [],
        event: { data: { n: 1 }, source: "api", version: 1 },
      });
      expect(job.leaseExpiresAt).toBeDefined();
      const fence = fenceOf(job);
      one.ack(job);
      one.say({ case: "stepStarted", value: { ...fence, stepId: "s:a:0", name: "a", stepType: 1 } });
      one.say({
        case: "stepCompleted",
        value: { ...fence, stepId: "s:a:0", output: { x: 1 }, durationMs: 5 },
      });
      one.say({
        case: "stepFailed",
        value: { ...fence, stepId: "s:b\\:c:0", error: { message: "no" }, durationMs: 2 },
      });
      expect(await one.hear("stepAck")).toMatchObject({ stepId: "s:a:0", accepted: true });
      one.complete(job, { done: true });
      await runIs(runId, "RUN_STATUS_COMPLETED");
      expect(
        (await steps(runId)).map((step: JsonObject) => [step.stepId, step.name, step.status, step.output]),
      ).toEqual([
        ["s:a:0", "a", "STEP_STATUS_COMPLETED", { x: 1 }],
        ["s:b\\:c:0", "b:c", "STEP_STATUS_FAILED", undefined],
      ]);
    });

    test("ack, nack, heartbeat, cancel and shutdown words", async () => {
      const { one, job } = await begin(protocol);
      one.beat(job);
      expect((await one.hear("leaseRefresh")).segments).toMatchObject([
        { runId: job.runId, executionSeq: 1n, state: LeaseState.REFRESHED },
      ]);
      one.say({ case: "jobNack", value: { ...fenceOf(job), reason: JobNackReason.AT_CAPACITY } });
      await later(1_001);
      const again = await one.hear("job");
      expect(again).toMatchObject({ runId: job.runId, attempt: 1, executionSeq: 2n });
      one.ack(again);
      one.complete(again);
      await runIs(job.runId, "RUN_STATUS_COMPLETED");
    });

    test("refuses strangers and words out of order", async () => {
      const stranger = worker(protocol, { key: "ifkey_wrong" });
      stranger.say({ case: "register", value: { workerId: "w", functionIds: ["f"] } });
      expect((await stranger.ended)?.code).toBe(Code.Unauthenticated);
      const early = worker(protocol);
      early.beat();
      expect(await early.ended).toMatchObject({
        code: Code.InvalidArgument,
        rawMessage: "register: must be the first message",
      });
      const unknown = worker(protocol);
      unknown.say({ case: "register", value: { workerId: "w", functionIds: ["nobody's"] } });
      expect(await unknown.ended).toMatchObject({ code: Code.FailedPrecondition });
      const nameless = worker(protocol);
      nameless.say({ case: "register", value: { workerId: "", functionIds: [await fn()] } });
      expect((await nameless.ended)?.rawMessage).toStartWith("worker_id:");
    });
  });

  test("values that are no objects, a failure with compensations, a sleep and its return", async () => {
    const { one, job, runId } = await begin();
    const fence = fenceOf(job);
    one.ack(job);
    one.say({
      case: "stepCompleted",
      value: {
        ...fence,
        stepId: "s:list:0",
        outputValue: { kind: { case: "listValue", value: { values: [] } } },
      },
    });
    const until = { seconds: BigInt(Math.floor(Date.now() / 1000)), nanos: 0 };
    one.say({
      case: "stepYielded",
      value: { ...fence, stepId: "s:nap:0", yieldInfo: { case: "sleep", value: { until } } },
    });
    const next = await one.hear("job");
    expect(next).toMatchObject({ runId, executionSeq: 2n, attempt: 1, stepSequenceBase: 2 });
    expect(
      next.completedSteps.map(({ stepId, name, output, outputValue }) => [
        stepId,
        name,
        output,
        outputValue?.kind.case,
      ]),
    ).toEqual([
      ["s:list:0", "list", undefined, "listValue"],
      ["s:nap:0", "nap", undefined, "nullValue"],
    ]);
    one.ack(next);
    one.say({
      case: "jobFailed",
      value: {
        ...fenceOf(next),
        error: { message: "over", code: "X", retryable: false },
        steps: [
          {
            id: "s:undo:0",
            name: "compensate:list",
            type: "compensate",
            status: "completed",
            compensationFor: "list",
          },
        ],
      },
    });
    await runIs(runId, "RUN_STATUS_FAILED");
    expect((await steps(runId)).map((step: JsonObject) => [step.stepId, step.stepType, step.status])).toEqual(
      [
        ["s:list:0", "STEP_TYPE_INVOKE", "STEP_STATUS_COMPLETED"],
        ["s:nap:0", "STEP_TYPE_SLEEP", "STEP_STATUS_COMPLETED"],
        ["s:undo:0", "STEP_TYPE_COMPENSATE", "STEP_STATUS_COMPLETED"],
      ],
    );
    const done = await rpc("GetRun", { id: runId });
    expect((done.run ?? done).error).toMatchObject({ message: "over", code: "X" });
  });

  test("a job that is not acked goes to another worker, and its own gets nothing for a while", async () => {
    const { one, job, functionId, runId } = await begin();
    const other = worker();
    await other.register([functionId]);
    await later(5_001);
    const again = await other.hear("job");
    expect(again).toMatchObject({ runId, attempt: 1, executionSeq: 2n });
    one.ack(job);
    expect(await one.hear("cancel")).toMatchObject({ jobId: job.jobId });
    one.complete(job, { late: true });
    other.ack(again);
    other.complete(again, { by: "other" });
    await runIs(runId, "RUN_STATUS_COMPLETED");
    expect((await run(runId)).run?.output ?? (await run(runId)).output).toEqual({ by: "other" });
    const jobsBefore = one.heard.filter(({ case: kind }) => kind === "job").length;
    const next = await emit(functionId);
    expect((await other.hear("job")).runId).toBe(next);
    expect(one.heard.filter(({ case: kind }) => kind === "job").length).toBe(jobsBefore);
  });

  test("a worker that drains by nack is handed nothing more", async () => {
    const { one, job, functionId, runId } = await begin();
    one.say({ case: "jobNack", value: { ...fenceOf(job), reason: JobNackReason.DRAINING } });
    const other = worker();
    await other.register([functionId]);
    const again = await other.hear("job");
    expect(again).toMatchObject({ runId, attempt: 1 });
    await later(1_001);
    expect(one.heard.filter(({ case: kind }) => kind === "job").length).toBe(1);
  });

  test("capacity is kept, and asked for again as it frees", async () => {
    const id = await fn();
    const one = worker();
    await one.register([id], { maxConcurrentJobs: 2 });
    const runs = [await emit(id), await emit(id), await emit(id), await emit(id)];
    const jobs = [await one.hear("job"), await one.hear("job")];
    for (const job of jobs) one.ack(job);
    await later(0);
    expect(one.heard.filter(({ case: kind }) => kind === "job").length).toBe(2);
    for (const job of jobs) one.complete(job);
    for (let more = 0; more < 2; more++) {
      const job = await one.hear("job");
      one.ack(job);
      one.complete(job);
    }
    for (const runId of runs) await runIs(runId, "RUN_STATUS_COMPLETED");
  });

  test("heartbeats say which leases are gone", async () => {
    const { one, job } = await begin();
    one.ack(job);
    const { store } = server.running.domain;
    await store.write((session) =>
      session.run(sql`UPDATE executions SET wake_at = 1 WHERE run_id = ${job.runId}`),
    );
    await server.running.tick("runs.wake");
    one.say({
      case: "heartbeat",
      value: {
        workerId: "w",
        activeJobs: 2,
        jobs: [fenceOf(job), { jobId: "job_none_1" }],
      },
    });
    expect((await one.hear("leaseRefresh")).segments.map(({ state }) => state)).toEqual([
      LeaseState.STALE,
      LeaseState.UNKNOWN,
    ]);
  });

  test("a stale fence is ignored, a missing one ends the stream", async () => {
    const { one, job, runId } = await begin();
    one.ack(job);
    one.say({ case: "jobCompleted", value: { ...fenceOf(job), leaseToken: "wrong" } });
    one.say({ case: "stepCompleted", value: { ...fenceOf(job), executionSeq: 9n, stepId: "s:x:0" } });
    one.beat(job);
    await one.hear("leaseRefresh");
    expect(await steps(runId)).toEqual([]);
    one.say({ case: "jobCompleted", value: { jobId: job.jobId } });
    expect((await one.ended)?.code).toBe(Code.InvalidArgument);
    expect((await one.ended)?.rawMessage).toContain("lease_token");
  });

  test("what cannot be kept fails the run instead of coming back for ever", async () => {
    const { one, job, runId } = await begin();
    one.ack(job);
    one.say({
      case: "stepYielded",
      value: {
        ...fenceOf(job),
        stepId: "s:a:0",
        yieldInfo: { case: "sleep", value: { until: { seconds: 99_999_999_999n } } },
      },
    });
    await runIs(runId, "RUN_STATUS_FAILED");
    const got = await run(runId);
    expect((got.run ?? got).error.message).toContain("result refused: yield.until");
  });

  test("a cut stream gives back what was not acked, and leaves the list", async () => {
    const { one, functionId, runId, workerId } = await begin();
    const listed = async () =>
      (await server.api("/api/v1/workers")).body.workers.find(({ id }: { id: string }) => id === workerId);
    expect(await listed()).toMatchObject({
      transport: "stream",
      max_concurrent: 1,
      function_ids: [functionId],
    });
    one.cut();
    const other = worker();
    await other.register([functionId]);
    expect(await other.hear("job")).toMatchObject({ runId, attempt: 1 });
    await until(async () => !(await listed()), { about: "the worker to leave the list" });
  });

  test("a worker that hangs up is answered with the end, once its reports are stored", async () => {
    const { one, job, runId } = await begin();
    one.ack(job);
    one.complete(job);
    one.hangUp();
    expect(await one.ended).toBeUndefined();
    await runIs(runId, "RUN_STATUS_COMPLETED");
  });

  test("a second stream of the same worker takes the place of the first", async () => {
    const { one, workerId, functionId, runId } = await begin();
    const second = worker("connect json", { id: workerId });
    await second.register([functionId]);
    expect((await one.ended)?.code).toBe(Code.Aborted);
    expect(await second.hear("job")).toMatchObject({ runId, attempt: 1 });
  });

  test("jobs that a worker brings along from a broken stream keep their slots and are reported on the next", async () => {
    const { one, job, functionId, workerId, runId } = await begin();
    one.ack(job);
    one.beat(job);
    await one.hear("leaseRefresh");
    one.cut();
    await one.ended;
    const second = worker("connect json", { id: workerId });
    second.say({
      case: "register",
      value: { workerId, functionIds: [functionId], maxConcurrentJobs: 1 },
    });
    second.beat(job);
    expect((await second.hear("leaseRefresh")).segments[0]?.state).toBe(LeaseState.REFRESHED);
    const fence = fenceOf(job);
    second.say({ case: "stepCompleted", value: { ...fence, stepId: "s:a:0", output: { n: 1 } } });
    second.complete(job, { on: "second" });
    await runIs(runId, "RUN_STATUS_COMPLETED");
    expect(await steps(runId)).toHaveLength(1);
    const next = await emit(functionId);
    expect((await second.hear("job")).runId).toBe(next);
  });

  test("a revoked key ends the stream", async () => {
    const { keys } = server.running.domain;
    const made = await keys.create({
      orgId: "org_default",
      environmentId: server.env,
      name: "s",
      roleIds: ["role_developer"],
    });
    const one = worker("connect binary", { key: made.key });
    await one.register([await fn()]);
    await keys.remove(made.id);
    expect((await one.ended)?.code).toBe(Code.Unauthenticated);
  });

  test("silence ends a stream", async () => {
    const one = worker();
    await one.register([await fn()]);
    await later(60_000);
    one.beat();
    await one.hear("leaseRefresh");
    await later(60_000);
    await later(30_001);
    expect((await one.ended)?.code).toBe(Code.DeadlineExceeded);
  });
});
