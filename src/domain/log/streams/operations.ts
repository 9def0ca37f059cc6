import { type Static, Type } from "@sinclair/typebox";
import { actionsThatShow, namesOfEvent, thingsOf } from "../../../gate/things.ts";
import { EntityStreamService } from "../../../gen/svc/v1/entity_stream_pb.ts";
import { withoutPlace } from "../../../kit/bounded-look.ts";
import { invalid } from "../../../kit/fault.ts";
import { type Call, inJson, listed, type Operation, rpc, type Thing, unary } from "../../../kit/operation.ts";
import { timeBound } from "../../../kit/page.ts";
import { jsonText } from "../../../kit/payload-json.ts";
import { asGiven, asSent, requestOf } from "../../../kit/request.ts";
import { lastPosition } from "../../../kit/sequence.ts";
import { safeCount, timestampOf } from "../../../kit/wkt.ts";
import { draftNamed, type EventDraft, noteStarts } from "../../engine/emit/rules.ts";
import { fromBody } from "../../engine/emit/wire.ts";
import type { Upcasts } from "../schemas/service.ts";
import {
  type AppendInput,
  type AppendTarget,
  appendEventsMax,
  appendStreamsMax,
  directionOf,
  entityOf,
  requireBatch,
  requireCount,
  type StreamAppend,
  type StreamEventInput,
} from "./rules.ts";
import {
  type Emitted,
  requireReadable,
  type StreamInfo,
  type StreamPage,
  type Streams,
  withoutHidden,
} from "./service.ts";
import {
  fromAppend,
  fromBatchBody,
  fromStream,
  stateOf,
  toAppended,
  toAppendedBody,
  toHistory,
  toInfo,
  toList,
  toPage,
  toPageBody,
  toSnapshot,
} from "./wire.ts";

const text = Type.Optional(Type.String());
const count = Type.Optional(Type.Integer());
const entityId = Type.String();
const idOf = ({ entity_id }: StreamInfo) => [entity_id];

const newEvent = {
  eventName: Type.String(),
  data: Type.Optional(Type.Unknown()),
  version: Type.Optional(Type.Integer({ maximum: 2_147_483_647 })),
  metadata: Type.Optional(Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.Null()])),
  idempotencyKey: text,
};
const target = { entityId, entityType: Type.String(), expectedVersion: count };

const Append = Type.Object({ ...target, ...newEvent });
const Batch = Type.Object({
  streams: Type.Array(Type.Object({ ...target, events: Type.Array(Type.Object(newEvent)) })),
});

/** An append is an event too: a policy that denies the event denies the append. */
const aboutAppend = (id: string, eventName: string): (string | Thing)[] => [
  id,
  ...namesOfEvent(eventName).map((name) => ({ type: "event", id: name, action: "events:emit" })),
];
const appendAsks = ["events:emit", "functions:invoke"];

/** Two actions name the reading of a stream; a policy may deny either. */
const aboutRead = ({ entityId: id }: { entityId: string }) => [id, ...thingsOf("stream", id)];
const readAsks = actionsThatShow("stream");

const originOf = ({ environmentId, runId, traceparent }: Call) => ({
  ...{ environmentId, source: "api", runId, traceparent },
});

/** `of` is the place of its stream in a batch, `at` its own. */
function appendDraft(
  event: StreamEventInput,
  stream: AppendTarget,
  { headerKey, of = "", at = of }: { headerKey?: string | undefined; of?: string; at?: string },
): EventDraft {
  const draft = draftNamed("eventName", event.eventName, event, { headerKey, at });
  draft.entity = entityOf(stream, of);
  return draft;
}

/** The events of a batch in their order. Each states what its stream must be at before the batch. */
const batchDrafts = (streams: readonly StreamAppend[]): EventDraft[] =>
  streams.flatMap((stream, of) =>
    stream.events.map((event, at) =>
      appendDraft(event, stream, { of: `streams[${of}].`, at: `streams[${of}].events[${at}].` }),
    ),
  );

async function append(streams: Streams, drafts: EventDraft[], call: Call): Promise<Emitted[]> {
  const noting = noteStarts(call, drafts);
  if (noting) await noting;
  return streams.append(drafts, originOf(call));
}

const readEntities = { action: "entities:read", reads: true, waitsFor: "log" } as const;

