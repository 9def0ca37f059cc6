import { rest, rpc } from "./api.ts";
import { instantOf, textOf } from "./format.ts";
import { offsetPage, type RowsPage } from "./pages.ts";
import { queryOf } from "./router.ts";
import type { SqlAnswer } from "./sql-text.ts";

/** A projection as the list shows it. */
export type ProjectionView = ReturnType<typeof projectionOf>;

type ProjectionMessage = Record<string, unknown>;

export async function listProjections(
  cursor: string,
  signal: AbortSignal,
): Promise<RowsPage<ProjectionView>> {
  const asked = { limit: 200, offset: Number(cursor || 0) };
  const { projections = [], totalCount = 0 } = await rpc(
    "ProjectionService",
    "ListProjections",
    asked,
    signal,
  );
  return offsetPage(cursor, projections.map(projectionOf), totalCount);
}

const projectionOf = (m: ProjectionMessage) => ({
  name: textOf(m.name),
  mode: textOf(m.mode),
  status: textOf(m.status),
  events: (m.events ?? []) as string[],
  partitionKey: textOf(m.partitionKey),
  version: Number(m.version ?? 0),
  lastSequence: Number(m.lastEventSeq ?? 0),
  updatedAt: instantOf(textOf(m.updatedAt)),
  error: textOf(m.errorMessage),
  description: textOf(m.description),
  sql: textOf(m.sqlDefinition),
});

/** How far a projection is, as `GetProjectionStatus` says. */
export type FoldView = Awaited<ReturnType<typeof getFold>>;

export async function getFold(name: string, signal?: AbortSignal) {
  const m = await rpc("ProjectionService", "GetProjectionStatus", { name }, signal);
  return {
    ...{ status: textOf(m.status), mode: textOf(m.mode), error: textOf(m.errorMessage) },
    ...{ errorEventId: textOf(m.errorEventId), errorPartition: textOf(m.errorPartition) },
    lastSequence: Number(m.lastEventSeq ?? 0),
    lag: Number(m.lag ?? 0),
    generation: Number(m.generation ?? 0),
    buildingGeneration: Number(m.buildingGeneration ?? 0),
    version: Number(m.version ?? 0),
    updatedAt: instantOf(textOf(m.updatedAt)),
  };
}

export type JobView = NonNullable<Awaited<ReturnType<typeof getJob>>>;

/** The last rebuild; undefined where there was none. */
export async function getJob(name: string, signal?: AbortSignal) {
  const { job } = await rpc("ProjectionService", "GetRebuildJob", { name }, signal);
  if (!job || textOf(job.jobId) === "") return undefined;
  return {
    ...{ status: textOf(job.status), strategy: textOf(job.strategy) || "in_place", error: textOf(job.error) },
    processed: Number(job.eventsProcessed ?? 0),
    total: Number(job.totalEvents ?? 0),
    progress: Number(job.progress ?? 0),
    startedAt: instantOf(textOf(job.startedAt)),
  };
}

export const listPartitions = (name: string, begins: string, signal?: AbortSignal) =>
  rest<{ partitions: string[] }>(
    `/api/v1/projections/${encodeURIComponent(name)}/partitions${queryOf({ limit: "100", q: begins })}`,
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

/** Changes of a projection, newest first, with who made them. */
export async function listChanges(name: string, cursor: string, signal: AbortSignal) {
  const asked = { name, limit: 20, ...(cursor !== "" && { fromVersion: cursor }) };
  const { entries = [], hasMore } = await rpc("ProjectionService", "ListProjectionHistory", asked, signal);
  const rows = entries.map((m) => ({
    version: Number(m.entityVersion ?? 0),
    change: textOf(m.changeType),
    by: textOf(m.actorId),
    at: instantOf(textOf(m.recordedAt)),
    after: projectionOf(m.projectionSnapshot ?? {}),
  }));
  return { rows, next: hasMore ? `${rows.at(-1)?.version ?? ""}` : undefined };
}

export async function runSql(
  query: string,
  { maxRows, signal }: { maxRows: number; signal: AbortSignal },
): Promise<SqlAnswer> {
  const began = performance.now();
  const {
    columns = [],
    rows = [],
    truncated = false,
  } = await rpc("QueryService", "ExecuteSQL", { query, maxRows }, signal);
  return {
    columns,
    rows: rows.map(({ values = [], nulls = [] }) =>
      nulls.length === 0 ? values : values.map((value, place) => (nulls.includes(place) ? null : value)),
    ),
    isCut: truncated,
    tookMs: performance.now() - began,
  };
}

/** Tables of every environment. Those of its projections follow by `projectionTables`. */
export const ownTables = ["runs", "steps", "events", "functions"] as const;

export async function projectionTables(signal: AbortSignal): Promise<string[]> {
  const { rows } = await listProjections("", signal);
  return rows.filter(({ mode }) => mode === "sql").map(({ name }) => tableOf(name));
}

/** A query that reads no row names the columns. */
export const columnsOf = async (table: string, signal: AbortSignal): Promise<readonly string[]> =>
  (await runSql(`SELECT * FROM ${table} LIMIT 0`, { maxRows: 1, signal })).columns;
