import { columnsOf } from "../../../../kit/columns.ts";
import { sql } from "../../../../kit/sql.ts";
import type { StoredEvent } from "../../../../kit/stored-event.ts";
import type { Store } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { anyPath, celPath, hashAt, holds } from "../../waits/rules.ts";
import { matcherBytesMax, matcherMovesMax } from "../limits.ts";

/** Queries of the matcher; its writes are in apply-matches.ts. */

export interface WaitRow
  extends RowOf<
    "waits",
    `run_id, step_id, event_name, match_path, value_hash, expression, from_position, fresh_at,
  condition`
  > {
  kind: "wait" | "cancel";
  /** Of one of several conditions of a step: the step, the condition's name, and how many must be met. */
  of_step: string | null;
  mode: "any" | "all" | null;
}

export interface MatchedEvent extends StoredEvent {
  position: number;
}

const waitColumns =
  sql.raw(`w.run_id, w.kind, w.step_id, w.event_name, w.match_path, w.value_hash, w.expression,
  w.from_position, w.fresh_at, w.of_step, w.condition, w.mode`);

export interface WaitingEnvironment {
  id: string;
  position: number | null;
  generation: number | null;
  head: number | null;
  /** Not null when it has fresh waits. */
  fresh: string | null;
}

/** Environments with waits, and the cursors of their matchers: a few index probes for each environment. */
export function environmentsWaiting(store: Store): Promise<WaitingEnvironment[]> {
  return store.all<WaitingEnvironment>(sql`WITH RECURSIVE found(id) AS (
      SELECT (SELECT w.environment_id FROM waits w ORDER BY w.environment_id LIMIT 1)
      UNION ALL
      SELECT (SELECT w.environment_id FROM waits w WHERE w.environment_id > found.id
        ORDER BY w.environment_id LIMIT 1) FROM found
      WHERE found.id IS NOT NULL)
    SELECT id, (SELECT m.position FROM matchers m WHERE m.environment_id = id) AS position,
      (SELECT m.generation FROM matchers m WHERE m.environment_id = id) AS generation,
      (SELECT h.position FROM heads h WHERE h.environment_id = id) AS head,
      (SELECT w.run_id FROM waits w WHERE w.environment_id = id AND w.fresh_at IS NOT NULL
        ORDER BY w.environment_id, w.fresh_at LIMIT 1) AS fresh
    FROM found WHERE id IS NOT NULL`);
}

export interface CursorRow {
  position: number;
  /** As of the read; see `matchers.generation`. */
  generation: number;
  head: number;
}

export const readCursor = (store: Store, environmentId: string): Promise<CursorRow | undefined> =>
  store.one<CursorRow>(sql`SELECT m.position, m.generation, h.position AS head
    FROM matchers m JOIN heads h ON h.environment_id = m.environment_id WHERE m.environment_id = ${environmentId}`);

/**
 * Whether any wait was compared up to the cursor. When all are fresh, no wait needs the events between cursor
 * and head.
 */
export const anyCompared = async (store: Store, environmentId: string): Promise<boolean> =>
  (await store.one(sql`SELECT w.run_id FROM waits w WHERE w.environment_id = ${environmentId} AND w.event_name > ''
    AND w.fresh_at IS NULL LIMIT 1`)) !== undefined;

/**
 * The lowest position of the log that a matcher has not yet compared with the environment's waits; undefined
 * when there are none. Retention keeps events from there on.
 */
export async function leastUnmatched(
  store: Pick<Store, "one">,
  environmentId: string,
): Promise<number | undefined> {
  const row = await store.one<{ settled: number | null; fresh: number | null }>(sql`SELECT
      (SELECT m.position FROM matchers m WHERE m.environment_id = ${environmentId} AND EXISTS (
        SELECT 1 FROM waits w WHERE w.environment_id = ${environmentId} AND w.event_name > ''
          AND w.fresh_at IS NULL)) AS settled,
      (SELECT min(w.from_position) FROM waits w WHERE w.environment_id = ${environmentId} AND w.fresh_at IS NOT NULL)
        AS fresh`);
  const seen = [row?.settled, row?.fresh].filter((position) => position != null);
  return seen.length === 0 ? undefined : Math.min(...seen) + 1;
}

/** Waits that were not yet compared with the events between their registration and the cursor. */
export const freshWaits = (store: Store, environmentId: string, limit: number): Promise<WaitRow[]> =>
  store.all<WaitRow>(sql`SELECT ${waitColumns} FROM waits w
    WHERE w.environment_id = ${environmentId} AND w.fresh_at IS NOT NULL ORDER BY w.fresh_at, w.run_id LIMIT ${limit}`);

/**
 * Names of events in a piece of the log that have waits. The subquery forces one index lookup for each event.
 */
export async function namesWaitedFor(
  store: Store,
  environmentId: string,
  { from, to }: { from: number; to: number },
): Promise<string[]> {
  const rows = await store.all<{ name: string }>(sql`SELECT DISTINCT v.name FROM events v
    WHERE v.environment_id = ${environmentId} AND v.position > ${from} AND v.position <= ${to}
      AND (SELECT w.run_id FROM waits w WHERE w.environment_id = ${environmentId} AND w.event_name = v.name
        ORDER BY w.environment_id, w.event_name, w.match_path LIMIT 1) IS NOT NULL`);
  return rows.map((row) => row.name);
}

