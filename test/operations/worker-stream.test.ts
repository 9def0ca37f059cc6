import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { JsonObject } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { type JobAssignment, JobNackReason, LeaseState } from "../../src/gen/svc/v1/worker_pb.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { sql } from "../../src/kit/sql.ts";
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
      settings: { leaseMs: 60_000, grpcPort: await (await import("../support/process.ts")).freePort() },
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
  });
});
