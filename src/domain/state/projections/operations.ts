import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow } from "../../../gate/things.ts";
import { ProjectionService } from "../../../gen/svc/v1/projection_pb.ts";
import { parseRfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { invalid } from "../../../kit/fault.ts";
import { inJson, listed, nothing, type Operation, rpc, unary } from "../../../kit/operation.ts";
import { asSent, requestOf } from "../../../kit/request.ts";
import { namedProjection } from "../../../kit/sequence.ts";
import { instantOf } from "../../../kit/wkt.ts";
import type { DefinitionInput } from "./rules.ts";
import { projectionThings } from "./rules.ts";
import type { ListedProjection, ProjectionRevision, Projections } from "./service.ts";
import { projectionJson, toInfo, toProjection, toRevisionMessage, toStatus } from "./wire.ts";

const text = Type.Optional(Type.String());
const count = Type.Optional(Type.Integer());

const Register = Type.Object({
  name: Type.String(),
  events: Type.Array(Type.String()),
  mode: text,
  partitionKey: text,
  version: count,
  recording: Type.Optional(Type.Boolean()),
});

const Name = Type.Object({ name: shape.text("Name of the projection.") });
const about = ({ name }: Static<typeof Name>) => [name];

function asOfQuery(text: string | null): { asOf?: number } {
  if (text === null) return {};
  const asOf = parseRfc3339(text);
  if (asOf === undefined) throw invalid("as_of", "must be an RFC 3339 time");
  return { asOf };
}

const State = Type.Object({
  projection_name: Type.String(),
  environment_id: Type.String(),
  partition_key: Type.String(),
  state: Type.Unknown({ description: "State of the partition." }),
  last_event_id: Type.String(),
  last_event_seq: Type.Integer(),
  last_event_time: Type.String({ format: "date-time" }),
  version: shape.count("Version of the definition that folded it."),
  updated_at: Type.String({ format: "date-time" }),
});

const read = { action: "projections:read", reads: true, waitsFor: "log" } as const;
const readProjections = { action: "projections:read", reads: true, waitsFor: namedProjection } as const;

export const projectionsOperations = (projections: Projections): Operation[] => [
  ...registryOperations(projections),
  ...readOperations(projections),
  ...historyOperations(projections),
];

const registryOperations = (projections: Projections): Operation[] => [
  unary({
    name: "projections.register",
    action: "projections:manage",
    summary: "Registers a projection, or takes over a changed definition without a rebuild.",
    ...requestOf(
      ProjectionService.method.registerProjection,
      ({ status, position }: Awaited<ReturnType<Projections["register"]>>) => ({
        status,
        lastEventSeq: BigInt(position),
      }),
    ),
    about: ({ name, events }: Static<typeof Register>) => projectionThings(name, events),
    alsoAsks: actionsThatShow("event", "stream"),
    handle: (input, call) =>
      projections.register(call.environmentId, input as DefinitionInput, call.caller.id),
  }),
  unary({
    name: "projections.delete",
    action: "projections:manage",
    summary: "Deletes a projection with its states.",
    input: Name,
    about,
    rest: { route: "DELETE /api/v1/projections/{name}", json: () => ({ status: "deleted" }) },
    output: Type.Object({ status: shape.text("Always `deleted`.") }),
    rpc: rpc(ProjectionService.method.unregisterProjection, asSent, nothing),
    handle: ({ name }, call) => projections.delete(call.environmentId, name, call.caller.id),
  }),
  unary({
    name: "projections.pause",
    action: "projections:manage",
    summary: "Delivers no events to the runner of a projection until it is resumed.",
    ...requestOf(ProjectionService.method.pauseProjection, (status: string) => ({ status })),
    about,
    handle: ({ name }, call) => projections.pause(call.environmentId, name, call.caller.id),
  }),
  unary({
    name: "projections.resume",
    action: "projections:manage",
    summary: "Goes on with a paused projection, and tries again what failed or passes over it.",
    ...requestOf(ProjectionService.method.resumeProjection, (status: string) => ({ status })),
    about,
    handle: ({ name, skipEventId = "" }, call) =>
      projections.resume(call.environmentId, name, { skipEventId, actorId: call.caller.id }),
  }),
];

/** The recorded changes of a projection. */
const historyOperations = (projections: Projections): Operation[] => [
  unary({
    name: "projections.history",
    action: "projections:read",
    reads: true,
    summary: "Every change of a projection, newest first; also of one that is deleted.",
    input: Type.Object({
      name: Type.String(),
      limit: count,
      fromVersion: Type.Optional(Type.Integer({ minimum: 0 })),
    }),
    about,
    rpc: rpc(
      ProjectionService.method.listProjectionHistory,
      asSent,
      ({ entries, hasMore }: Awaited<ReturnType<Projections["history"]>>) => ({
        entries: entries.map(toRevisionMessage),
        hasMore,
      }),
      inJson,
    ),
    handle: ({ name, limit, fromVersion = 0 }, call) =>
      projections.history(call.environmentId, name, {
        ...(limit !== undefined && { limit }),
        ...(fromVersion > 0 && { before: fromVersion }),
      }),
  }),
  unary({
    name: "projections.revision",
    action: "projections:read",
    reads: true,
    summary: "A projection as it stood after one of its changes.",
    input: Type.Object({ name: Type.String(), version: Type.Integer({ minimum: 1 }) }),
    about,
    rpc: rpc(
      ProjectionService.method.getProjectionRevision,
      asSent,
      (entry: ProjectionRevision) => ({ entry: toRevisionMessage(entry) }),
      inJson,
    ),
    handle: ({ name, version }, call) => projections.revision(call.environmentId, name, version),
  }),
];

const readOperations = (projections: Projections): Operation[] => [
  unary({
    name: "projections.list",
    ...read,
    summary: "Projections by name.",
    ...requestOf(
      ProjectionService.method.listProjections,
      (page: Awaited<ReturnType<Projections["list"]>>) => ({
        projections: page.projections.map(toInfo),
        totalCount: page.totalCount,
      }),
    ),
    handle: ({ status, mode, limit, offset }, call) =>
      projections.list(call.environmentId, { status, mode, limit, offset }),
    lists: listed(({ name }: ListedProjection) => [name], { under: "projections" }),
  }),
  unary({
    name: "projections.get",
    ...readProjections,
    summary: "The state of one partition of a projection, with its registration.",
    input: Type.Object({
      name: shape.text("Name of the projection."),
      partition: text,
      generation: count,
      asOf: Type.Optional(Type.Integer()),
    }),
    about,
    rest: {
      route: "GET /api/v1/projections/{name}",
      decode: ({ params, query }) => ({
        ...{ name: params.name, partition: query.get("partition") ?? "" },
        ...asOfQuery(query.get("as_of")),
      }),
      json: projectionJson,
      query: Type.Object({
        partition: text,
        as_of: maybe.time(
          "The state as it was saved with no event behind that time, RFC 3339; of recording projections.",
        ),
      }),
    },
    output: Type.Object({
      name: shape.text("Name of the projection."),
      version: shape.count("Version of the registered definition."),
      mode: shape.text("`managed` (the server keeps the state), `external` or `sql` (the server folds)."),
      status: shape.text("active, paused, rebuilding or error"),
      error_message: Type.String(),
      last_event_seq: Type.Integer(),
      updated_at: Type.String({ format: "date-time" }),
      state: Type.Union([State, Type.Null()], {
        description: "State of the partition; null where nothing was folded.",
      }),
    }),
    rpc: rpc(
      ProjectionService.method.getProjection,
      ({ name, partition, generation, asOf }) => ({
        ...{ name, partition, generation: Number(generation) },
        ...(asOf && { asOf: instantOf(asOf) }),
      }),
      toProjection,
    ),
    handle: ({ name, partition, generation, asOf }, call) =>
      projections.get(call.environmentId, name, { partition, generation, asOf }),
  }),
  unary({
    name: "projections.status",
    ...read,
    summary: "How far a projection is, and what is wrong with it.",
    ...requestOf(ProjectionService.method.getProjectionStatus, toStatus),
    about,
    handle: ({ name }, call) => projections.standing(call.environmentId, name),
  }),
  unary({
    name: "projections.partitions",
    ...readProjections,
    summary: "Partitions of a managed projection that have a state, by key.",
    input: Type.Object({
      name: shape.text("Name of the projection."),
      q: described(text, "A part of the keys of partitions."),
      limit: Type.Optional(
        Type.Integer({
          minimum: 0,
          description: "How many at most: 100 unless it says otherwise, never more than 1,000.",
        }),
      ),
    }),
    about,
    rest: "GET /api/v1/projections/{name}/partitions",
    output: Type.Object({
      partitions: Type.Array(Type.String(), { description: "Keys of partitions, in order." }),
      returned: shape.count("How many keys are listed."),
    }),
    async handle({ name, q = "", limit }, call) {
      const partitions = await projections.partitions(call.environmentId, name, { search: q, limit });
      return { partitions, returned: partitions.length };
    },
  }),
];
