import { type Static, Type } from "@sinclair/typebox";
import { namesOfEvent } from "../../../gate/things.ts";
import { SvcService } from "../../../gen/svc/v1/svc_pb.ts";
import { RunStatus } from "../../../gen/svc/v1/types_pb.ts";
import { invalid } from "../../../kit/fault.ts";
import { type Call, inJson, nothing, type Operation, rpc, unary } from "../../../kit/operation.ts";
import { timeBound } from "../../../kit/page.ts";
import type { Redaction } from "../../../kit/redact.ts";
import { asGiven, requestOf } from "../../../kit/request.ts";
import { aboutStep } from "../../../kit/step-id.ts";
import { timestampOf } from "../../../kit/wkt.ts";
import { type EndedStatus, endedStatuses } from "./rules.ts";
import type { Eraser, Erasure } from "./service.ts";

const id = Type.String({ minLength: 1, maxLength: 2_048 });
const reason = Type.Optional(Type.String({ maxLength: 1_024 }));
const deletedDefault = 1_000;
const deletedMax = 10_000;

const eraserOf = ({ environmentId, caller }: Call): Eraser => ({
  ...{ environmentId, orgId: caller.orgId, actorId: caller.id },
});

const numbers: Record<EndedStatus, number> = {
  ...{ completed: RunStatus.COMPLETED, failed: RunStatus.FAILED, cancelled: RunStatus.CANCELLED },
};

/** Words come as `completed`, `COMPLETED` and the enum constant. */
function statusesOf(words: readonly (string | number)[]): readonly EndedStatus[] {
  const read = words.map((word) => {
    const text = `${word}`.toLowerCase().replace(/^run_status_/, "");
    const found = endedStatuses.find((status) => status === text || numbers[status] === word);
    if (!found)
      throw invalid("statuses", `only runs that are over are deleted: one of ${endedStatuses.join(", ")}`);
    return found;
  });
  return read.length === 0 ? endedStatuses : endedStatuses.filter((status) => read.includes(status));
}

const redactionOf = ({ at, by }: Redaction) => ({ redactedAt: timestampOf(at), redactedBy: by ?? "" });

/** Each leaves a row in the audit, with its input, whatever the settings exclude. */
const special = { isAudited: true };

const EventInput = Type.Object({ entityId: Type.Optional(Type.String()), eventId: id, reason });
type JudgedEvent = Static<typeof EventInput> & { name?: string; entity_id?: string | null };

export const erasureOperations = (erasure: Erasure): Operation[] => [
  ...deletions(erasure),
  unary({
    name: "runs.redact",
    action: "runs:redact",
    special,
    summary: "Overwrites what a run that is over was given, made and wrote. Its event has a call of its own.",
    ...requestOf(
      SvcService.method.redactRun,
      ({ eventId, unredactedIds, ...redaction }: Awaited<ReturnType<Erasure["redactRun"]>>) => ({
        ...{ ...redactionOf(redaction), eventId, eventRedacted: unredactedIds.length === 0 },
        unredactedEventIds: unredactedIds,
      }),
      { runId: id, reason },
    ),
    handle: ({ runId }, call) => erasure.redactRun(eraserOf(call), runId),
  }),
  unary({
    name: "steps.redact",
    action: "runs:redact",
    special,
    summary: "Overwrites what one step of a run that is over was given and made.",
    ...requestOf(SvcService.method.redactStep, redactionOf, { stepId: id, reason }),
    about: aboutStep,
    handle: ({ stepId }, call) => erasure.redactStep(eraserOf(call), stepId),
  }),
  unary({
    name: "events.redact",
    action: "events:redact",
    special,
    summary: "Overwrites the payload of an event, with snapshots and webhook requests that may hold it.",
    ...requestOf(
      SvcService.method.redactEvent,
      ({ entityVersion, at }: Awaited<ReturnType<Erasure["redactEvent"]>>) => ({
        entityVersion: BigInt(entityVersion),
        redactedAt: timestampOf(at),
      }),
      { eventId: id, reason },
    ),
    about: ({ eventId, name, entity_id: stream }: JudgedEvent) => [
      eventId,
      ...(name === undefined ? [] : namesOfEvent(name)),
      // As the call of streams asks.
      ...(stream ? [{ type: "stream", id: stream, action: "entities:append" }] : []),
    ],
    alsoAsks: ["entities:append"],
    async handle({ entityId = "", eventId }, call, permit) {
      if (entityId !== "") throw invalid("entity_id", "must be empty: the event is found by its own id");
      const event = await erasure.eventOf(call.environmentId, eventId);
      await permit({ eventId, name: event.name, entity_id: event.entity_id });
      return erasure.redactEvent(eraserOf(call), event);
    },
  }),
];

const deletions = (erasure: Erasure): Operation[] => [
  unary({
    name: "runs.delete",
    action: "runs:delete",
    special,
    summary: "Deletes a run that is over, with its steps, history, logs and attributes. Its event stays.",
    ...requestOf(SvcService.method.deleteRun, nothing, { runId: id, reason }),
    handle: ({ runId }, call) => erasure.deleteRun(call.environmentId, runId),
  }),
  unary({
    name: "runs.deleteMany",
    action: "runs:delete",
    ...{ special, held: true },
    summary: "Deletes runs that are over, the oldest first: of a function, of some statuses, up to a time.",
    about: () => [],
    input: Type.Object({
      // An empty bound would mean the runs of all functions and times, which are gone for good then.
      functionId: Type.Optional(Type.String({ minLength: 1 })),
      statuses: Type.Optional(
        Type.Array(Type.Union([Type.String(), Type.Integer()]), { minItems: 1, maxItems: 20 }),
      ),
      until: Type.Optional(Type.String({ minLength: 1 })),
      limit: Type.Optional(Type.Integer({ minimum: 0, maximum: deletedMax })),
      reason,
    }),
    rpc: rpc(
      SvcService.method.deleteRuns,
      asGiven,
      (answer: { deleted: number; hasMore: boolean }) => answer,
      inJson,
    ),
    async handle({ functionId, statuses = [], until, limit }, call) {
      const before = timeBound("until", until);
      const screen = await call.screen("runs:delete", "run");
      return erasure.deleteMany(call.environmentId, {
        ...(functionId && { functionId }),
        ...(before !== undefined && { until: before }),
        ...{ statuses: statusesOf(statuses), limit: limit || deletedDefault, signal: call.signal },
        isDenied: async (runId) => (await screen?.refusalOf([runId])) !== undefined,
      });
    },
  }),
];