const appendOperations = (streams: Streams): Operation[] => [
  unary({
    name: "streams.append",
    action: "entities:append",
    summary: "Appends one event to the stream of an entity, which must be at the expected version.",
    input: Append,
    writes: { log: "events", positionOf: ({ position }: Emitted) => position },
    about: ({ entityId: id, eventName }: Static<typeof Append>) => aboutAppend(id, eventName),
    alsoAsks: appendAsks,
    rpc: rpc(EntityStreamService.method.appendEvent, fromAppend, toAppended, {
      decode: fromBody,
      encode: toAppendedBody,
    }),
    async handle(input, call) {
      const one = input as AppendInput;
      const draft = appendDraft(one, one, { headerKey: call.idempotencyKey });
      return (await append(streams, [draft], call))[0]!;
    },
  }),
  unary({
    name: "streams.appendBatch",
    action: "entities:append",
    summary: `Appends up to ${appendEventsMax} events to up to ${appendStreamsMax} streams: all of them, or none.`,
    input: Batch,
    writes: { log: "events", positionOf: lastPosition },
    about: ({ streams: list }: Static<typeof Batch>) =>
      list.flatMap(({ entityId: id, events }) =>
        events.flatMap(({ eventName }) => aboutAppend(id, eventName)),
      ),
    alsoAsks: appendAsks,
    rpc: rpc(
      EntityStreamService.method.appendEvents,
      (m) => ({ streams: m.streams.map(fromStream) as Static<typeof Batch>["streams"] }),
      (list: Emitted[]) => ({ results: list.map(toAppended) }),
      { decode: fromBatchBody, encode: (list) => ({ results: list.map(toAppendedBody) }) },
    ),
    handle(input, call) {
      if (call.idempotencyKey)
        throw invalid("Idempotency-Key", "give each event of a batch its own idempotencyKey");
      requireBatch(input.streams as StreamAppend[]);
      return append(streams, batchDrafts(input.streams as StreamAppend[]), call);
    },
  }),
];

const Read = Type.Object({ entityId, fromVersion: count, limit: count, direction: text });

const rangeOf = ({ entityId: id, fromVersion, direction }: Static<typeof Read>) => ({
  entityId: id,
  fromVersion: requireCount("fromVersion", fromVersion),
  direction: directionOf(direction),
});

const readOperations = (streams: Streams, schemas: Upcasts, mayServe: MayServe): Operation[] => [
  unary({
    name: "streams.list",
    ...readEntities,
    summary: "Entity streams of the environment, by id.",
    input: Type.Object({
      entityType: text,
      search: Type.Optional(Type.String({ maxLength: 256 })),
      includeDeleted: Type.Optional(Type.Boolean()),
      limit: count,
      offset: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000 })),
      cursor: Type.Optional(Type.String({ maxLength: 2_000 })),
    }),
    lists: withoutPlace(listed(idOf, { under: "streams", also: "streams:read" })),
    rpc: rpc(EntityStreamService.method.listStreams, asSent, toList, inJson),
    handle: ({ entityType, search, includeDeleted = false, limit, offset = 0, cursor }, call) =>
      streams.list(call.environmentId, {
        ...(entityType && { entityType }),
        ...(search && { search }),
        ...(cursor && { cursor }),
        ...{ includeDeleted, limit, offset },
      }),
  }),
  unary({
    name: "streams.get",
    ...readEntities,
    summary: "The type, version and times of an entity's stream.",
    ...requestOf(EntityStreamService.method.getStreamInfo, toInfo),
    about: aboutRead,
    alsoAsks: readAsks,
    handle: (input, call) => streams.info(call.environmentId, input.entityId),
  }),
  unary({
    name: "streams.read",
    ...readEntities,
    summary: "Events of a stream by version, whole or in pages.",
    input: Type.Composite([Read, Type.Object({ schemaVersion: count })]),
    about: aboutRead,
    alsoAsks: readAsks,
    rpc: rpc(EntityStreamService.method.readStream, asSent, toPage, { ...inJson, encode: toPageBody }),
    async handle(input, call): Promise<StreamPage> {
      const { environmentId } = call;
      const runId = call.runId !== undefined && (await mayServe(call)) ? call.runId : undefined;
      const limit = requireCount("limit", input.limit);
      const schemaVersion = requireCount("schemaVersion", input.schemaVersion);
      const page = await streams.read(environmentId, { ...rangeOf(input), limit }, runId);
      await requireReadable(page, call);
      if (schemaVersion === 0) return page;
      return { ...page, events: await schemas.broughtUp(environmentId, page.events, schemaVersion) };
    },
  }),
  unary({
    name: "streams.history",
    ...readEntities,
    summary: "Events of a stream beside the runs and steps that they started.",
    input: Type.Composite([
      Read,
      Type.Object({ fromTimestamp: text, toTimestamp: text, schemaVersion: count }),
    ]),
    about: aboutRead,
    alsoAsks: [...readAsks, "runs:read"],
    rpc: rpc(
      EntityStreamService.method.getEntityHistory,
      (m) => ({ ...asGiven(m), entityId: m.entityId }),
      toHistory,
      inJson,
    ),
    async handle(input, call) {
      const { environmentId } = call;
      const version = requireCount("schemaVersion", input.schemaVersion);
      const page = await streams.history(environmentId, {
        ...rangeOf(input),
        limit: requireCount("limit", input.limit),
        since: timeBound("fromTimestamp", input.fromTimestamp),
        until: timeBound("toTimestamp", input.toTimestamp),
      });
      const allowed = await withoutHidden(page, call);
      if (version === 0) return allowed;
      const events = allowed.entries.map(({ event }) => event);
      const broughtUp = await schemas.broughtUp(environmentId, events, version);
      return {
        ...allowed,
        entries: allowed.entries.map(({ runs }, at) => ({ event: broughtUp[at]!, runs })),
      };
    },
  }),
  unary({
    name: "streams.ofRun",
    action: "runs:read",
    summary: "Ids of the entity streams that a run appended to or read.",
    reads: true,
    waitsFor: "log",
    input: Type.Object({
      id: Type.String({ minLength: 1, maxLength: 200, description: "Id of the run (`run_…`)." }),
    }),
    output: Type.Object({
      entity_ids: Type.Array(Type.String(), {
        description: "Ids of entities, in the order of their first use.",
      }),
    }),
    rest: "GET /api/v1/runs/{id}/streams",
    lists: listed((id: string) => [id], { under: "entity_ids", type: "stream" }),
    handle: async ({ id }, call) => ({ entity_ids: await streams.ofRun(call.environmentId, id) }),
  }),
];

