import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow } from "../../../../gate/things.ts";
import { ProjectionService, type RebuildJobSchema } from "../../../../gen/svc/v1/projection_pb.ts";
import { nothing, type Operation, rpc, unary } from "../../../../kit/operation.ts";
import { requestOf } from "../../../../kit/request.ts";
import { timestampOf } from "../../../../kit/wkt.ts";
import { projectionThings } from "../rules.ts";
import type { Rebuilds, RebuildView } from "./service.ts";

/** Of the projection that is rebuilt, whatever its own name says. */
const Definition = Type.Object({
  events: Type.Array(Type.String()),
  mode: Type.String(),
  partitionKey: Type.String(),
  version: Type.Integer(),
  recording: Type.Boolean(),
});
const fromDefinition = ({ events, mode, partitionKey, version, recording }: Static<typeof Definition>) => ({
  ...{ events, mode, partitionKey, version, recording },
});

const about = ({ name }: { name: string }) => [name];

const toJob = (job: RebuildView): MessageInitShape<typeof RebuildJobSchema> => ({
  ...{ jobId: job.id, projectionName: job.name, status: job.status, progress: job.progress },
  eventsProcessed: BigInt(job.processed_count),
  totalEvents: BigInt(job.total_count),
  startedAt: timestampOf(job.started_at),
  ...(job.remainingMs !== undefined && {
    estimatedRemaining: {
      seconds: BigInt(Math.floor(job.remainingMs / 1000)),
      nanos: (job.remainingMs % 1000) * 1_000_000,
    },
  }),
  ...{ error: job.error ?? "", fromEventId: job.from_event_id ?? "", toEventId: job.to_event_id ?? "" },
  ...{ partition: job.partition_key ?? "", dryRun: job.isDryRun, strategy: job.strategy },
  generation: BigInt(job.generation),
});
const toAnswer = (job: RebuildView) => ({ job: toJob(job) });

export const rebuildOperations = (rebuilds: Rebuilds): Operation[] => [
  unary({
    name: "projections.rebuild",
    action: "projections:manage",
    summary: "Folds a projection again, in place of what is read or beside it.",
    input: Type.Object({
      name: Type.String(),
      partition: Type.String(),
      fromEventId: Type.String(),
      toEventId: Type.String(),
      isDryRun: Type.Boolean(),
      strategy: Type.String(),
      definition: Type.Optional(Definition),
    }),
    about: ({ name, definition }: { name: string; definition?: Static<typeof Definition> }) =>
      definition ? projectionThings(name, definition.events) : [name],
    alsoAsks: actionsThatShow("event", "stream"),
    rpc: rpc(
      ProjectionService.method.rebuildProjection,
      (m) => ({
        ...{ name: m.name, partition: m.partition, fromEventId: m.fromEventId, toEventId: m.toEventId },
        ...{ isDryRun: m.dryRun, strategy: m.strategy },
        ...(m.definition && { definition: fromDefinition(m.definition) }),
      }),
      toAnswer,
    ),
    handle: ({ definition, ...request }, call) =>
      rebuilds.start(call.environmentId, { ...request, definition, actorId: call.caller.id }),
  }),
  unary({
    name: "projections.rebuildJob",
    action: "projections:read",
    summary: "The last rebuild of a projection.",
    reads: true,
    ...requestOf(ProjectionService.method.getRebuildJob, toAnswer),
    about,
    handle: ({ name }, call) => rebuilds.get(call.environmentId, name),
  }),
  unary({
    name: "projections.cancelRebuild",
    action: "projections:manage",
    summary: "Ends a rebuild: one beside leaves no trace, one in place goes on as usual.",
    ...requestOf(ProjectionService.method.cancelRebuild, (status: string) => ({ status })),
    about,
    handle: ({ name }, call) => rebuilds.cancel(call.environmentId, name),
  }),
  unary({
    name: "projections.reportRebuild",
    action: "projections:manage",
    isRoutine: true,
    summary: "How far a runner is that rebuilds an external projection by means of its own.",
    input: Type.Object({
      name: Type.String(),
      processed: Type.Integer(),
      total: Type.Integer(),
      isCompleted: Type.Boolean(),
    }),
    about,
    rpc: rpc(
      ProjectionService.method.reportRebuildProgress,
      (m) => ({
        ...{ name: m.name, processed: Number(m.eventsProcessed), total: Number(m.totalEvents) },
        isCompleted: m.completed,
      }),
      nothing,
    ),
    handle: (report, call) => rebuilds.report(call.environmentId, report),
  }),
];
