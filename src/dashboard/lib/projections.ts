import { rest, rpc } from "./api.ts";
import { instantOf } from "./format.ts";

/** A projection as the list shows it. */
export type ProjectionView = ReturnType<typeof projectionOf>;

type ProjectionMessage = Record<string, unknown>;
const text = (value: unknown): string => (typeof value === "string" ? value : "");

export async function listProjections(signal?: AbortSignal): Promise<ProjectionView[]> {
  const { projections = [] } = await rpc("ProjectionService", "ListProjections", { limit: 200 }, signal);
  return projections.map(projectionOf);
}

const projectionOf = (m: ProjectionMessage) => ({
  name: text(m.name),
  mode: text(m.mode),
  status: text(m.status),
  events: (m.events ?? []) as string[],
  partitionKey: text(m.partitionKey),
  version: Number(m.version ?? 0),
  lastSequence: Number(m.lastEventSeq ?? 0),
  updatedAt: instantOf(text(m.updatedAt)),
  error: text(m.errorMessage),
  description: text(m.description),
  sql: text(m.sqlDefinition),
});

/** How far a projection is, as `GetProjectionStatus` says. */
export type FoldView = Awaited<ReturnType<typeof getFold>>;

export async function getFold(name: string, signal?: AbortSignal) {
  const m = await rpc("ProjectionService", "GetProjectionStatus", { name }, signal);
  return {
    ...{ status: text(m.status), mode: text(m.mode), error: text(m.errorMessage) },
    ...{ errorEventId: text(m.errorEventId), errorPartition: text(m.errorPartition) },
    lastSequence: Number(m.lastEventSeq ?? 0),
    lag: Number(m.lag ?? 0),
    generation: Number(m.generation ?? 0),
    buildingGeneration: Number(m.buildingGeneration ?? 0),
    version: Number(m.version ?? 0),
    updatedAt: instantOf(text(m.updatedAt)),
  };
}

export interface JobView {
  status: string;
  processed: number;
  total: number;
  progress: number;
  strategy: string;
  startedAt: number | undefined;
  error: string;
}

/** The last rebuild; undefined where there was none. */
export async function getJob(name: string, signal?: AbortSignal): Promise<JobView | undefined> {
  const { job } = await rpc("ProjectionService", "GetRebuildJob", { name }, signal);
  if (!job || text(job.jobId) === "") return undefined;
  return {
    ...{ status: text(job.status), strategy: text(job.strategy) || "in_place", error: text(job.error) },
    processed: Number(job.eventsProcessed ?? 0),
    total: Number(job.totalEvents ?? 0),
    progress: Number(job.progress ?? 0),
    startedAt: instantOf(text(job.startedAt)),
  };
}

export const listPartitions = (name: string, begins: string, signal?: AbortSignal) =>
  rest<{ partitions: string[] }>(
    `/api/v1/projections/${encodeURIComponent(name)}/partitions?${new URLSearchParams({ limit: "100", ...(begins && { q: begins }) })}`,
    { signal },
  );

export async function getState(
  name: string,
  partition: string,
  signal?: AbortSignal,
): Promise<{ state: unknown; sequence: number }> {
  const m = await rpc("ProjectionService", "GetProjection", { name, partition }, signal);
  return { state: m.stateValue ?? m.state ?? null, sequence: Number(m.stateLastEventSeq ?? 0) };
}

/** The table of a projection in SQL. */
export const tableOf = (name: string): string => `proj_${name.replaceAll("-", "_")}`;
