import { breather } from "../../../kit/breather.ts";
import type { Clock } from "../../../kit/clock.ts";
import { ReadAheadSize } from "../../../kit/slice-size.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { lagCountMax, projectionBatchCharsMax, projectionScanMax, projectionStepMax } from "./limits.ts";
import { eventNamesOf, isStorable, type NameMatcher } from "./rules.ts";

/** An event as runners get it. Payloads are JSON texts. */
export interface FeedEvent
  extends RowOf<"events", "id, position, name, data, metadata, source, at, entity_id"> {
  /** Of its schema. */
  version: number;
}

/** Entities with such ids are the platform's own. */
const ownEntities = "svc:";

/**
 * A patterned name is only narrowed down here: `matches` decides. As an expression, since the index of names
 * holds all the past of a name: PostgreSQL read a million events of it for each slice, by a plan that was
 * made when there were few.
 */
function named({ names, prefixes }: NameMatcher): Sql {
  if (prefixes.includes("")) return sql`true`;
  const parts = prefixes.map((prefix) => sql`substr(name, 1, ${[...prefix].length}) = ${prefix}`);
  if (names.length > 0) parts.push(sql`name || '' IN ${sql.list(names)}`);
  return sql`(${sql.join(parts, " OR ")})`;
}

const visible = sql`(entity_id IS NULL OR substr(entity_id, 1, ${ownEntities.length}) <> ${ownEntities})`;
const between = (environmentId: string, after: number, last: number): Sql =>
  sql`environment_id = ${environmentId} AND position > ${after} AND position <= ${last}`;

/** Reads of the log go in steps, which give the event loop back in between. */
export interface SteppedReads {
  store: Pick<Store, "all" | "one">;
  clock: Pick<Clock, "elapsed" | "sleep">;
}

export interface EventSlice {
  events: FeedEvent[];
  /** No further event of the projection stands up to here. */
  reached: number;
}

/**
 * The events of a projection after a position, as many as asked for, or fewer when they are large or stand
 * more than `projectionScanMax` positions away.
 */
export async function readSlice(
  { store, clock }: SteppedReads,
  { environmentId, names }: { environmentId: string; names: NameMatcher },
  { after, last, limit }: { after: number; last: number; limit: number },
  size = new ReadAheadSize(32),
): Promise<EventSlice> {
  const breathe = breather(clock, environmentId);
  const end = Math.min(last, after + projectionScanMax);
  const events: FeedEvent[] = [];
  let reached = Math.min(after, end);
  let chars = 0;
  while (reached < end && events.length < limit && chars < projectionBatchCharsMax) {
    const most = Math.min(size.limit, limit - events.length);
    const stepEnd = Math.min(end, reached + projectionStepMax);
    const found =
      await store.all<FeedEvent>(sql`SELECT id, position, name, version, data, metadata, source, at, entity_id
      FROM events WHERE ${between(environmentId, reached, stepEnd)} AND ${named(names)} AND ${visible}
      ORDER BY position LIMIT ${most}`);
    let own = 0;
    for (const event of found) {
      own += event.data.length + (event.metadata?.length ?? 0);
      if (names.matches(event.name)) events.push(event);
    }
    size.note(found.length, own);
    chars += own;
    reached = found.length < most ? stepEnd : found.at(-1)!.position;
    await breathe();
  }
  return { events, reached };
}

/** How many events stand in a range; of patterns with * inside, all that begin as they do. */
export async function countEvents(
  { store, clock }: SteppedReads,
  { environmentId, names }: { environmentId: string; names: NameMatcher },
  { after, last }: { after: number; last: number },
): Promise<number> {
  const breathe = breather(clock, environmentId);
  let count = 0;
  for (let from = after; from < last; from += projectionStepMax) {
    await breathe();
    const end = Math.min(last, from + projectionStepMax);
    const row = await store.one<{ count: number }>(sql`SELECT count(*) AS count FROM events
      WHERE ${between(environmentId, from, end)} AND ${named(names)} AND ${visible}`);
    count += row?.count ?? 0;
  }
  return count;
}

/** The names of these events; those that `findEvent` does not find are left out. */
export const namesOf = (
  store: Pick<Store, "all" | "seams">,
  environmentId: string,
  ids: readonly string[],
): Promise<{ id: string; name: string }[]> =>
  store.all(sql`SELECT events.id, events.name FROM ${store.seams.rowsFrom("i", { wanted: column.text(ids) })}
    CROSS JOIN events WHERE events.id = i.wanted AND environment_id = ${environmentId} AND ${visible}`);

/** Where an event stands; undefined for one that is missing, another environment's, or the platform's own. */
export const findEvent = async (
  store: Pick<Store, "one">,
  environmentId: string,
  eventId: string,
): Promise<{ position: number; name: string } | undefined> =>
  isStorable(eventId)
    ? store.one(sql`SELECT position, name FROM events WHERE id = ${eventId}
        AND environment_id = ${environmentId} AND ${visible}`)
    : undefined;

/**
 * How many events of a projection stand behind a position, up to `last`. Counted one by one where they are
 * near; otherwise the difference of the positions, which may be more.
 */
export async function eventsBehind(
  reads: SteppedReads,
  { environment_id: environmentId, events }: { environment_id: string; events: string },
  { after, last }: { after: number; last: number },
): Promise<number> {
  if (last <= after) return 0;
  if (last - after > lagCountMax) return last - after;
  return countEvents(
    reads,
    { environmentId, names: eventNamesOf(JSON.parse(events) as string[]) },
    { after, last },
  );
}