/** The distinct paths of the waits for a name: one index probe for each path, never a scan of the waits. */
export async function pathsOf(store: Store, environmentId: string, eventName: string): Promise<string[]> {
  const of = sql`FROM waits w WHERE w.environment_id = ${environmentId} AND w.event_name = ${eventName}`;
  const rows = await store.all<{ path: string }>(sql`WITH RECURSIVE found(path) AS (
      SELECT (SELECT min(w.match_path) ${of})
      UNION ALL
      SELECT (SELECT min(w.match_path) ${of} AND w.match_path > found.path) FROM found WHERE found.path IS NOT NULL)
    SELECT path FROM found WHERE path IS NOT NULL`);
  return rows.map((row) => row.path);
}

export interface MatchedEventsPage {
  events: MatchedEvent[];
  /** More events follow the last one. */
  cut: boolean;
}

/** Events in order, bounded in number and bytes; at least one when there is one. */
export async function readEvents(
  store: Store,
  range: { environmentId: string; names: readonly string[]; from: number; to: number; fromAt?: number },
  limit: number,
): Promise<MatchedEventsPage> {
  // By position never over the index of names, which holds all the past of a name.
  const name = range.fromAt === undefined ? sql.raw("v.name || ''") : sql.raw("v.name");
  const rows = await store.all<MatchedEvent & { page_count: number }>(sql`SELECT * FROM (
      SELECT page.*, count(*) OVER () AS page_count,
        sum(length(page.data)) OVER (ORDER BY page.position) - length(page.data) AS before FROM (
          SELECT v.id, v.position, v.name, v.version, v.data, v.metadata, v.source, v.at, v.idempotency_key FROM events v
          WHERE v.environment_id = ${range.environmentId} AND ${name} IN ${sql.list(range.names)}
            AND v.position > ${range.from} AND v.position <= ${range.to}
            ${range.fromAt === undefined ? sql.empty : sql`AND v.at >= ${range.fromAt}`}
          ORDER BY ${range.fromAt === undefined ? sql.empty : sql.raw("v.at,")} v.position LIMIT ${limit}) page) sized
    WHERE before < ${matcherBytesMax} ORDER BY position`);
  return {
    events: rows,
    cut: rows.length > 0 && (rows.length < rows[0]!.page_count || rows.length === limit),
  };
}

/** When the event at a position was logged; 0 when it has expired. Time order is position order. */
export async function timeAt(store: Store, environmentId: string, position: number): Promise<number> {
  const row = await store.one<{ at: number }>(
    // A range with an order: for an equal position any index that begins with the environment might serve.
    sql`SELECT at FROM events WHERE environment_id = ${environmentId} AND position >= ${position} AND position <= ${position}
      ORDER BY position LIMIT 1`,
  );
  return row?.at ?? 0;
}

export interface Probe {
  eventName: string;
  path: string;
  valueHash: string;
  position: number;
}

/**
 * Waits for the values of events, for each probe one more than `matcherMovesMax`: the last shows that there
 * are more. Waits of held runs are left out: they stay, and many of them would end each pass where it began.
 */
export function probeWaits(
  store: Store,
  environmentId: string,
  probes: readonly Probe[],
): Promise<(WaitRow & { probe: number })[]> {
  const from = store.seams.rowsFrom("p", {
    ...columnsOf(probes, { text: "eventName path valueHash", bigint: "position" }),
  });
  const condition = sql`w.environment_id = ${environmentId} AND w.event_name = p.event_name AND w.match_path = p.path
    AND w.value_hash = p.value_hash AND w.fresh_at IS NULL AND w.from_position < p.position
    AND (w.kind = 'cancel' OR COALESCE((SELECT e.state FROM executions e WHERE e.run_id = w.run_id), '')
      NOT IN ('held', 'resuming'))`;
  const first = store.seams.firstOfPlace({
    ...{ table: "waits", alias: "w", columns: waitColumns, where: condition },
    ...{ order: sql.raw("w.run_id, w.step_id"), limit: matcherMovesMax + 1 },
  });
  return store.all(sql`SELECT p.ord AS probe, ${waitColumns} FROM ${from} ${first} ORDER BY p.ord`);
}

/** Waits with expressions, a page at a time by run and step. */
export const expressionWaits = (
  store: Store,
  environmentId: string,
  eventName: string,
  after: { runId: string; stepId: string },
  limit: number,
): Promise<WaitRow[]> =>
  store.all<WaitRow>(sql`SELECT ${waitColumns} FROM waits w
    WHERE w.environment_id = ${environmentId} AND w.event_name = ${eventName} AND w.match_path = ${celPath}
      AND w.value_hash = '' AND (w.run_id, w.step_id) > (${after.runId}, ${after.stepId}) AND w.fresh_at IS NULL
    ORDER BY w.run_id, w.step_id LIMIT ${limit}`);

/**
 * Answers whether a wait matches this event. The event's JSON is parsed once, and each path is hashed once.
 */
export function comparison(event: MatchedEvent): (wait: WaitRow) => boolean {
  const data: unknown = JSON.parse(event.data);
  const hashes = new Map<string, string | undefined>();
  let seen: Parameters<typeof holds>[1] | undefined;
  return (wait) => {
    if (wait.match_path === anyPath) return true;
    if (wait.match_path === celPath) {
      seen ??= {
        id: event.id,
        name: event.name,
        data,
        metadata: event.metadata === null ? null : (JSON.parse(event.metadata) as unknown),
        version: event.version,
        source: event.source,
        timestamp: event.at,
      };
      return wait.expression !== null && holds(wait.expression, seen);
    }
    if (!hashes.has(wait.match_path)) hashes.set(wait.match_path, hashAt(data, wait.match_path));
    return hashes.get(wait.match_path) === wait.value_hash;
  };
}
