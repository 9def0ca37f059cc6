import type { Instant } from "../../../kit/clock.ts";
import { gaugeCountMax } from "../../../kit/limits.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { fitting } from "../../../kit/slice-size.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export interface OutboxRow
  extends RowOf<
    "outbox",
    `id, environment_id, event_id, entity_id, topic, kind, metadata, created_at, attempts, due_at,
  last_error, dead_at`
  > {
  /** JSON texts. */
  payload: string;
}

const textNames = [
  ...(["id", "environment_id", "event_id", "entity_id", "topic", "kind", "payload", "metadata"] as const),
  "last_error" as const,
];
const numberNames = ["created_at", "attempts", "due_at", "dead_at"] as const;
const fieldNames = [...textNames, ...numberNames];
const fields = sql.raw(fieldNames.join(", "));

/** Inserts nothing where the environment is gone: its readers are gone too. */
export async function insertEntries(session: Session, entries: readonly OutboxRow[]): Promise<void> {
  if (entries.length === 0) return;
  const texts = textNames.map((name) => [name, column.text(entries.map((row) => row[name]))]);
  const numbers = numberNames.map((name) => [name, column.bigint(entries.map((row) => row[name]))]);
  await session.run(sql`INSERT INTO outbox (${fields})
    SELECT ${sql.raw(fieldNames.map((name) => `v.${name}`).join(", "))}
    FROM ${session.seams.rowsFrom("v", Object.fromEntries([...texts, ...numbers]))}
      JOIN heads h ON h.environment_id = v.environment_id`);
}

const due = (kind: string, now: Instant): DueRows => ({
  table: "outbox",
  columns: sql.raw(fieldNames.map((name) => `d.${name}`).join(", ")),
  where: sql`d.kind = ${kind} AND d.dead_at IS NULL`,
  dueAt: "due_at",
  until: now,
  tail: ["id"],
});

/** Of one kind. */
export const dueEntries = (
  reader: Pick<Store, "all" | "seams">,
  kind: string,
  now: Instant,
  slice: Slice,
): Promise<(OutboxRow & { turn: number })[]> => reader.all(sliceOf(reader.seams, due(kind, now), slice));

export const environmentsDueNow = (reader: StoreReader, kind: string, now: Instant): Promise<WorkScope[]> =>
  reader.all(environmentsDue(due(kind, now)));

export const deleteEntries = (session: Session, ids: readonly string[]): Promise<number> =>
  session.run(sql`DELETE FROM outbox WHERE id ${session.seams.among(column.text(ids))} AND dead_at IS NULL`);

/** Notes a refused try; changes nothing when the entry has changed since `row` was read. */
export const spendAttempt = (
  session: Session,
  row: OutboxRow,
  { error, dueAt, deadAt }: { error: string; dueAt: Instant; deadAt: Instant | null },
): Promise<number> =>
  session.run(sql`UPDATE outbox SET attempts = attempts + 1, last_error = ${error}, due_at = ${sql.bigint(dueAt)},
      dead_at = ${deadAt}
    WHERE id = ${row.id} AND attempts = ${row.attempts} AND dead_at IS NULL`);

/** Newest first; as many as are read at once, and how many more there are up to the limit. */
export async function deadLetters(
  reader: StoreReader,
  environmentId: string,
  { limit, offset }: { limit: number; offset: number },
): Promise<{ items: OutboxRow[]; left: number }> {
  const page = (columns: Sql, most: number) =>
    sql`SELECT ${columns} FROM outbox WHERE environment_id = ${environmentId} AND dead_at IS NOT NULL
      ORDER BY dead_at DESC, id DESC LIMIT ${most} OFFSET ${offset}`;
  const bytesOf = sql`environment_id, octet_length(payload) + octet_length(metadata) AS bytes`;
  const sizes = await reader.all<{ environment_id: string; bytes: number }>(page(bytesOf, limit));
  const { length } = fitting(sizes, ({ bytes }) => bytes);
  return { items: await reader.all<OutboxRow>(page(fields, length)), left: sizes.length - length };
}

