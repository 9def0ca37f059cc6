import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { type Ctes, column, type Sql, sql } from "../../../kit/sql.ts";
import { raiseMark, type Seams, StoreError, type SyncSession } from "../../../store/store.ts";
import type { EntityDraft } from "./rules.ts";

/** The entity of an event on its way into the log. */
export interface EntityPlace extends EntityDraft {
  /** The event's version in the stream; decided right before each flush. */
  version: number;
}

/** What a flush needs of an event to place it in its stream. */
interface PlacedEvent {
  environmentId: string;
  entity: EntityPlace | null;
  runId: string | null;
}

/** How far a flush moves one stream. */
export interface StreamMove {
  environmentId: string;
  entityId: string;
  entityType: string;
  /** The version that the stream is believed to have. */
  base: number;
  count: number;
}

export const nameOfStream = ({ environmentId, entityId }: Pick<StreamMove, "environmentId" | "entityId">) =>
  `${environmentId}\n${entityId}`;

/** Mark raised when a stream is not at the version it was believed to have, or was deleted meanwhile. */
export const staleStreams = "streams:";

export const entityColumns = (events: readonly PlacedEvent[]) => ({
  entity_id: column.text(events.map(({ entity }) => entity?.id ?? null)),
  entity_type: column.text(events.map(({ entity }) => entity?.type ?? null)),
  entity_version: column.bigint(events.map(({ entity }) => entity?.version ?? null)),
});

const moveColumns = (streams: readonly StreamMove[]) => ({
  ...columnsOf(streams, { text: "environmentId entityId entityType", bigint: "base count" }),
});

/** Moves each stream by its count; a new one begins at 0. `version` is then checked against `base + count` */
const moveFrom = (source: Sql, now: Sql): Sql => sql`INSERT INTO streams
        (environment_id, entity_id, entity_type, version, created_at, updated_at)
      SELECT w.environment_id, w.entity_id, w.entity_type, w.count, ${now}, ${now} FROM ${source}
      WHERE EXISTS (SELECT 1 FROM heads h WHERE h.environment_id = w.environment_id)
      ORDER BY w.environment_id, w.entity_id
      ON CONFLICT (environment_id, entity_id) DO UPDATE SET version = streams.version + excluded.version,
        updated_at = CASE WHEN excluded.updated_at > streams.updated_at THEN excluded.updated_at ELSE streams.updated_at END
      RETURNING environment_id, entity_id, version, deleted_at`;

/** `streamed`: the streams, moved and locked, before any other lock of the flush. */
export const moveStreams = (seams: Seams, streams: readonly StreamMove[], now: Instant): Ctes => ({
  "wanted AS MATERIALIZED": sql`SELECT * FROM ${seams.rowsFrom("w", moveColumns(streams))}`,
  "streamed AS": moveFrom(sql.raw("wanted w"), sql`${now}::bigint`),
});

/** A condition that is computed once the streams are locked. */
export const afterStreams = sql.raw("(SELECT count(*) FROM streamed) >= 0");

/**
 * Fails the statement when a stream was elsewhere, or its environment's head is gone. It stands as rows of
 * the answer, as in `refuseLostKeys`.
 */
export const refuseStaleStreams = (further: Sql): Sql =>
  sql`UNION ALL SELECT ${raiseMark(staleStreams, sql.raw("s.entity_id"))}, 0, 0${further}
    FROM streamed s JOIN wanted w ON w.environment_id = s.environment_id AND w.entity_id = s.entity_id
    WHERE s.version <> w.base + w.count OR s.deleted_at IS NOT NULL
      OR NOT EXISTS (SELECT 1 FROM moved m WHERE m.environment_id = s.environment_id)`;

export function moveStreamsSync(session: SyncSession, streams: readonly StreamMove[], now: Instant): void {
  const moved = session.all<{
    environment_id: string;
    entity_id: string;
    version: number;
    deleted_at: number | null;
  }>(moveFrom(session.seams.rowsFrom("w", moveColumns(streams)), sql`${now}`));
  const wanted = new Map(streams.map((one) => [nameOfStream(one), one.base + one.count]));
  for (const { environment_id: environmentId, entity_id: entityId, version, deleted_at } of moved)
    if (version !== wanted.get(nameOfStream({ environmentId, entityId })) || deleted_at !== null)
      throw new StoreError("marked", staleStreams + entityId);
}

/** Whether any of the appends was made by a run. */
export const hasRuns = (events: readonly PlacedEvent[]): boolean =>
  events.some(({ entity, runId }) => entity !== null && runId !== null);

/** Links the streams with the live runs that appended to them. */
const linkFrom = (
  source: Sql,
  isRun: Sql,
): Sql => sql`INSERT INTO run_streams (run_id, entity_id, environment_id)
      SELECT DISTINCT i.run_id, i.entity_id, i.environment_id FROM ${source}
      JOIN executions e ON ${isRun} AND e.environment_id || '' = i.environment_id
      WHERE i.entity_id IS NOT NULL ORDER BY 1, 2
      ON CONFLICT (run_id, entity_id) DO NOTHING`;

/** On PostgreSQL, from `item`: executions are found by their key, where a join would read all of them. */
export const linkRuns: Ctes = {
  "linked AS": linkFrom(
    sql.raw("item i"),
    sql.raw("e.run_id || '' = i.run_id AND e.run_id = ANY (ARRAY(SELECT x.run_id FROM item x))"),
  ),
};

export function linkRunsSync(session: SyncSession, events: readonly PlacedEvent[]): void {
  session.run(
    linkFrom(
      session.seams.rowsFrom("i", {
        ...entityColumns(events),
        ...columnsOf(events, { text: "runId environmentId" }),
      }),
      sql.raw("e.run_id = i.run_id"),
    ),
  );
}
