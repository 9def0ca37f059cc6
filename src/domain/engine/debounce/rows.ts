import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { type EntryKey, entryIdsOf, type KeyKind } from "./rules.ts";

export interface DebounceEntryRow
  extends RowOf<
    "debounces",
    "environment_id, function_id, debounce_key, event_id, function_version, period_ms, fires_at"
  > {
  /** Null of an entry that takes keys of all kinds. */
  key_kind: KeyKind | null;
  /** Of the last event. */
  armed_at: number;
}

export interface DueEntryRow extends DebounceEntryRow {
  id: string;
  event_position: number;
  /** Null when the event has expired. */
  event_name: string | null;
  data_bytes: number | null;
  /** Null when the function is deleted. */
  function_status: string | null;
  /** Number of the turn, in a slice by turns. */
  turn: number;
}

const event = sql`events v WHERE v.id = d.event_id`;

const due = (now: Instant): DueRows => ({
  table: "debounces",
  columns: sql`d.id, d.environment_id, d.function_id, d.debounce_key, d.key_kind, d.event_id, d.event_position, d.function_version,
    d.period_ms, d.armed_at, d.fires_at, (SELECT v.name FROM ${event}) AS event_name,
    (SELECT octet_length(v.data) FROM ${event}) AS data_bytes,
    (SELECT f.status FROM functions f WHERE f.environment_id = d.environment_id AND f.id = d.function_id)
      AS function_status`,
  where: sql`d.fires_at >= 0`,
  dueAt: "fires_at",
  until: now,
});

export const dueEntries = (store: Store, now: Instant, slice: Slice): Promise<DueEntryRow[]> =>
  store.all(sliceOf(store.seams, due(now), slice));

export const environmentsDueNow = (store: Store, now: Instant): Promise<WorkScope[]> =>
  store.all(environmentsDue(due(now)));

/** JSON texts by the ids of their events; nothing of one that has expired. */
export async function dataOf(store: Store, ids: readonly string[]): Promise<Map<string, string>> {
  const found = await store.all<{ id: string; data: string }>(
    sql`SELECT id, data FROM events WHERE id ${store.seams.among(column.text(ids))}`,
  );
  return new Map(found.map(({ id, data }) => [id, data]));
}

/** Deletes entries that were not armed again since they were read. */
export const putOff = (session: Session, entries: readonly DueEntryRow[], until: Instant): Promise<number> =>
  session.run(
    sql`UPDATE debounces SET fires_at = ${sql.bigint(until)} FROM ${session.seams.rowsFrom("v", {
      ...columnsOf(entries, { text: "id event_id" }),
    })} WHERE debounces.id = v.id AND debounces.event_id = v.event_id`,
  );

export async function nextFireAt(store: Store): Promise<Instant | undefined> {
  const row = await store.one<{ at: number | null }>(sql`SELECT min(fires_at) AS at FROM debounces`);
  return row?.at ?? undefined;
}

export function listEntries(store: Store, environmentId: string, limit: number): Promise<DebounceEntryRow[]> {
  return store.all(sql`SELECT environment_id, function_id, debounce_key, key_kind, event_id, function_version, period_ms,
      armed_at, fires_at
    FROM debounces WHERE environment_id = ${environmentId} ORDER BY function_id, id LIMIT ${limit}`);
}

/** Of all kinds. Answers whether there was an entry. */
export async function deleteEntry(session: Session, entry: EntryKey): Promise<boolean> {
  return (await session.run(sql`DELETE FROM debounces WHERE id IN ${sql.list(entryIdsOf(entry))}`)) > 0;
}

/** Locks: entries, after the head of their environment. */
export function deleteEntriesOf(
  session: Session,
  { environmentId, functionId }: { environmentId: string; functionId: string },
): Promise<number> {
  return session.run(sql`DELETE FROM debounces
    WHERE environment_id = ${environmentId} AND function_id = ${functionId}`);
}

/** The lowest position of the environment's log that an armed entry starts from. */
export async function leastPosition(store: Store, environmentId: string): Promise<number | undefined> {
  const row = await store.one<{ position: number | null }>(
    sql`SELECT min(event_position) AS position FROM debounces WHERE environment_id = ${environmentId}`,
  );
  return row?.position ?? undefined;
}
