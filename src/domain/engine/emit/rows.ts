import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import type { Cursor } from "../../../kit/page.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { fitting } from "../../../kit/slice-size.ts";
import { countOf, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { noteGrown } from "../quotas/rows.ts";

export interface UsedEventKey
  extends RowOf<"idempotency_keys", "environment_id, key, kind, function_id, event_id, run_ids"> {
  position: number | null;
  entity_version: number | null;
}

/** What the first use of each key came to. */
export function findKeys(
  store: Pick<Store, "all" | "seams">,
  keys: readonly { environmentId: string; key: string }[],
): Promise<UsedEventKey[]> {
  return store.all(sql`SELECT k.environment_id, k.key, k.kind, k.function_id, k.event_id, k.run_ids, v.position,
      v.entity_version
    FROM ${store.seams.rowsFrom("i", {
      ...columnsOf(keys, { text: "environmentId key" }),
    })} JOIN idempotency_keys k ON k.environment_id = i.environment_id AND k.key = i.key
      LEFT JOIN events v ON v.id = k.event_id AND v.environment_id = k.environment_id`);
}

/** Those of the runs that there are. */
export async function findRuns(store: Pick<Store, "all">, ids: readonly string[]): Promise<string[]> {
  const rows = await store.all<{ id: string }>(sql`SELECT id FROM runs WHERE id IN ${sql.list(ids)}`);
  return rows.map(({ id }) => id);
}

/** Forgets keys older than they are kept for; a slice at a time. */
export function purgeKeys(session: Session, before: Instant, limit: number): Promise<number> {
  return session.run(sql`DELETE FROM idempotency_keys WHERE (environment_id, key) IN (
    SELECT environment_id, key FROM idempotency_keys WHERE created_at < ${before}
    ORDER BY created_at LIMIT ${limit})`);
}

export interface DelayedRow
  extends RowOf<
    "delayed_events",
    "id, environment_id, name, version, metadata, idempotency_key, run_id, due_at, created_at"
  > {
  /** JSON texts. */
  data: string;
  /** 1 when its sender may not start the function of its name. */
  start_refused: number;
  /** JSON text of a Starter; null for a row that a program older than 0.41 made. */
  sender: string | null;
}

export const bytesOf = ({ data, metadata }: Pick<DelayedRow, "data" | "metadata">): number =>
  Buffer.byteLength(data) + Buffer.byteLength(metadata ?? "");

/** Fails as `unique` when the id is taken. */
export async function insertDelayed(session: Session, row: DelayedRow): Promise<void> {
  await session.run(noteGrown(session.seams, new Map([[row.environment_id, bytesOf(row)]])));
  await session.run(sql`INSERT INTO delayed_events (id, environment_id, name, version, data, metadata, idempotency_key,
      run_id, start_refused, sender, due_at, wake_at, created_at)
    VALUES (${row.id}, ${row.environment_id}, ${row.name}, ${row.version}, ${row.data}, ${row.metadata},
      ${row.idempotency_key}, ${row.run_id}, ${row.start_refused}, ${row.sender}, ${row.due_at}, ${row.due_at}, ${row.created_at})`);
}

const columns =
  sql.raw(`d.id, d.environment_id, d.name, d.version, d.data, d.metadata, d.idempotency_key, d.run_id,
  d.start_refused, d.sender, d.due_at, d.created_at`);

export const findDelayed = (
  store: Pick<Store, "one">,
  environmentId: string,
  id: string,
): Promise<DelayedRow | undefined> =>
  store.one(
    sql`SELECT ${columns} FROM delayed_events d WHERE environment_id = ${environmentId} AND id = ${id}`,
  );

/** What is listed of an event. */
export type ListedDelay = Pick<DelayedRow, "id" | "name" | "due_at" | "created_at" | "sender">;

/** By time, then id. */
export const listDelayed = (
  store: Store,
  environmentId: string,
  { after, limit }: { after?: Cursor | undefined; limit: number },
): Promise<ListedDelay[]> =>
  store.all(
    sql`SELECT id, name, due_at, created_at, sender FROM delayed_events ${sql.where([
      sql`environment_id = ${environmentId}`,
      ...(after ? [sql`(due_at > ${after.at} OR (due_at = ${after.at} AND id > ${after.id}))`] : []),
    ])} ORDER BY due_at, id LIMIT ${limit}`,
  );

export const countDelayed = (store: Store, environmentId: string, most: number): Promise<number> =>
  countOf(store, sql`FROM delayed_events WHERE environment_id = ${environmentId}`, most);

/** Answers whether it was still to be emitted. Locks: the event's row. */
export async function deleteDelayed(session: Session, environmentId: string, id: string): Promise<boolean> {
  const gone = await session.all<GoneRow>(sql`DELETE FROM delayed_events
    WHERE environment_id = ${environmentId} AND id = ${id} AND wake_at = due_at RETURNING ${goneColumns}`);
  await noteGone(session, gone);
  return gone.length > 0;
}

type GoneRow = { id: string; environment_id: string; bytes: number };
const goneColumns = sql.raw(
  "id, environment_id, octet_length(data) + COALESCE(octet_length(metadata), 0) AS bytes",
);

async function noteGone(session: Session, gone: readonly GoneRow[]): Promise<void> {
  const freed = new Map<string, number>();
  for (const { environment_id: id, bytes } of gone) freed.set(id, (freed.get(id) ?? 0) - bytes);
  if (freed.size > 0) await session.run(noteGrown(session.seams, freed));
}

const due = (now: Instant): DueRows => ({
  table: "delayed_events",
  columns: sql`d.id, d.environment_id, octet_length(d.data) + COALESCE(octet_length(d.metadata), 0) AS bytes`,
  where: sql`d.wake_at >= 0`,
  dueAt: "wake_at",
  until: now,
});

export const environmentsDelayed = (store: Store, now: Instant): Promise<WorkScope[]> =>
  store.all<WorkScope>(environmentsDue(due(now)));

/** Takes due events, as many as are read at once, until `until`, when another node may take them. */
export async function takeDue(
  session: Session,
  slice: Slice,
  { now, until }: { now: Instant; until: Instant },
): Promise<(DelayedRow & { turn: number })[]> {
  const found = await session.all<GoneRow & { turn: number }>(
    sliceOf(session.seams, { ...due(now), lock: session.seams.skipLocked }, slice),
  );
  if (found.length === 0) return [];
  const turns = new Map(fitting(found, ({ bytes }) => bytes).map(({ id, turn }) => [id, turn]));
  const these = sql`id IN ${sql.list([...turns.keys()])}`;
  await session.run(sql`UPDATE delayed_events SET wake_at = ${until} WHERE ${these}`);
  const taken = await session.all<DelayedRow>(sql`SELECT ${columns} FROM delayed_events d WHERE ${these}`);
  return taken.map((row) => ({ ...row, turn: turns.get(row.id)! }));
}

/** Answers the ids of those that were there. */
export async function forgetEmitted(session: Session, ids: readonly string[]): Promise<string[]> {
  const gone = await session.all<GoneRow>(
    sql`DELETE FROM delayed_events WHERE id IN ${sql.list(ids)} RETURNING ${goneColumns}`,
  );
  await noteGone(session, gone);
  return gone.map(({ id }) => id);
}

export async function nextWakeAt(store: Store): Promise<Instant | undefined> {
  const row = await store.one<{ at: number | null }>(sql`SELECT min(wake_at) AS at FROM delayed_events`);
  return row?.at ?? undefined;
}
