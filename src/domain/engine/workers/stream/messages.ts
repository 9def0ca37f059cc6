import { type Static, Type } from "@sinclair/typebox";
import { checkedPerItem } from "../../../../kit/explain.ts";
import type { Fault } from "../../../../kit/fault.ts";
import type { AssignedJob } from "../../jobs/rules.ts";
import type { LeaseState } from "../../runs/execution/leases.ts";
import { heldField, leaseFields } from "../registration.ts";
import { ackFields, ErrorShape, fenceFields, reportFields, StepShape } from "../report-body.ts";
import { heartbeatJobsMax } from "./limits.ts";

const lenient = { additionalProperties: true };
const JobId = Type.String({ minLength: 1, maxLength: 200 });
const StepId = Type.String({ minLength: 1 });

/** A message of a worker. It has one of these fields, in the form of the REST routes. */
export const StreamMessage = Type.Object({
  register: Type.Optional(
    Type.Object({
      worker_id: Type.String(),
      hostname: Type.String({ maxLength: 256 }),
      function_ids: Type.Array(Type.String()),
      max_concurrent_jobs: Type.Integer(),
      labels: Type.Record(Type.String(), Type.String({ maxLength: 256 })),
      version: Type.Object({
        sdk: Type.String({ maxLength: 100 }),
        runtime: Type.String({ maxLength: 100 }),
      }),
      features: Type.Optional(Type.Array(Type.String({ maxLength: 100 }), { maxItems: 100 })),
      clock_ms: Type.Optional(Type.Integer()),
      definition_hashes: Type.Optional(Type.Record(Type.String(), Type.String())),
      deployment: Type.Optional(Type.Union([Type.String(), Type.Null()])),
      ...leaseFields,
      ...heldField,
    }),
  ),
  heartbeat: Type.Optional(
    Type.Object({
      active_jobs: Type.Integer({ minimum: 0 }),
      jobs: Type.Array(
        Type.Object({ job_id: JobId, execution_seq: Type.Integer(), lease_token: Type.String() }),
        { maxItems: heartbeatJobsMax },
      ),
    }),
  ),
  started: Type.Optional(
    Type.Object({
      job_id: JobId,
      ...fenceFields,
      id: StepId,
      ...checkedPerItem({ name: StepShape.properties.name, type: StepShape.properties.type }),
    }),
  ),
  step: Type.Optional(
    Type.Object({
      job_id: JobId,
      ...fenceFields,
      id: Type.String(),
      ...checkedPerItem({
        status: StepShape.properties.status,
        output: Type.Optional(Type.Unknown()),
        error: Type.Optional(ErrorShape),
        duration_ms: Type.Optional(Type.Number()),
      }),
    }),
  ),
  /**
   * How a job ended, or what it waits for. A report with a number is answered, and may be any report. Its
   * form is checked when it is committed: a malformed report refuses its own job only, not the whole stream.
   */
  report: Type.Optional(
    Type.Object(
      { job_id: JobId, number: Type.Optional(Type.Integer()), ...checkedPerItem(reportFields) },
      lenient,
    ),
  ),
  /** A report with a number whose body is malformed. */
  refused: Type.Optional(
    Type.Object({ job_id: Type.String(), number: Type.Integer(), message: Type.String() }),
  ),
  ack: Type.Optional(Type.Object({ job_id: JobId, ...ackFields })),
  nack: Type.Optional(
    Type.Object({
      job_id: JobId,
      ...ackFields,
      reason: Type.Union([Type.Literal("at_capacity"), Type.Literal("draining")]),
    }),
  ),
});
export type StreamMessage = Static<typeof StreamMessage>;

/** A job encoded for the stream; only the wire knows its form. */
export type JobMessage = object;

/** A message of the server. */
export type StreamAnswer =
  | {
      kind: "registered";
      workerId: string;
      heartbeatIntervalMs: number;
      clockOffMs: number | null;
      conflicts: string[];
      /** How long its leases last; undefined when it asked for no time. */
      leaseMs: number | undefined;
      /** Empty for a worker that did not say the version of its SDK. */
      serverVersion: string;
      /** A report may say all that its handler waits for. */
      openWaits: boolean;
    }
  | { kind: "job"; job: AssignedJob; message: JobMessage }
  | { kind: "step_ack"; stepId: string; fault: Fault | undefined }
  | { kind: "cancel"; jobId: string; reason: string }
  | { kind: "shutdown"; reason: string; drainTimeoutMs: number }
  | {
      kind: "leases";
      segments: readonly { runId: string; executionSeq: number; state: LeaseState }[];
      conflicts: string[];
      openWaits: boolean;
    }
  | { kind: "reported"; number: number; fault: Fault | undefined };
