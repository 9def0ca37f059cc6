import { expect, test } from "bun:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ReportBody } from "../../src/domain/engine/workers/report-body.ts";
import { withTimeLeft } from "../../src/domain/engine/workers/stream/stream-jobs.ts";
import { fromWorkerMessage } from "../../src/domain/engine/workers/wire.ts";
import { WorkerMessageSchema } from "../../src/gen/svc/v1/worker_pb.ts";
import { rfc3339 } from "../../src/kit/clock.ts";
import { timestampOf } from "../../src/kit/wkt.ts";

const read = (payload: MessageInitShape<typeof WorkerMessageSchema>["payload"]) =>
  fromWorkerMessage(create(WorkerMessageSchema, { payload } as MessageInitShape<typeof WorkerMessageSchema>));
const fence = { jobId: "job_1_1", executionSeq: 1n, leaseToken: "t" };
const spoken = { job_id: "job_1_1", execution_seq: 1, lease_token: "t" };
const json = (value: unknown) => new TextEncoder().encode(JSON.stringify(value));

test("yields read as they would over REST", () => {
  const at = 1_800_000_000_000;
  const waited = read({
    case: "stepYielded",
    value: {
      ...fence,
      stepId: "s:w:0",
      yieldInfo: {
        case: "waitEvent",
        value: {
          eventName: "paid",
          matchExpression: "orderId",
          matchValue: "o1",
          timeout: timestampOf(at),
          payloadJson: json({ ask: 1 }),
        },
      },
    },
  }) as { report: ReportBody };
  const filter = {
    event: "paid",
    match: "orderId",
    match_value: "o1",
    timeout_at: rfc3339(at),
    payload: { ask: 1 },
  };
  expect(waited.report).toEqual({
    ...spoken,
    status: "yielded",
    yield: { step_id: "s:w:0", type: "wait_for_event", event_filter: filter },
  } as never);
  expect(withTimeLeft(waited.report, at - 5_000).yield).toMatchObject({ event_filter: { timeout: 5_000 } });
  expect(withTimeLeft(waited.report, at + 5_000).yield).toMatchObject({ event_filter: { timeout: 1 } });

  for (const [kind, type] of [
    ["invokeFunction", "invoke_function"],
    ["invokeFunctionAsync", "invoke_function_async"],
  ] as const) {
    const invoked = { case: kind, value: { functionId: "child", inputJson: json([1]) } };
    const message = read({
      case: "stepYielded",
      value: { ...fence, stepId: "s:i:0", yieldInfo: invoked as never },
    });
    expect(message).toMatchObject({ report: { yield: { type, function_id: "child", input: [1] } } });
  }
  const broken = { case: "invokeFunction", value: { inputJson: new Uint8Array([1]) } } as const;
  // The fault of this job alone: what throws here ends the stream with all its jobs.
  const refused = (reason: string) => ({
    report: {
      status: "failed",
      error: {
        message: expect.stringContaining(`result refused: ${reason}`),
        code: "INVALID_REPORT",
        retryable: false,
      },
    },
  });
  expect(read({ case: "stepYielded", value: { ...fence, yieldInfo: broken } })).toMatchObject(
    refused("invoke_function.input_json: must be JSON text"),
  );
  expect(read({ case: "stepYielded", value: fence })).toMatchObject(refused("step_yielded:"));
});

test("a fence that was not sent is not there, and unknown messages say nothing", () => {
  expect(read({ case: "jobAck", value: { jobId: "job_1_1" } })).toEqual({
    ack: { job_id: "job_1_1", run_id: "" },
  });
  expect(read({ case: undefined })).toEqual({});
  expect(read({ case: "report", value: { number: 3n, jobId: "job_1_1", body: "[]" } })).toEqual({
    refused: { job_id: "job_1_1", number: 3, message: expect.stringContaining("report.body:") },
  });
  expect(
    read({
      case: "report",
      value: { number: 7n, jobId: "job_1_1", body: '{"job_id":"x","status":"failed"}' },
    }),
  ).toEqual({
    report: { job_id: "job_1_1", number: 7, status: "failed" },
  });
});