const SnapshotInput = Type.Object({
  entityId,
  entityType: Type.String(),
  entityVersion: Type.Integer(),
  state: Type.Optional(Type.Unknown()),
});

const keptOperations = (streams: Streams): Operation[] => [
  unary({
    name: "streams.createSnapshot",
    action: "entities:append",
    summary: "Stores the state of an entity at a version of its stream.",
    input: SnapshotInput,
    rpc: rpc(
      EntityStreamService.method.createSnapshot,
      (m) => ({
        entityId: m.entityId,
        entityType: m.entityType,
        entityVersion: safeCount(m.entityVersion),
        ...stateOf(m),
      }),
      (snapshotId: string) => ({ snapshotId }),
      {
        decode({ stateValue, ...rest }) {
          return stateValue === undefined ? rest : { ...rest, state: stateValue };
        },
      },
    ),
    handle({ entityVersion, state = {}, ...input }, call) {
      if (entityVersion < 1) throw invalid("entityVersion", "must be at least 1");
      const snapshot = { ...input, entityVersion, state: jsonText("state", state) };
      return streams.createSnapshot(call.environmentId, snapshot);
    },
  }),
  unary({
    name: "streams.getSnapshot",
    ...readEntities,
    summary: "The latest snapshot of an entity at or before a version.",
    input: Type.Object({ entityId, beforeVersion: count }),
    about: aboutRead,
    alsoAsks: readAsks,
    rpc: rpc(EntityStreamService.method.getSnapshot, asSent, toSnapshot, inJson),
    handle: ({ entityId: id, beforeVersion }, call) =>
      streams.snapshot(call.environmentId, id, requireCount("beforeVersion", beforeVersion)),
  }),
  unary({
    name: "streams.delete",
    action: "entities:append",
    ...{ special: { isAudited: true }, held: true },
    summary: "Deletes a stream for good; with `purge` its payloads are overwritten.",
    ...requestOf(
      EntityStreamService.method.deleteStream,
      ({ version, deletedAt }: Awaited<ReturnType<Streams["delete"]>>) => ({
        version: BigInt(version),
        deletedAt: timestampOf(deletedAt),
      }),
    ),
    handle: ({ entityId: id, purge = false }, call) => streams.delete(call.environmentId, id, { purge }),
  }),
  unary({
    name: "streams.redactEvent",
    action: "entities:append",
    special: { isAudited: true },
    summary: "Overwrites the payload of one event of a stream, and drops the snapshots that may hold it.",
    input: Type.Object({ entityId, eventId: Type.String({ minLength: 1, maxLength: 200 }) }),
    rpc: rpc(
      EntityStreamService.method.redactEvent,
      ({ entityId: id, eventId }) => ({ entityId: id, eventId }),
      ({ entityVersion, redactedAt }: Awaited<ReturnType<Streams["redact"]>>) => ({
        entityVersion: BigInt(entityVersion),
        redactedAt: timestampOf(redactedAt),
      }),
    ),
    handle: ({ entityId: id, eventId }, call) => streams.redact(call.environmentId, id, eventId),
  }),
];

/** Whether the caller may be a worker: reads of others are not part of a run, whatever header they send. */
export type MayServe = (call: Call) => Promise<boolean>;

export const streamsOperations = (streams: Streams, schemas: Upcasts, mayServe: MayServe): Operation[] => [
  ...appendOperations(streams),
  ...readOperations(streams, schemas, mayServe),
  ...keptOperations(streams),
];
