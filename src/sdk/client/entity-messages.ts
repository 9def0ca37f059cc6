import { all, count, fieldsOf, type Message, payload, text } from "../wire/read.ts";
import type { AppendedEvent, EntityEvent, EntityStream, HistoryOfEvent, HistoryRun } from "./entity-types.ts";

export const readAppended = ({ eventId, entityVersion, sequence }: Message): AppendedEvent => ({
  eventId: text(eventId),
  version: count(entityVersion),
  sequence: count(sequence),
});

export function readEvent(message: Message): EntityEvent {
  return {
    id: text(message.id),
    name: text(message.name),
    data: payload(message, "data"),
    ...(message.metadata !== undefined && { metadata: message.metadata as Record<string, unknown> }),
    version: count(message.entityVersion),
    schemaVersion: count(message.version),
    timestamp: text(message.timestamp),
    source: text(message.source),
    sequence: count(message.natsSeq),
    ...(message.idempotencyKey !== undefined && { idempotencyKey: text(message.idempotencyKey) }),
    ...(message.runId !== undefined && { runId: text(message.runId) }),
    ...(message.redactedAt !== undefined && { redactedAt: text(message.redactedAt) }),
  };
}

export const readInfo: (message: Message) => EntityStream = fieldsOf<EntityStream>()({
  ...{ texts: ["entityId", "entityType", "createdAt", "updatedAt"], counts: ["version"], flags: ["deleted"] },
});

const readHistoryRun = (message: Message): HistoryRun => ({
  runId: text(message.runId),
  functionId: text(message.functionId),
  status: text(message.status),
  ...(message.startedAt !== undefined && { startedAt: text(message.startedAt) }),
  ...(message.endedAt !== undefined && { endedAt: text(message.endedAt) }),
  ...durationOf(message),
  steps: all(message.steps, (step) => ({
    stepId: text(step.stepId),
    name: text(step.name),
    type: text(step.stepType),
    status: text(step.status),
    ...durationOf(step),
    ...(step.errorMessage !== undefined && { errorMessage: text(step.errorMessage) }),
  })),
});

const durationOf = ({ durationMsFull }: Message) =>
  durationMsFull === undefined ? {} : { durationMs: count(durationMsFull) };

export const readHistory = (message: Message): HistoryOfEvent => ({
  eventId: text(message.eventId),
  eventName: text(message.eventName),
  data: payload(message, "eventData"),
  version: count(message.entityVersion),
  timestamp: text(message.timestamp),
  source: text(message.source),
  runs: all(message.runs, readHistoryRun),
});
