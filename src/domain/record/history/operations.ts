import { Type } from "@sinclair/typebox";
import { withoutHiddenInputs } from "../../../gate/things.ts";
import { AuditService } from "../../../gen/svc/v1/audit_pb.ts";
import { TimeTravelService } from "../../../gen/svc/v1/timetravel_pb.ts";
import { withoutPlace } from "../../../kit/bounded-look.ts";
import { parseRfc3339, rfc3339 } from "../../../kit/clock.ts";
import { valueBytes } from "../../../kit/cut-values.ts";
import { maybe, shape } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import { type Call, listed, rpc, unary } from "../../../kit/operation.ts";
import { instantOf, withNumbers } from "../../../kit/wkt.ts";
import type { PastStep } from "./rules.ts";
import type { History, TimelineEvent, Trail, TrailQuery } from "./service.ts";
import {
  auditMessage,
  cutState,
  type ShownState,
  snapshotJson,
  snapshotMessage,
  timelineMessage,
  trailJson,
  trailRpcJson,
} from "./wire.ts";

const id = Type.String({ minLength: 1, maxLength: 200 });
const timestamp = maybe.text("RFC 3339; now when left out.");

function instant(text: string | undefined) {
  if (text === undefined || text === "") return undefined;
  const at = parseRfc3339(text);
  if (at === undefined) throw invalid("timestamp", "must be RFC3339");
  return at;
}

const text = (key: string, value: string | undefined) => (value ? { [key]: value } : {});

export const AuditEvent = Type.Object({
  id: shape.text("Id of the row (`aud_…`)."),
  run_id: Type.String(),
  function_id: Type.String(),
  step_id: Type.Optional(Type.String()),
  event_type: shape.text("What happened, such as `run.completed` or `authz.denied`."),
  payload: Type.Object(
    {},
    {
      additionalProperties: true,
      description: "What is known of it; fields that are set to be redacted are absent.",
    },
  ),
  environment_id: Type.String(),
  created_at: Type.String({ format: "date-time" }),
  scope: shape.text("Whose row it is: `tenant` or `platform`."),
  metadata: Type.Optional(
    Type.Record(Type.String(), Type.String(), { description: "Address, request id and the like, as text." }),
  ),
  platform_key_id: Type.Optional(Type.String()),
  platform_user_id: Type.Optional(Type.String()),
  impersonated_org_id: Type.Optional(Type.String()),
});

const TrailInput = Type.Object({
  run_id: Type.Optional(Type.String({ maxLength: 200 })),
  function_id: Type.Optional(Type.String({ maxLength: 200 })),
  event_type: Type.Optional(
    Type.String({ maxLength: 100, description: "Only rows of this type, such as `run.completed`." }),
  ),
  from: maybe.text("Nothing before this time, RFC 3339."),
  to: maybe.text("Nothing after this time, RFC 3339."),
  limit: Type.Optional(Type.Integer()),
  cursor: Type.Optional(Type.String()),
  action: Type.Optional(
    Type.String({ maxLength: 100, description: "Only calls that needed this action, such as `runs:read`." }),
  ),
  api_key_id: Type.Optional(Type.String({ maxLength: 200 })),
});

/** The audit of calls in the form of the trail; refuses callers who may not see it. */
export type CallTrail = (query: TrailQuery, call: Call) => Promise<Trail>;

