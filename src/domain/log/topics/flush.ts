import type { Instant } from "../../../kit/clock.ts";
import { lostKeys } from "../../../kit/key-claims.ts";
import { column, sql } from "../../../kit/sql.ts";
import { type Flush, StoreError, type SyncSession } from "../../../store/store.ts";

/** One message on its way into the log of topics. */
export interface NewMessage {
  id: string;
  environmentId: string;
  topic: string;
  /** JSON texts. */
  data: string;
  metadata: string | null;
  idempotencyKey: string | null;
}

export interface PublishFlushInput {
  now: Instant;
  messages: readonly NewMessage[];
  /** Of these every key must be got, or nothing is written and `lostKeys` is raised. */
  bound?: ReadonlySet<NewMessage>;
}

/** A message that is missing in the answer was not written: its key is taken, or its log has no head (yet, or any more). */
export interface PublishedRow {
  ord: number;
  position: number;
  at: Instant;
}

const messageColumns = (messages: readonly NewMessage[]) => ({
  id: column.text(messages.map((m) => m.id)),
  environment_id: column.text(messages.map((m) => m.environmentId)),
  topic: column.text(messages.map((m) => m.topic)),
  data: column.text(messages.map((m) => m.data)),
  metadata: column.text(messages.map((m) => m.metadata)),
  key: column.text(messages.map((m) => m.idempotencyKey)),
});

const keyTarget = sql.raw(
  "idempotency_keys (environment_id, key, kind, function_id, event_id, run_ids, created_at)",
);
// What a key was used for must agree with every repeat: a function's id, nothing for an emit, or this.
export const useOf = (topic: string): string => `topic:${topic}`;
const keyUse = sql.raw("'topic:' || topic");
const messageTarget = sql.raw(
  "topic_messages (environment_id, position, id, topic, data, metadata, at, idempotency_key)",
);
const countTarget = sql.raw("topics (environment_id, name, message_count, last_position, last_at)");
const countAgain = sql.raw(`ON CONFLICT (environment_id, name) DO UPDATE SET
  message_count = topics.message_count + excluded.message_count, last_position = excluded.last_position,
  last_at = excluded.last_at`);

/** Messages of any number of publishers in one round trip: as `events/flush.ts`, without all that an event starts. */
export const publishFlush: Flush<PublishFlushInput, PublishedRow> = {
  name: "topics.publish",

  postgres({ messages, bound, now }, seams) {
    const isBound = bound !== undefined && bound.size > 0;
    const keyed = messages.some((m) => m.idempotencyKey !== null);
    const fresh = keyed
      ? sql`fresh AS (
      INSERT INTO ${keyTarget}
      SELECT environment_id, key, 'publish', ${keyUse}, id, '[]', ${now}::bigint FROM item WHERE key IS NOT NULL
        AND EXISTS (SELECT 1 FROM topic_heads h WHERE h.environment_id = item.environment_id)
      ORDER BY environment_id, key, ord
      ON CONFLICT (environment_id, key) DO NOTHING RETURNING event_id),
    `
      : sql.empty;
    const survives = keyed ? sql`WHERE key IS NULL OR id IN (SELECT event_id FROM fresh)` : sql.empty;
    const item = sql`item AS MATERIALIZED (SELECT * FROM ${seams.rowsFrom("i", {
      ...messageColumns(messages),
      ...(isBound && { bound: column.bigint(messages.map((m) => (bound.has(m) ? 1 : null))) }),
    })})`;
    // As rows of the answer, so that it is computed whatever else comes of the statement.
    const refuseLost = isBound
      ? sql`UNION ALL SELECT CAST('svc!' || ${lostKeys}::text || i.environment_id AS bigint), 0, 0
    FROM item i JOIN topic_heads h ON h.environment_id = i.environment_id
    WHERE i.bound = 1 AND i.id NOT IN (SELECT event_id FROM fresh)`
      : sql.empty;
    const environmentIds = new Set(messages.map((m) => m.environmentId));
    // Most flushes are of one environment, whose messages all stand: a fifth cheaper than the general way (measured).
    const placed =
      environmentIds.size === 1 && !keyed
        ? sql`WITH ${item},
    moved AS (
      UPDATE topic_heads h SET last_at = GREATEST(h.last_at, ${now}::bigint), position = h.position + ${messages.length}
      WHERE h.environment_id = ANY (ARRAY(SELECT environment_id FROM item LIMIT 1))
      RETURNING h.position - ${messages.length} AS base, h.last_at),
    placed AS MATERIALIZED (
      SELECT i.*, m.base + i.ord AS position, m.last_at AS at FROM item i CROSS JOIN moved m),`
        : sql`WITH ${item},
    ${fresh}alive AS MATERIALIZED (
      SELECT item.*, row_number() OVER (PARTITION BY environment_id ORDER BY ord) AS place FROM item ${survives}),
    head AS MATERIALIZED (
      SELECT h.environment_id, h.position, h.last_at
      FROM (SELECT DISTINCT environment_id FROM alive ORDER BY environment_id) a CROSS JOIN LATERAL (
        SELECT x.environment_id, x.position, x.last_at FROM topic_heads x
        WHERE x.environment_id = a.environment_id ORDER BY x.environment_id FOR UPDATE) h),
    moved AS (
      UPDATE topic_heads h SET last_at = GREATEST(head.last_at, ${now}::bigint), position = head.position + n.count
      FROM head JOIN (SELECT environment_id, count(*) AS count FROM alive GROUP BY environment_id) n
        ON n.environment_id = head.environment_id
      WHERE h.environment_id || '' = head.environment_id
        AND h.environment_id = ANY (ARRAY(SELECT environment_id FROM head))
      RETURNING h.environment_id, head.position AS base, h.last_at),
    placed AS MATERIALIZED (
      SELECT a.*, m.base + a.place AS position, m.last_at AS at
      FROM alive a JOIN moved m ON m.environment_id = a.environment_id),`;
    return sql`${placed}
    logged AS (
      INSERT INTO ${messageTarget}
      SELECT environment_id, position, id, topic, data, metadata, at, key FROM placed),
    counted AS (
      INSERT INTO ${countTarget}
      SELECT environment_id, topic, count(*), max(position), max(at) FROM placed
      GROUP BY environment_id, topic ORDER BY environment_id, topic ${countAgain})
    SELECT ord, position, at FROM placed ${refuseLost}`;
  },

  libsql(session, { messages, bound, now }) {
    const alive = messages.some((m) => m.idempotencyKey !== null)
      ? withoutUsedKeys(session, messages, now)
      : new Set(messages);
    const heads = new Map(
      session
        .all<{ environment_id: string; position: number; last_at: number }>(
          sql`SELECT environment_id, position, last_at FROM topic_heads
            WHERE environment_id IN ${sql.list([...new Set(messages.map((m) => m.environmentId))])}`,
        )
        .map((head) => [head.environment_id, head]),
    );
    for (const { environmentId } of bound?.difference(alive) ?? [])
      if (heads.has(environmentId)) throw new StoreError("marked", lostKeys + environmentId);
    const placed: (PublishedRow & { message: NewMessage })[] = [];
    for (const [at, message] of messages.entries()) {
      const head = heads.get(message.environmentId);
      if (!head || !alive.has(message)) continue;
      head.last_at = Math.max(head.last_at, now);
      placed.push({ ord: at + 1, position: ++head.position, at: head.last_at, message });
    }
    if (placed.length > 0) write(session, placed);
    return placed.map(({ ord, position, at }) => ({ ord, position, at }));
  },
};

