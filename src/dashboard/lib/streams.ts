import type { GetStreamInfoResponse, StreamEvent } from "../../gen/svc/v1/entity_stream_pb.ts";
import { CallError, rpc } from "./api.ts";
import { instantOf } from "./format.ts";
import type { InJson } from "./messages.ts";
import type { RowsPage } from "./pages.ts";

/** The stream of an entity, as the pages show it. */
export type StreamView = ReturnType<typeof streamOf>;

const streamOf = (m: InJson<GetStreamInfoResponse>) => ({
  ...{ id: m.entityId ?? "", type: m.entityType ?? "", version: Number(m.version ?? 0) },
  ...{ createdAt: instantOf(m.createdAt), updatedAt: instantOf(m.updatedAt), isDeleted: m.deleted ?? false },
});

const service = "EntityStreamService";

export async function listStreams(
  filters: { search: string; entityType: string; includeDeleted: boolean },
  cursor: string,
  signal: AbortSignal,
): Promise<RowsPage<StreamView>> {
  const asked = { ...filters, limit: 100, cursor };
  const { streams = [], nextCursor } = await rpc(service, "ListStreams", asked, signal);
  return { rows: streams.map(streamOf), next: nextCursor || undefined };
}

export const getStream = async (entityId: string, signal: AbortSignal): Promise<StreamView> =>
  streamOf(await rpc(service, "GetStreamInfo", { entityId }, signal));

export type StreamEventView = ReturnType<typeof eventOf>;

const eventOf = (m: InJson<StreamEvent>) => ({
  ...{ id: m.id ?? "", name: m.name ?? "", data: m.data ?? m.dataValue ?? null, metadata: m.metadata },
  /** `at`: the stream's version behind it. */
  ...{ at: Number(m.entityVersion), schemaVersion: m.version ?? 1, time: instantOf(m.timestamp) },
  ...{ runId: m.runId ?? "", isRedacted: m.redactedAt !== undefined },
});

/** The newest events, newest first; fewer where so many are too large for one answer. */
export async function readNewest(
  entityId: string,
  limit: number,
  signal: AbortSignal,
): Promise<StreamEventView[]> {
  const asked = { entityId, limit, direction: "backward" };
  try {
    const { events = [] } = await rpc(service, "ReadStream", asked, signal);
    return events.map(eventOf);
  } catch (error) {
    const isTooMuch = error instanceof CallError && error.code === "failed_precondition";
    if (!isTooMuch || limit === 1) throw error;
    return readNewest(entityId, Math.ceil(limit / 4), signal);
  }
}

/** The latest snapshot at or before a version. */
export async function getSnapshot(entityId: string, beforeVersion: number, signal: AbortSignal) {
  const asked = { entityId, beforeVersion: `${beforeVersion}` };
  const m = await rpc(service, "GetSnapshot", asked, signal);
  return {
    at: Number(m.entityVersion ?? 0),
    state: m.state ?? m.stateValue ?? null,
    createdAt: instantOf(m.createdAt),
  };
}