export const historyOperations = (history: History, callTrail?: CallTrail) => [
  unary({
    name: "timetravel.state",
    action: "runs:read",
    summary: "A recorded run as it was at an instant.",
    reads: true,
    waitsFor: "log",
    input: Type.Object({ runId: id, timestamp, maxValueBytes: valueBytes }),
    rpc: rpc(
      TimeTravelService.method.getRunStateAt,
      (m) => ({
        runId: m.runId,
        ...(m.timestamp && { timestamp: rfc3339(instantOf(m.timestamp)) }),
        ...(m.maxValueBytes !== 0 && { maxValueBytes: m.maxValueBytes }),
      }),
      (state: ShownState) => ({ snapshot: snapshotMessage(state) }),
      { decode: (body) => withNumbers(body, ["maxValueBytes"]), encode: snapshotJson },
    ),
    async handle({ runId, timestamp: at, maxValueBytes }, call) {
      const state = await history.stateAt(call.environmentId, runId, instant(at));
      const [run] = await withoutHiddenInputs(call, [state.run]);
      return cutState({ ...state, run: run! }, maxValueBytes);
    },
  }),
  unary({
    name: "timetravel.timeline",
    action: "runs:read",
    summary: "What happened to a recorded run, in order.",
    reads: true,
    waitsFor: "log",
    input: Type.Object({ runId: id }),
    rpc: rpc(
      TimeTravelService.method.getRunTimeline,
      (m) => ({ runId: m.runId }),
      (events: TimelineEvent[]) => ({ events: events.map(timelineMessage) }),
    ),
    handle: (input, call) => history.timeline(call.environmentId, input.runId),
  }),
  unary({
    name: "timetravel.step_output",
    action: "runs:read",
    summary: "A step of a recorded run as it was at an instant.",
    reads: true,
    waitsFor: "log",
    input: Type.Object({ runId: id, stepId: id, timestamp }),
    rpc: rpc(
      TimeTravelService.method.getStepOutputAt,
      (m) => ({
        runId: m.runId,
        stepId: m.stepId,
        ...(m.timestamp && { timestamp: rfc3339(instantOf(m.timestamp)) }),
      }),
      ({ stepId, past }: { stepId: string; past: PastStep }) => ({
        stepId,
        status: past.status,
        output: new TextEncoder().encode(past.output ?? ""),
        originalOutput: new TextEncoder().encode(past.originalOutput ?? ""),
        patched: past.patched,
        injected: past.injected,
      }),
    ),
    async handle({ runId, stepId, timestamp: at }, call) {
      return { stepId, past: await history.stepAt(call.environmentId, runId, stepId, instant(at)) };
    },
  }),
  unary({
    name: "audit.trail",
    action: "runs:read",
    summary:
      "What runs of the environment did: newest run first, of each run the newest first; by action or api_key_id what callers did.",
    reads: true,
    input: TrailInput,
    output: Type.Object({
      events: Type.Array(AuditEvent, { description: "Rows, newest first." }),
      next_cursor: Type.String(),
      total_count: Type.Integer(),
      truncated: shape.flag(
        "The page ended because so many runs or calls had been looked at: its cursor goes on behind them.",
      ),
      scanned: shape.count("How many runs or calls were looked at, where truncated."),
      retention_days: shape.count("Days that rows are kept; 0: without end."),
    }),
    rest: { route: "GET /api/v1/audit", json: trailJson },
    rpc: rpc(
      AuditService.method.getAuditTrail,
      (m) => ({
        ...text("run_id", m.runId),
        ...text("event_type", m.eventType),
        ...text("from", m.fromTimestamp),
        ...text("to", m.toTimestamp),
        ...text("cursor", m.cursor),
        ...(m.limit !== 0 && { limit: m.limit }),
      }),
      (trail: Trail) => ({
        events: trail.events.map(auditMessage),
        totalCount: trail.totalCount,
        nextCursor: trail.nextCursor ?? "",
        ...{ truncated: trail.scanned > 0, scanned: trail.scanned },
        retentionDays: trail.retentionDays,
      }),
      { encode: trailRpcJson },
    ),
    // Lines of calls are of no run.
    lists: withoutPlace(
      listed(({ runId }: { runId: string }) => (runId === "" ? [] : [runId]), {
        under: "events",
        type: "run",
      }),
    ),
    handle: (input, call) =>
      callTrail && (input.action || input.api_key_id)
        ? callTrail(input, call)
        : history.trail(call.environmentId, input),
  }),
];
