import type { Instant } from "../../../kit/clock.ts";
import { countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import {
  isStorable,
  type ProjectionDefinition,
  type ProjectionMode,
  type ProjectionStatus,
} from "./rules.ts";

/** The primary key of a projection. */
export interface ProjectionKey {
  environment_id: string;
  name: string;
}

export interface ProjectionRow
  extends ProjectionKey,
    RowOf<
      "projections",
      `partition_path, version, error_message, error_event_id, error_position, error_partition,
  created_at, updated_at`
    > {
  mode: ProjectionMode;
  status: ProjectionStatus;
  /** JSON text: a list of event names and patterns. */
  events: string;
  /** The generation that is read. */
  generation: number;
  /** A runner whose memory may differ from the stored states: it is not streamed to. */
  stale_holder: string | null;
  /** 1 until the first save after a rebuild was refused, so that the stale runner reads the state again. */
  refuses_save: number;
}

/** How the holder of a generation that a node folds by SQL begins: such a generation has a table. */
export const serverHolder = "server:";

export interface GenerationKey extends ProjectionKey {
  generation: number;
}

/** One fold of the log, and the lease of its runner. */
export interface GenerationRow extends GenerationKey {
  /** Of the definition whose code folds it. */
  definition_version: number;
  /** Everything up to here is folded, passed over, or of a partition that has stopped. */
  cursor_position: number;
  /** The highest that the cursor has had. */
  position: number;
  /** Everything up to here was handed out since the lease began, or was none of the projection's. */
  delivered: number;
  /** The highest position that was ever handed out. */
  offered: number;
  /** Where the rebuild that made this generation is complete. */
  target: number | null;
  /** Where an external projection continues after a rebuild. */
  return_to: number | null;
  holder: string | null;
  /** The connection of a stream that has the lease. */
  stream_id: string | null;
  fence: number;
  lease_until: Instant;
  /** When a runner last asked for events. */
  asked_at: Instant;
  saved_at: Instant;
  /** States are kept as history from this time on; null: they are not. */
  recorded_since: Instant | null;
}

/** A projection with its generations, under the lock of its row. */
export interface HeldProjection extends ProjectionRow {
  generations: GenerationRow[];
}

type Reads = Pick<Store, "all" | "one">;
export type SessionReads = Pick<Session, "all" | "one">;

const columns = sql.raw(`environment_id, name, mode, status, events, partition_path, version, generation,
  stale_holder, refuses_save, error_message, error_event_id, error_position, error_partition, created_at, updated_at`);
const generationColumns =
  sql.raw(`environment_id, name, generation, definition_version, cursor_position, position, delivered, offered,
  target, return_to, holder, stream_id, fence, lease_until, asked_at, saved_at, recorded_since`);

const joinedColumns = sql.raw(
  `p.environment_id, p.name, p.mode, p.status, p.events, p.partition_path, p.version, p.generation, p.stale_holder,
  p.refuses_save, p.error_message, p.error_event_id, p.error_position, p.error_partition, p.created_at, p.updated_at,
  g.generation AS of_generation, g.definition_version, g.cursor_position, g.position, g.delivered, g.offered, g.target, g.return_to, g.holder,
  g.stream_id, g.fence, g.lease_until, g.asked_at, g.saved_at, g.recorded_since`,
);

export const whereProjection = ({ environment_id, name }: ProjectionKey): Sql =>
  sql`environment_id = ${environment_id} AND name = ${name}`;
export const whereGeneration = (key: GenerationKey): Sql =>
  sql`${whereProjection(key)} AND generation = ${sql.bigint(key.generation)}`;

export const getProjection = async (
  reads: Pick<Reads, "one">,
  key: ProjectionKey,
): Promise<ProjectionRow | undefined> =>
  isStorable(key.name)
    ? reads.one(sql`SELECT ${columns} FROM projections WHERE ${whereProjection(key)}`)
    : undefined;

type JoinedRow = ProjectionRow & Omit<GenerationRow, "generation"> & { of_generation: number | null };

/**
 * The projection with its generations as they were at one moment: between two reads, a rebuild may put
 * another generation in the place of the one that is read.
 */
export async function readProjection(
  reads: Pick<Reads, "all">,
  key: ProjectionKey,
): Promise<HeldProjection | undefined> {
  if (!isStorable(key.name)) return undefined;
  const rows = await reads.all<JoinedRow>(sql`SELECT ${joinedColumns} FROM projections p
    LEFT JOIN projection_generations g ON g.environment_id = p.environment_id AND g.name = p.name
      AND g.dropped_at IS NULL
    WHERE p.environment_id = ${key.environment_id} AND p.name = ${key.name} ORDER BY g.generation`);
  const [first] = rows;
  if (!first) return undefined;
  const generations = rows.flatMap(({ of_generation, ...row }) =>
    of_generation === null ? [] : [{ ...row, generation: of_generation }],
  );
  return { ...first, generations };
}

export const getGenerations = (reads: Pick<Reads, "all">, key: ProjectionKey) =>
  reads.all<GenerationRow>(sql`SELECT ${generationColumns} FROM projection_generations
    WHERE ${whereProjection(key)} AND dropped_at IS NULL ORDER BY generation`);

/** Every change of a projection or of one of its generations begins with this lock. */
export async function holdProjection(
  session: Session,
  key: ProjectionKey,
): Promise<HeldProjection | undefined> {
  if (!isStorable(key.name)) return undefined;
  const row = await session.one<ProjectionRow>(sql`SELECT ${columns} FROM projections
    WHERE ${whereProjection(key)} ORDER BY name ${session.seams.holdRow}`);
  return row && { ...row, generations: await getGenerations(session, key) };
}

/** Where the log of an environment begins and ends; undefined for one that is deleted. */
export const getHead = (reads: Pick<Reads, "one">, environmentId: string) =>
  reads.one<{ position: number; retention_floor: number }>(
    sql`SELECT position, retention_floor FROM heads WHERE environment_id = ${environmentId}`,
  );

/** The same, and keeps the environment until the transaction ends. */
export const shareHead = (session: Session, environmentId: string) =>
  session.one<{ position: number; retention_floor: number }>(sql`SELECT position, retention_floor FROM heads
    WHERE environment_id = ${environmentId} ${session.seams.shareRow}`);

export const countProjections = (reads: Pick<Reads, "one">, environmentId: string): Promise<number> =>
  countOf(reads, sql`FROM projections WHERE environment_id = ${environmentId}`);

/** Answers 0 when the name is taken. */
export const insertProjection = (session: Session, row: ProjectionRow): Promise<number> =>
  session.run(sql`INSERT INTO projections (${columns}) VALUES (${row.environment_id}, ${row.name}, ${row.mode},
    ${row.status}, ${row.events}, ${row.partition_path}, ${sql.bigint(row.version)}, ${sql.bigint(row.generation)},
    ${row.stale_holder}, ${sql.bigint(row.refuses_save)}, ${row.error_message}, ${row.error_event_id},
    ${row.error_position}, ${row.error_partition}, ${sql.bigint(row.created_at)}, ${sql.bigint(row.updated_at)})
    ON CONFLICT (environment_id, name) DO NOTHING`);

export const insertGeneration = (session: Session, row: GenerationRow): Promise<number> =>
  session.run(sql`INSERT INTO projection_generations (${generationColumns}) VALUES (${row.environment_id},
    ${row.name}, ${sql.bigint(row.generation)}, ${sql.bigint(row.definition_version)},
    ${sql.bigint(row.cursor_position)}, ${sql.bigint(row.position)}, ${sql.bigint(row.delivered)}, ${sql.bigint(row.offered)}, ${row.target}, ${row.return_to}, ${row.holder},
    ${row.stream_id}, ${sql.bigint(row.fence)}, ${sql.bigint(row.lease_until)}, ${sql.bigint(row.asked_at)},
    ${sql.bigint(row.saved_at)}, ${row.recorded_since})`);

/** A generation that begins after this position, without a runner. */
export const newGeneration = (
  { environment_id, name, generation }: GenerationKey,
  {
    after,
    version,
    isRecording,
    now,
  }: { after: number; version: number; isRecording: boolean; now: Instant },
): GenerationRow => ({
  ...{ environment_id, name, generation, definition_version: version },
  ...{ cursor_position: after, position: after, delivered: after, offered: after },
  ...{ target: null, return_to: null, holder: null, stream_id: null },
  ...{ fence: 0, lease_until: 0, asked_at: now, saved_at: 0 },
  recorded_since: isRecording ? 0 : null,
});

export const updateGeneration = (session: Session, row: GenerationRow): Promise<number> =>
  session.run(sql`UPDATE projection_generations SET cursor_position = ${sql.bigint(row.cursor_position)},
    position = ${sql.bigint(row.position)}, delivered = ${sql.bigint(row.delivered)},
    offered = ${sql.bigint(row.offered)}, target = ${row.target}, return_to = ${row.return_to},
    holder = ${row.holder}, stream_id = ${row.stream_id}, fence = ${sql.bigint(row.fence)},
    lease_until = ${sql.bigint(row.lease_until)}, asked_at = ${sql.bigint(row.asked_at)},
    saved_at = ${sql.bigint(row.saved_at)} WHERE ${whereGeneration(row)}`);

export const noteAsked = (session: Session, key: GenerationKey, now: Instant): Promise<number> =>
  session.run(sql`UPDATE projection_generations SET asked_at = ${sql.bigint(now)}
    WHERE ${whereGeneration(key)} AND asked_at < ${sql.bigint(now)}`);

/** What is folded is continued by the code of another version, and is recorded from now on or no more. */
export const carryOn = (
  session: Session,
  key: ProjectionKey,
  { version, isRecording }: Pick<ProjectionDefinition, "version" | "isRecording">,
  now: Instant,
): Promise<number> =>
  session.run(sql`UPDATE projection_generations SET definition_version = ${sql.bigint(version)},
    recorded_since = ${isRecording ? sql`COALESCE(recorded_since, ${sql.bigint(now)})` : sql.raw("NULL")}
    WHERE ${whereProjection(key)} AND dropped_at IS NULL`);

/** What moves of a projection change; its definition has an update of its own. */
export const updateProjection = (session: Session, row: ProjectionRow): Promise<number> =>
  session.run(sql`UPDATE projections SET status = ${row.status}, generation = ${sql.bigint(row.generation)},
    stale_holder = ${row.stale_holder}, refuses_save = ${sql.bigint(row.refuses_save)},
    error_message = ${row.error_message}, error_event_id = ${row.error_event_id},
    error_position = ${row.error_position}, error_partition = ${row.error_partition},
    updated_at = ${sql.bigint(row.updated_at)} WHERE ${whereProjection(row)}`);

export const updateDefinition = (
  session: Session,
  key: ProjectionKey,
  { mode, events, partitionPath, version }: ProjectionDefinition,
  now: Instant,
): Promise<number> =>
  session.run(sql`UPDATE projections SET mode = ${mode}, events = ${JSON.stringify(events)},
    partition_path = ${partitionPath}, version = ${sql.bigint(version)}, updated_at = ${sql.bigint(now)}
    WHERE ${whereProjection(key)}`);

export interface ListedProjection extends ProjectionRow {
  /** Of the generation that is read. */
  position: number;
  target: number | null;
}

export interface ProjectionFilter {
  environmentId: string;
  status: ProjectionStatus | undefined;
  mode: ProjectionMode | undefined;
}

const conditions = ({ environmentId, status, mode }: ProjectionFilter): Sql[] => [
  sql`p.environment_id = ${environmentId}`,
  ...(status === undefined ? [] : [sql`p.status = ${status}`]),
  ...(mode === undefined ? [] : [sql`p.mode = ${mode}`]),
];

const listedColumns = sql.raw(
  `p.environment_id, p.name, p.mode, p.status, p.events, p.partition_path, p.version, p.generation, p.stale_holder,
  p.refuses_save, p.error_message, p.error_event_id, p.error_position, p.error_partition, p.created_at, p.updated_at,
  g.position, g.target`,
);

/** By name. */
export const listProjections = (
  reads: Pick<Reads, "all">,
  filter: ProjectionFilter,
  { limit, offset }: { limit: number; offset: number },
): Promise<ListedProjection[]> =>
  reads.all(sql`SELECT ${listedColumns} FROM projections p JOIN projection_generations g
      ON g.environment_id = p.environment_id AND g.name = p.name AND g.generation = p.generation
    ${sql.where(conditions(filter))} ORDER BY p.name LIMIT ${limit} OFFSET ${offset}`);

export const countListed = (reads: Pick<Reads, "one">, filter: ProjectionFilter): Promise<number> =>
  countOf(reads, sql`FROM projections p ${sql.where(conditions(filter))}`);

/** The generation has no owner any more; the sweep deletes its states. */
export async function dropGeneration(session: Session, key: GenerationKey, now: Instant): Promise<void> {
  await session.run(sql`DELETE FROM projection_pending WHERE ${whereGeneration(key)}`);
  await session.run(sql`UPDATE projection_generations SET dropped_at = ${sql.bigint(now)}
    WHERE ${whereGeneration(key)}`);
}

export async function deleteProjection(session: Session, held: HeldProjection, now: Instant): Promise<void> {
  for (const generation of held.generations) await dropGeneration(session, generation, now);
  await session.run(sql`DELETE FROM projection_rebuilds WHERE ${whereProjection(held)}`);
  await session.run(sql`DELETE FROM sql_projections WHERE ${whereProjection(held)}`);
  await session.run(sql`DELETE FROM projections WHERE ${whereProjection(held)}`);
}

/** The highest generation of this name, also of a projection that was deleted; 0 for none. */
export async function lastGeneration(session: Session, key: ProjectionKey): Promise<number> {
  const row = await session.one<{ last: number | null }>(sql`SELECT max(generation) AS last
    FROM projection_generations WHERE ${whereProjection(key)}`);
  return row?.last ?? 0;
}

export interface DroppedGeneration extends GenerationKey {
  holder: string | null;
  dropped_at: Instant;
}

/** The oldest first, after the one that was read last; from the beginning without one. */
export const droppedGenerations = (
  reads: Pick<Reads, "all">,
  after: DroppedGeneration | undefined,
  limit: number,
): Promise<DroppedGeneration[]> =>
  reads.all(sql`SELECT environment_id, name, generation, holder, dropped_at FROM projection_generations
    WHERE dropped_at IS NOT NULL AND (dropped_at, environment_id, name, generation)
      > (${sql.bigint(after?.dropped_at ?? 0)}, ${after?.environment_id ?? ""}, ${after?.name ?? ""},
        ${sql.bigint(after?.generation ?? 0)})
    ORDER BY dropped_at, environment_id, name, generation LIMIT ${limit}`);

export const forgetGeneration = (session: Session, key: GenerationKey): Promise<number> =>
  session.run(
    sql`DELETE FROM projection_generations WHERE ${whereGeneration(key)} AND dropped_at IS NOT NULL`,
  );

/**
 * The lowest position that a live projection still needs, among those that a runner has asked for since;
 * undefined when there is none.
 */
export async function leastUnfolded(
  reads: Pick<Reads, "one">,
  environmentId: string,
  askedSince: Instant,
): Promise<number | undefined> {
  const row = await reads.one<{ least: number | null }>(sql`SELECT min(cursor_position) AS least
    FROM projection_generations WHERE environment_id = ${environmentId} AND asked_at >= ${askedSince} AND dropped_at IS NULL`);
  return row?.least === null || row === undefined ? undefined : row.least + 1;
}
