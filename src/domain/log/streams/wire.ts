import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import {
  type EntityHistoryRunSchema,
  type GetEntityHistoryResponseSchema,
  type GetSnapshotResponseSchema,
  GetStreamInfoResponseSchema,
  StreamEventSchema,
} from "../../../gen/svc/v1/entity_stream_pb.ts";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { fieldsFor } from "../../../kit/message-shape.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import {
  type DataMessage,
  dataOf,
  eachOf,
  isJsonObject,
  payload,
  safeCount,
  timestampOf,
} from "../../../kit/wkt.ts";
import { fromBody } from "../../engine/emit/wire.ts";
import type { AppendInput, AppendTarget, StreamAppend } from "./rules.ts";
import type {
  Emitted,
  EventRun,
  HistoryPage,
  Snapshot,
  StreamEvent,
  StreamInfo,
  StreamList,
  StreamPage,
} from "./service.ts";

/** The fields of an event that is appended, as `AppendEventRequest` and `NewStreamEvent` have them. */
interface AppendedEventMessage extends DataMessage {
  eventName: string;
  version: number;
  metadata?: Record<string, unknown> | undefined;
  idempotencyKey: string;
}

interface TargetMessage {
  entityId: string;
  entityType: string;
  expectedVersion: bigint;
}

const fromEvent = (m: AppendedEventMessage) => ({
  eventName: m.eventName,
  version: m.version,
  idempotencyKey: m.idempotencyKey,
  ...dataOf(m),
  ...(m.metadata !== undefined && { metadata: m.metadata }),
});

const fromTarget = (m: TargetMessage): AppendTarget => ({
  entityId: m.entityId,
  entityType: m.entityType,
  expectedVersion: safeCount(m.expectedVersion),
});

export const fromAppend = (m: AppendedEventMessage & TargetMessage): AppendInput => ({
  ...fromTarget(m),
  ...fromEvent(m),
});

export const fromStream = (m: TargetMessage & { events: readonly AppendedEventMessage[] }): StreamAppend => ({
  ...fromTarget(m),
  events: m.events.map(fromEvent),
});

export const fromBatchBody = (body: Record<string, unknown>): Record<string, unknown> => ({
  ...body,
  streams: eachOf(body.streams, (stream) => ({
    ...stream,
    events: eachOf(stream.events, fromBody),
  })),
});

export const toAppended = ({ eventId, position, entityVersion }: Emitted) => ({
  eventId,
  entityVersion: BigInt(entityVersion ?? 0),
  sequence: BigInt(position ?? 0),
});

export const toAppendedBody = ({ eventId, position, entityVersion }: Emitted) => ({
  eventId,
  entityVersion: entityVersion === undefined ? undefined : `${entityVersion}`,
  sequence: position === undefined ? undefined : `${position}`,
});

const at = (instant: Instant | null) => (instant === null ? undefined : timestampOf(instant));

/** A redacted event has neither data nor metadata. */
const payloadsOf = ({ data, metadata, redacted_at }: StreamEvent) => ({
  ...(redacted_at === null && payload("data", "dataValue", data)),
  ...(metadata !== null && { metadata: storedJson(metadata) as JsonObject }),
});

const ofEvent = fieldsFor(StreamEventSchema);

export const toEvent = (event: StreamEvent): MessageInitShape<typeof StreamEventSchema> => ({
  ...ofEvent(event, "id name entity_version version source idempotency_key run_id entity_id entity_type"),
  ...ofEvent(event, "schema_hash redacted_at"),
  ...payloadsOf(event),
  ...{ timestamp: at(event.at), createdAt: at(event.at), natsSeq: BigInt(event.position) },
  // An append writes the event and its runs in one transaction.
  processed: true,
});

export const toPage = ({ events, totalCount, nextVersion }: StreamPage) => ({
  events: events.map(toEvent),
  totalCount,
  nextVersion: BigInt(nextVersion),
});

/** The same as plain JSON: a page of 10,000 events makes no messages. */
export const toPageBody = ({ events, totalCount, nextVersion }: StreamPage) => ({
  events: events.length > 0 ? events.map(toEventBody) : undefined,
  totalCount: totalCount || undefined,
  nextVersion: nextVersion === 0 ? undefined : `${nextVersion}`,
});

