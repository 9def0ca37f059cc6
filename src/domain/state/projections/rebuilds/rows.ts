import type { Instant } from "../../../../kit/clock.ts";
import { sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { type GenerationKey, type ProjectionKey, type SessionReads, whereProjection } from "../rows.ts";

export const strategies = ["in_place", "side_by_side"] as const;
export type RebuildStrategy = (typeof strategies)[number];
export type RebuildStatus = "running" | "completed" | "cancelled" | "failed";

/** The last rebuild of a projection. */
export interface RebuildRow
  extends ProjectionKey,
    RowOf<
      "projection_rebuilds",
      `id, partition_key, from_event_id, to_event_id, start_position, target, processed_count,
  total_count, started_at, ended_at, error`
    > {
  strategy: RebuildStrategy;
  status: RebuildStatus;
  /** The one that it folds. */
  generation: number;
}

const columns = sql.raw(`environment_id, name, id, strategy, status, generation, partition_key, from_event_id,
  to_event_id, start_position, target, processed_count, total_count, started_at, ended_at, error`);

export const getRebuild = (
  reads: Pick<SessionReads, "one">,
  key: ProjectionKey,
): Promise<RebuildRow | undefined> =>
  reads.one(sql`SELECT ${columns} FROM projection_rebuilds WHERE ${whereProjection(key)}`);

export async function putRebuild(session: Session, row: RebuildRow): Promise<void> {
  await session.run(sql`DELETE FROM projection_rebuilds WHERE ${whereProjection(row)}`);
  await session.run(sql`INSERT INTO projection_rebuilds (${columns}) VALUES (${row.environment_id}, ${row.name},
    ${row.id}, ${row.strategy}, ${row.status}, ${sql.bigint(row.generation)}, ${row.partition_key},
    ${row.from_event_id}, ${row.to_event_id}, ${sql.bigint(row.start_position)}, ${sql.bigint(row.target)},
    ${sql.bigint(row.processed_count)}, ${sql.bigint(row.total_count)}, ${sql.bigint(row.started_at)},
    ${row.ended_at}, ${row.error})`);
}

const whereRunning = (key: GenerationKey) =>
  sql`${whereProjection(key)} AND generation = ${sql.bigint(key.generation)} AND status = 'running'`;

export const noteProcessed = (session: Session, key: GenerationKey, count: number): Promise<number> =>
  session.run(sql`UPDATE projection_rebuilds SET processed_count = processed_count + ${sql.bigint(count)}
    WHERE ${whereRunning(key)}`);

export const completeRebuild = (session: Session, key: GenerationKey, now: Instant): Promise<number> =>
  session.run(
    sql`UPDATE projection_rebuilds SET status = 'completed', ended_at = ${sql.bigint(now)} WHERE ${whereRunning(key)}`,
  );

/** What an external rebuilder says; a total of 0 leaves the one that was counted. */
export const reportRebuild = (
  session: Session,
  key: GenerationKey,
  { processed, total }: { processed: number; total: number },
): Promise<number> =>
  session.run(sql`UPDATE projection_rebuilds SET processed_count = ${sql.bigint(processed)},
    total_count = CASE WHEN ${sql.bigint(total)} = 0 THEN total_count ELSE ${sql.bigint(total)} END
    WHERE ${whereRunning(key)}`);

export const failRebuild = (
  session: Session,
  key: GenerationKey,
  { message, now }: { message: string; now: Instant },
): Promise<number> =>
  session.run(sql`UPDATE projection_rebuilds SET status = 'failed', error = ${message},
    ended_at = ${sql.bigint(now)} WHERE ${whereRunning(key)}`);

export const cancelRebuild = (session: Session, key: GenerationKey, now: Instant): Promise<number> =>
  session.run(sql`UPDATE projection_rebuilds SET status = 'cancelled', ended_at = ${sql.bigint(now)}
    WHERE ${whereRunning(key)}`);