/** The dead letters of the event. */
export const lettersOf = (
  reader: StoreReader,
  environmentId: string,
  eventId: string,
): Promise<OutboxRow[]> =>
  reader.all(sql`SELECT ${fields} FROM outbox
    WHERE environment_id = ${environmentId} AND event_id = ${eventId} AND dead_at IS NOT NULL ORDER BY id`);

const dead = (session: Session, environmentId: string, ids: readonly string[]): Sql =>
  sql`id ${session.seams.among(column.text(ids))} AND environment_id = ${environmentId} AND dead_at IS NOT NULL`;

/** Makes these dead letters due again; answers how many. */
export const requeue = (
  session: Session,
  environmentId: string,
  ids: readonly string[],
  now: Instant,
): Promise<number> =>
  session.run(sql`UPDATE outbox SET attempts = 0, dead_at = NULL, due_at = ${sql.bigint(now)}
    WHERE ${dead(session, environmentId, ids)}`);

export const deleteLetters = (
  session: Session,
  environmentId: string,
  ids: readonly string[],
): Promise<number> => session.run(sql`DELETE FROM outbox WHERE ${dead(session, environmentId, ids)}`);

export const forgetDead = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM outbox WHERE id IN (
    SELECT id FROM outbox WHERE dead_at < ${before} ORDER BY dead_at, id LIMIT ${limit})`);

export interface Counts {
  waiting: number;
  dead: number;
  oldest: number | null;
}

/** Counts over all environments, up to a bound; `oldest` is the entry that has been due longest. */
export const counts = async (reader: StoreReader, kinds: readonly string[]): Promise<Counts> => {
  const oldest = kinds.map(
    (kind) => sql`SELECT min(due_at) AS due_at FROM outbox WHERE kind = ${kind} AND dead_at IS NULL`,
  );
  const row = await reader.one<Counts>(sql`SELECT
    (SELECT count(*) FROM (SELECT 1 FROM outbox WHERE dead_at IS NULL LIMIT ${gaugeCountMax}) w) AS waiting,
    (SELECT count(*) FROM (SELECT 1 FROM outbox WHERE dead_at IS NOT NULL LIMIT ${gaugeCountMax}) d) AS dead,
    (SELECT min(o.due_at) FROM (${sql.join(oldest, " UNION ALL ")}) o) AS oldest`);
  return row ?? { waiting: 0, dead: 0, oldest: null };
};

/** Entries of the environment that were due before, in no order. */
export const overdue = (
  reader: StoreReader,
  environmentId: string,
  before: Instant,
  limit: number,
): Promise<{ id: string; at: number; kind: string; attempts: number }[]> =>
  reader.all(sql`SELECT id, due_at AS at, kind, attempts FROM outbox
    WHERE environment_id = ${environmentId} AND due_at < ${before} AND dead_at IS NULL LIMIT ${limit}`);

/** A log whose end the mirror has not reached. */
export interface MirrorProgress {
  environment_id: string;
  head: number;
  /** Null before the mirror's first round. */
  position: number | null;
}

/** How far the logs behind this id, in order of ids, are mirrored. */
export const mirrorProgressAfter = (
  reader: StoreReader,
  after: string,
  limit: number,
): Promise<MirrorProgress[]> =>
  reader.all(sql`SELECT h.environment_id, h.position AS head, m.position
    FROM (SELECT environment_id, position FROM heads WHERE environment_id > ${after}
      ORDER BY environment_id LIMIT ${limit}) h
    LEFT JOIN mirrors m ON m.environment_id = h.environment_id
    ORDER BY h.environment_id`);

export const mirrorProgressOf = (
  reader: StoreReader,
  environmentId: string,
): Promise<MirrorProgress | undefined> =>
  reader.one(sql`SELECT h.environment_id, h.position AS head, m.position
    FROM heads h LEFT JOIN mirrors m ON m.environment_id = h.environment_id
    WHERE h.environment_id = ${environmentId}`);

/** Nothing when the environment is gone. */
export const moveMirror = (session: Session, environmentId: string, position: number): Promise<number> =>
  session.run(sql`INSERT INTO mirrors (environment_id, position)
    SELECT environment_id, ${sql.bigint(position)} FROM heads WHERE environment_id = ${environmentId}
    ON CONFLICT (environment_id) DO UPDATE SET position = excluded.position
      WHERE mirrors.position < excluded.position`);