function toEventBody(event: StreamEvent) {
  const timestamp = rfc3339(event.at);
  const data = event.redacted_at === null ? storedJson(event.data) : undefined;
  return {
    id: event.id,
    name: event.name,
    [data === undefined || isJsonObject(data) ? "data" : "dataValue"]: data,
    metadata: event.metadata === null ? undefined : storedJson(event.metadata),
    entityVersion: `${event.entity_version}`,
    version: event.version,
    timestamp,
    createdAt: timestamp,
    source: event.source,
    idempotencyKey: event.idempotency_key ?? undefined,
    processed: true,
    runId: event.run_id ?? undefined,
    entityId: event.entity_id,
    entityType: event.entity_type,
    schemaHash: event.schema_hash ?? undefined,
    natsSeq: `${event.position}`,
    redactedAt: event.redacted_at === null ? undefined : rfc3339(event.redacted_at),
  };
}

const ofInfo = fieldsFor(GetStreamInfoResponseSchema);

export const toInfo = (stream: StreamInfo): MessageInitShape<typeof GetStreamInfoResponseSchema> => ({
  ...ofInfo(stream, "entity_id entity_type version created_at updated_at"),
  ...{ eventCount: BigInt(stream.version), deleted: stream.deleted_at !== null },
});

export const toList = (page: StreamList) => ({
  streams: page.streams.map(toInfo),
  nextCursor: page.nextCursor ?? "",
  ...{ totalCount: page.totalCount, totalCountCapped: page.isTotalCut },
  ...{ truncated: page.scanned > 0, scanned: page.scanned },
});

const durationOf = (durationMs: number | null) =>
  durationMs === null
    ? {}
    : { durationMs: Math.min(durationMs, 2_147_483_647), durationMsFull: BigInt(durationMs) };

const toHistoryRun = (run: EventRun): MessageInitShape<typeof EntityHistoryRunSchema> => ({
  runId: run.id,
  functionId: run.functionId,
  status: run.status,
  startedAt: at(run.startedAt),
  endedAt: at(run.endedAt),
  ...durationOf(run.startedAt === null || run.endedAt === null ? null : run.endedAt - run.startedAt),
  steps: run.steps.map((step) => ({
    stepId: step.stepId,
    name: step.name,
    stepType: step.type,
    status: step.status,
    ...durationOf(step.durationMs),
    errorMessage: step.error ?? "",
  })),
});

export const toHistory = ({
  info,
  entries,
  nextVersion,
}: HistoryPage): MessageInitShape<typeof GetEntityHistoryResponseSchema> => ({
  entries: entries.map(({ event, runs }) => ({
    eventId: event.id,
    eventName: event.name,
    ...(event.redacted_at === null && payload("eventData", "eventDataValue", event.data)),
    entityVersion: BigInt(event.entity_version),
    schemaVersion: event.version,
    source: event.source,
    timestamp: at(event.at),
    runs: runs.map(toHistoryRun),
  })),
  nextCursor: BigInt(nextVersion),
  totalEvents: BigInt(info.version),
  info: {
    entityId: info.entity_id,
    entityType: info.entity_type,
    currentVersion: BigInt(info.version),
    totalEventCount: BigInt(info.version),
    createdAt: at(info.created_at),
    updatedAt: at(info.updated_at),
  },
});

/** The state of a snapshot: an object in the plain field, anything else in its twin. */
export function stateOf({
  state,
  stateValue,
}: {
  state?: JsonObject | undefined;
  stateValue?: Value | undefined;
}) {
  const { data } = dataOf({ data: state, dataValue: stateValue });
  return data === undefined ? {} : { state: data };
}

export const toSnapshot = (snapshot: Snapshot): MessageInitShape<typeof GetSnapshotResponseSchema> => ({
  snapshotId: snapshot.id,
  entityId: snapshot.entity_id,
  entityType: snapshot.entity_type,
  entityVersion: BigInt(snapshot.entity_version),
  ...payload("state", "stateValue", snapshot.state),
  createdAt: at(snapshot.created_at),
});
