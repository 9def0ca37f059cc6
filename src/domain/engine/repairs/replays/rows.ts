import type { Instant } from "../../../../kit/clock.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { replayAction } from "./rules.ts";

export interface LogEnds {
  position: number;
  retention_floor: number;
  last_at: Instant;
}

export const logEnds = (reader: StoreReader, environmentId: string): Promise<LogEnds | undefined> =>
  reader.one(
    sql`SELECT position, retention_floor, last_at FROM heads WHERE environment_id = ${environmentId}`,
  );

/** The same, and no event is written until the transaction ends. */
export const holdLog = (session: Session, environmentId: string): Promise<LogEnds | undefined> =>
  session.one(sql`SELECT position, retention_floor, last_at FROM heads WHERE environment_id = ${environmentId}
    ORDER BY environment_id ${session.seams.holdRow}`);

export async function timeAt(
  reader: StoreReader,
  environmentId: string,
  position: number,
): Promise<Instant | undefined> {
  const row = await reader.one<{ at: Instant }>(
    sql`SELECT at FROM events WHERE environment_id = ${environmentId} AND position = ${position}`,
  );
  return row?.at;
}

/** The first event at that time or later. `+ 0` keeps the planner from scanning the log by position. */
export async function firstSince(
  reader: StoreReader,
  environmentId: string,
  since: Instant,
): Promise<number | undefined> {
  const row = await reader.one<{
    position: number | null;
  }>(sql`SELECT min(position + 0) AS position FROM events
    WHERE environment_id = ${environmentId} AND at = (SELECT min(at) FROM events
      WHERE environment_id = ${environmentId} AND at >= ${since})`);
  return row?.position ?? undefined;
}

/** The last event of then or earlier. */
export async function lastUntil(
  reader: StoreReader,
  environmentId: string,
  until: Instant,
): Promise<number | undefined> {
  const row = await reader.one<{
    position: number | null;
  }>(sql`SELECT max(position + 0) AS position FROM events
    WHERE environment_id = ${environmentId} AND at = (SELECT max(at) FROM events
      WHERE environment_id = ${environmentId} AND at <= ${until})`);
  return row?.position ?? undefined;
}

/** An event of the past without its payload. */
export type PastEvent = RowOf<"events", "id, position, name, entity_id, at">;

/** Events that start one function directly are matched by no trigger; what was redacted has no payload. */
const directSources = ["invoke", "cron"];

/**
 * Events after `after` that triggers see, in order. `|| ''` keeps the planners from the index over names, by
 * which they would read every event of the name for each slice.
 */
export function eventsBehind(
  reader: StoreReader,
  environmentId: string,
  { after, last, names, limit }: { after: number; last: number; names: NameStart; limit: number },
): Promise<PastEvent[]> {
  const where = [
    sql`environment_id = ${environmentId}`,
    sql`position > ${after}`,
    sql`position <= ${last}`,
    sql`source NOT IN ${sql.list(directSources)}`,
    sql`redacted_at IS NULL`,
  ];
  if (names.whole !== undefined) where.push(sql`name || '' = ${names.whole}`);
  else if (names.start !== "") where.push(sql`substr(name, 1, ${[...names.start].length}) = ${names.start}`);
  return reader.all(sql`SELECT id, position, name, entity_id, at FROM events ${sql.where(where)}
    ORDER BY position LIMIT ${limit}`);
}

/** A whole name, or how all wanted names begin. */
export type NameStart = { whole: string; start?: undefined } | { whole?: undefined; start: string };

/**
 * Those of the events that the function has a run of, or will have when their debounce ends. `|| ''` keeps
 * PostgreSQL, without statistics, from reading all runs of the function.
 */
export async function eventsWithRun(
  store: Pick<Store, "all" | "seams">,
  { environmentId, functionId }: { environmentId: string; functionId: string },
  eventIds: readonly string[],
): Promise<Set<string>> {
  if (eventIds.length === 0) return new Set();
  const ids = store.seams.among(column.text(eventIds));
  const found = await store.all<{ event_id: string }>(sql`SELECT event_id FROM runs
      WHERE event_id ${ids} AND environment_id || '' = ${environmentId} AND function_id || '' = ${functionId}
    UNION SELECT event_id FROM debounces
      WHERE environment_id = ${environmentId} AND function_id = ${functionId} AND event_id ${ids}`);
  return new Set(found.map(({ event_id }) => event_id));
}

/** Whether there is the function; it stays until the transaction ends. */
export const shareFunction = async (
  session: Session,
  { environmentId, functionId }: { environmentId: string; functionId: string },
): Promise<boolean> =>
  (await session.one(sql`SELECT id FROM functions WHERE environment_id = ${environmentId} AND id = ${functionId}
    ORDER BY id ${session.seams.shareRow}`)) !== undefined;

/** Requests of replays that are not over. */
export const openReplays = (
  reader: StoreReader,
  environmentId: string,
): Promise<{ id: string; request: string }[]> =>
  reader.all(sql`SELECT id, request FROM repairs WHERE environment_id = ${environmentId} AND ended_at IS NULL
    AND action = ${replayAction}`);

/** The lowest position that a replay is still to read. One that is paused, or old, holds no event back. */
export async function leastUnreplayed(
  store: StoreReader,
  environmentId: string,
  since: Instant,
): Promise<number | undefined> {
  const row = await store.one<{ position: number | null }>(sql`SELECT min(cursor_at) AS position FROM repairs
    WHERE environment_id = ${environmentId} AND ended_at IS NULL AND action = ${replayAction} AND status = 'running'
      AND created_at >= ${sql.bigint(since)}`);
  return row?.position === undefined || row.position === null ? undefined : row.position + 1;
}
