import { Type } from "@sinclair/typebox";
import { withoutHiddenInputs } from "../../../gate/things.ts";
import { AuditEventSchema, AuditService, GetAuditTrailResponseSchema } from "../../../gen/svc/v1/audit_pb.ts";
import { TimeTravelService } from "../../../gen/svc/v1/timetravel_pb.ts";
import { withoutPlace } from "../../../kit/bounded-look.ts";
import { inSnakeCase } from "../../../kit/cases.ts";
import { parseRfc3339 } from "../../../kit/clock.ts";
import { valueBytes } from "../../../kit/cut-values.ts";
import { maybe } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import { shapeOf } from "../../../kit/message-shape.ts";
import { type Call, inJson, listed, rpc, unary } from "../../../kit/operation.ts";
import { asGiven, requestOf } from "../../../kit/request.ts";
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

export const AuditEvent = shapeOf(AuditEventSchema, {
  omit: "payload_value",
  absent: "step_id metadata platform_key_id platform_user_id impersonated_org_id",
  own: { payload: Type.Object({}, { additionalProperties: true }) },
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

const read = { action: "runs:read", reads: true, waitsFor: "log" } as const;

export const historyOperations = (history: History, callTrail?: CallTrail) => [
  unary({
    name: "timetravel.state",
    ...read,
    summary: "A recorded run as it was at an instant.",
    input: Type.Object({ runId: id, timestamp, maxValueBytes: valueBytes }),
    rpc: rpc(
      TimeTravelService.method.getRunStateAt,
      (m) => ({ ...asGiven(m), runId: m.runId }),
      (state: ShownState) => ({ snapshot: snapshotMessage(state) }),
      { ...inJson, encode: snapshotJson },
    ),
    async handle({ runId, timestamp: at, maxValueBytes }, call) {
      const state = await history.stateAt(call.environmentId, runId, instant(at));
      const [run] = await withoutHiddenInputs(call, [state.run]);
      return cutState({ ...state, run: run! }, maxValueBytes);
    },
  }),
  unary({
    name: "timetravel.timeline",
    ...read,
    summary: "What happened to a recorded run, in order.",
    ...requestOf(
      TimeTravelService.method.getRunTimeline,
      (events: TimelineEvent[]) => ({
        events: events.map(timelineMessage),
      }),
      { runId: id },
    ),
    handle: (input, call) => history.timeline(call.environmentId, input.runId),
  }),
  unary({
    name: "timetravel.step_output",
    ...read,
    summary: "A step of a recorded run as it was at an instant.",
    input: Type.Object({ runId: id, stepId: id, timestamp }),
    rpc: rpc(
      TimeTravelService.method.getStepOutputAt,
      (m) => ({ ...asGiven(m), runId: m.runId, stepId: m.stepId }),
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
    output: shapeOf(GetAuditTrailResponseSchema, { own: { events: Type.Array(AuditEvent) } }),
    rest: { route: "GET /api/v1/audit", json: trailJson },
    rpc: rpc(
      AuditService.method.getAuditTrail,
      ({ fromTimestamp: from, toTimestamp: to, ...m }) => inSnakeCase(asGiven({ ...m, from, to })),
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
