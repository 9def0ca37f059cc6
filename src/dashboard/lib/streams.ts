import { rpc } from "./api.ts";
import { instantOf } from "./format.ts";
import type { RowsPage } from "./pages.ts";

/** The stream of an entity, as the pages show it. */
export interface StreamView {
  id: string;
  type: string;
  version: number;
  createdAt: number | undefined;
  updatedAt: number | undefined;
  isDeleted: boolean;
}

interface EntityAnswer {
  entityId?: string;
  entityType?: string;
  version?: string;
  createdAt?: string;
  updatedAt?: string;
  deleted?: boolean;
}

const streamOf = (m: EntityAnswer): StreamView => ({
  ...{ id: m.entityId ?? "", type: m.entityType ?? "", version: Number(m.version ?? 0) },
  ...{ createdAt: instantOf(m.createdAt), updatedAt: instantOf(m.updatedAt), isDeleted: m.deleted ?? false },
});

export async function listStreams(
  asked: { search: string; entityType: string; includeDeleted: boolean },
  cursor: string,
  signal: AbortSignal,
): Promise<RowsPage<StreamView>> {
  const { streams = [], nextCursor } = await rpc<{ streams?: EntityAnswer[]; nextCursor?: string }>(
    "EntityStreamService",
    "ListStreams",
    { ...asked, limit: 100, cursor },
    signal,
  );
  return { rows: streams.map(streamOf), next: nextCursor || undefined };
}

export const getStream = async (entityId: string, signal: AbortSignal): Promise<StreamView> =>
  streamOf(await rpc("EntityStreamService", "GetStreamInfo", { entityId }, signal));

/** An event of a stream. */
export interface StreamEventView {
  id: string;
  name: string;
  data: unknown;
  metadata: unknown;
  /** The stream's version behind it. */
  at: number;
  schemaVersion: number;
  time: number | undefined;
  runId: string;
  isRedacted: boolean;
}

interface StreamEventMessage {
  id: string;
  name: string;
  data?: unknown;
  dataValue?: unknown;
  metadata?: unknown;
  entityVersion: string;
  version?: number;
  timestamp?: string;
  runId?: string;
  redactedAt?: string;
}

const eventOf = (m: StreamEventMessage): StreamEventView => ({
  ...{ id: m.id, name: m.name, data: m.data ?? m.dataValue ?? null, metadata: m.metadata },
  ...{ at: Number(m.entityVersion), schemaVersion: m.version ?? 1, time: instantOf(m.timestamp) },
  ...{ runId: m.runId ?? "", isRedacted: m.redactedAt !== undefined },
});

/** The newest events, newest first. */
export async function readNewest(
  entityId: string,
  limit: number,
  signal: AbortSignal,
): Promise<StreamEventView[]> {
  const { events = [] } = await rpc<{ events?: StreamEventMessage[] }>(
    "EntityStreamService",
    "ReadStream",
    { entityId, limit, direction: "backward" },
    signal,
  );
  return events.map(eventOf);
}

export interface SnapshotView {
  at: number;
  state: unknown;
  createdAt: number | undefined;
}

/** The latest snapshot at or before a version. */
export async function getSnapshot(
  entityId: string,
  beforeVersion: number,
  signal: AbortSignal,
): Promise<SnapshotView> {
  const m = await rpc<{ entityVersion?: string; state?: unknown; stateValue?: unknown; createdAt?: string }>(
    "EntityStreamService",
    "GetSnapshot",
    { entityId, beforeVersion: `${beforeVersion}` },
    signal,
  );
  return {
    at: Number(m.entityVersion ?? 0),
    state: m.state ?? m.stateValue ?? null,
    createdAt: instantOf(m.createdAt),
  };
}