/** Takes the idempotency keys; answers the messages that got theirs or have none. */
function withoutUsedKeys(
  session: SyncSession,
  messages: readonly NewMessage[],
  now: Instant,
): Set<NewMessage> {
  const keyed = messages.filter((m) => m.idempotencyKey !== null);
  const fresh = new Set(
    session
      .all<{ event_id: string }>(sql`INSERT INTO ${keyTarget}
        SELECT environment_id, key, 'publish', ${keyUse}, id, '[]', ${now}
        FROM ${session.seams.rowsFrom("i", messageColumns(keyed))}
        WHERE EXISTS (SELECT 1 FROM topic_heads h WHERE h.environment_id = i.environment_id)
        ON CONFLICT (environment_id, key) DO NOTHING RETURNING event_id`)
      .map((row) => row.event_id),
  );
  return new Set(messages.filter((m) => m.idempotencyKey === null || fresh.has(m.id)));
}

function write(session: SyncSession, placed: readonly (PublishedRow & { message: NewMessage })[]): void {
  const { rowsFrom } = session.seams;
  const last = new Map(placed.map((one) => [one.message.environmentId, one]));
  session.run(sql`UPDATE topic_heads SET position = v.position, last_at = v.last_at
    FROM ${rowsFrom("v", {
      environment_id: column.text([...last.keys()]),
      position: column.bigint([...last.values()].map((one) => one.position)),
      last_at: column.bigint([...last.values()].map((one) => one.at)),
    })} WHERE topic_heads.environment_id = v.environment_id`);
  session.run(sql`INSERT INTO ${messageTarget}
    SELECT environment_id, position, id, topic, data, metadata, at, key FROM ${rowsFrom("i", {
      ...messageColumns(placed.map((one) => one.message)),
      position: column.bigint(placed.map((one) => one.position)),
      at: column.bigint(placed.map((one) => one.at)),
    })}`);
  const topics = [
    ...Map.groupBy(placed, ({ message }) => `${message.environmentId}\n${message.topic}`).values(),
  ];
  const lastOf = (own: typeof placed) => own.at(-1)!;
  // `WHERE true` keeps SQLite from reading the conflict clause as a join condition.
  session.run(sql`INSERT INTO ${countTarget}
    SELECT environment_id, name, count, position, at FROM ${rowsFrom("i", {
      environment_id: column.text(topics.map((own) => lastOf(own).message.environmentId)),
      name: column.text(topics.map((own) => lastOf(own).message.topic)),
      count: column.bigint(topics.map((own) => own.length)),
      position: column.bigint(topics.map((own) => lastOf(own).position)),
      at: column.bigint(topics.map((own) => lastOf(own).at)),
    })} WHERE true ${countAgain}`);
}
