import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { AuditEventSchema } from "../../../gen/svc/v1/audit_pb.ts";
import type {
  TimeTravelRunStateSnapshotSchema,
  TimeTravelTimelineEventSchema,
} from "../../../gen/svc/v1/timetravel_pb.ts";
import { inCamelCase, snakeCase } from "../../../kit/cases.ts";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { type CutValue, cutValues } from "../../../kit/cut-values.ts";
import { fieldsFor } from "../../../kit/message-shape.ts";
import { timestampOf } from "../../../kit/wkt.ts";
import { isSignificant, summaryOf } from "./rules.ts";
import type { RunState, TimelineEvent, Trail } from "./service.ts";

const bytes = (text: string | null) => new TextEncoder().encode(text ?? "");
const base64 = (text: string | null) => Buffer.from(text ?? "").toString("base64");
/** A time is shown only once it has come. */
const when = (at: Instant | null, now: Instant) => (at !== null && at <= now ? at : undefined);

type Bounded<Shown> = Shown & { cutValues?: readonly CutValue[] };
/** A state of which values may be cut. */
export interface ShownState extends Omit<RunState, "run" | "steps"> {
  run: Bounded<RunState["run"]>;
  steps: readonly Bounded<RunState["steps"][number]>[];
}

const ofRun = { input: "input" } as const;
const ofStep = { output: "output", error: "error", originalOutput: "original_output" } as const;

/** Values that are larger are told of only; all stay where no bound is given. */
export const cutState = (state: RunState, bytesMax: number | undefined): ShownState => ({
  ...state,
  run: cutValues(state.run, ofRun, { bytesMax, instead: null }),
  steps: state.steps.map((step) => cutValues(step, ofStep, { bytesMax, instead: null })),
});

const cutMessages = (cut: readonly CutValue[] = []) => cut.map((one) => ({ ...one }));

export function snapshotMessage(
  state: ShownState,
): MessageInitShape<typeof TimeTravelRunStateSnapshotSchema> {
  return {
    runId: state.run.id,
    functionId: state.run.functionId,
    status: state.status,
    input: bytes(state.run.input),
    timestamp: timestampOf(state.at),
    createdAt: timestampOf(state.run.createdAt),
    cutValues: cutMessages(state.run.cutValues),
    steps: state.steps.map(({ step, ...past }) => {
      const started = when(step.startedAt, state.at);
      const completed = past.status === "sleeping" ? undefined : when(step.endedAt, state.at);
      return {
        stepId: step.stepId,
        name: step.name,
        type: step.type,
        sequence: step.sequence,
        status: past.status,
        output: bytes(past.output),
        error: bytes(past.error),
        originalOutput: bytes(past.originalOutput),
        ...(started !== undefined && { startedAt: timestampOf(started) }),
        ...(completed !== undefined && { completedAt: timestampOf(completed) }),
        durationMs: completed === undefined ? 0 : (step.durationMs ?? 0),
        injected: past.injected,
        patched: past.patched,
        cutValues: cutMessages(past.cutValues),
      };
    }),
  };
}

/**
 * Clients read the snapshot flat or wrapped, with fields in either case, so it has all of these. Bytes are
 * base64.
 */
export function snapshotJson(state: ShownState) {
  const steps = state.steps.map(({ step, ...past }) => {
    const started = when(step.startedAt, state.at);
    const completed = past.status === "sleeping" ? undefined : when(step.endedAt, state.at);
    return bothCases({
      stepId: step.stepId,
      name: step.name,
      type: step.type,
      sequence: step.sequence,
      status: past.status,
      ...(past.output !== null && { output: base64(past.output) }),
      ...(past.error !== null && { error: base64(past.error) }),
      ...(past.originalOutput !== null && { originalOutput: base64(past.originalOutput) }),
      ...(started !== undefined && { startedAt: rfc3339(started) }),
      ...(completed !== undefined && { completedAt: rfc3339(completed) }),
      ...(completed !== undefined && step.durationMs !== null && { durationMs: step.durationMs }),
      injected: past.injected,
      patched: past.patched,
      ...(past.cutValues && { cutValues: past.cutValues }),
    });
  });
  const snapshot = bothCases({
    runId: state.run.id,
    functionId: state.run.functionId,
    status: state.status,
    ...(state.run.input !== null && { input: base64(state.run.input) }),
    ...(state.run.cutValues && { cutValues: state.run.cutValues }),
    steps,
    timestamp: rfc3339(state.at),
    createdAt: rfc3339(state.run.createdAt),
  });
  return { snapshot, ...snapshot };
}

const bothCases = (value: Record<string, unknown>): Record<string, unknown> => {
  const both: Record<string, unknown> = { ...value };
  for (const [key, one] of Object.entries(value)) both[snakeCase(key)] = one;
  return both;
};

export const timelineMessage = (
  event: TimelineEvent,
): MessageInitShape<typeof TimeTravelTimelineEventSchema> => ({
  id: event.id,
  eventType: event.type,
  stepId: event.stepId ?? "",
  stepName: event.stepName,
  summary: summaryOf(event),
  significant: isSignificant(event.type),
  timestamp: timestampOf(event.at),
});

const ofEvent = fieldsFor(AuditEventSchema);

export const auditMessage = (event: Trail["events"][number]): MessageInitShape<typeof AuditEventSchema> => ({
  ...ofEvent(event, "id runId functionId stepId environmentId"),
  ...{ eventType: event.type, payload: event.payload as JsonObject, createdAt: timestampOf(event.at) },
  scope: "tenant",
});

export const auditJson = (event: Trail["events"][number]) => ({
  id: event.id,
  run_id: event.runId,
  function_id: event.functionId,
  ...(event.stepId !== null && { step_id: event.stepId }),
  event_type: event.type,
  payload: event.payload,
  environment_id: event.environmentId,
  created_at: rfc3339(event.at),
  scope: "tenant",
  ...event.more,
});

export const trailJson = (trail: Trail) => ({
  events: trail.events.map(auditJson),
  next_cursor: trail.nextCursor ?? "",
  total_count: trail.totalCount,
  ...{ truncated: trail.scanned > 0, scanned: trail.scanned },
  retention_days: trail.retentionDays,
});

/** The same body over RPC, with the entries that one client reads instead. */
export const trailRpcJson = (trail: Trail) => ({
  ...trailJson(trail),
  events: trail.events.map((event) => ({ ...inCamelCase(auditJson(event)), ...auditJson(event) })),
  nextCursor: trail.nextCursor ?? "",
  totalCount: trail.totalCount,
  retentionDays: trail.retentionDays,
  entries: trail.events.map((event) => ({
    id: event.id,
    type: event.type,
    timestamp: rfc3339(event.at),
    data: { ...event.payload, run_id: event.runId, function_id: event.functionId },
  })),
});
