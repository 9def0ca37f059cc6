import { count, type Message, payload, text } from "../wire/read.ts";
import type { ProjectedEvent, SvcProjection } from "./projection-types.ts";

/** A projection as a runner finds it. */
export interface ProjectionPlace {
  /** Of the registered definition. */
  version: number;
  status: string;
  /** The generation that is read, and the one that is folded beside it; 0 for none. */
  generation: number;
  building: number;
}

export const readPlace = (message: Message): ProjectionPlace => ({
  version: count(message.version),
  status: text(message.status),
  generation: count(message.generation),
  building: count(message.buildingGeneration),
});

export const definitionMessage = ({
  name,
  events,
  version,
  partitionKey,
  work,
  recording,
}: SvcProjection): Message => ({
  ...{ name, events, version, mode: work.mode },
  ...(partitionKey !== "" && { partitionKey }),
  ...(recording && { recording }),
});

/** For projections that the server folds. */
export const sqlMessage = (
  { name, events }: SvcProjection,
  work: { tableSql: string; statements: Record<string, string>; description: string },
): Message => ({
  ...{ name, events, tableSql: work.tableSql, eventHandlers: work.statements },
  ...(work.description !== "" && { description: work.description }),
});

export function readProjected(message: Message): ProjectedEvent {
  const { __partition: partition, ...metadata } = (message.metadata ?? {}) as Record<string, unknown>;
  return {
    id: text(message.id),
    name: text(message.name),
    data: payload(message, "data"),
    timestamp: text(message.timestamp),
    version: count(message.version) || 1,
    source: text(message.source),
    metadata,
    sequence: count(message.seq),
    partition: text(partition),
  };
}
