import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { countCap } from "../../../kit/limits.ts";
import { column, countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { noteGrown } from "../../engine/quotas/rows.ts";

/** A stored message. `data` and `metadata` are JSON text. */
export type TopicMessage = RowOf<"topic_messages", "id, position, topic, data, metadata, at">;

type TopicReads = Pick<Store, "all" | "one" | "seams">;

const columns = sql.raw("id, position, topic, data, metadata, at");

/** Messages after a position, in order; up to and including `last` when it is given. */
export function messagesAfter(
  store: Pick<Store, "all">,
  environmentId: string,
  after: number,
  limit: number,
  last?: number,
): Promise<TopicMessage[]> {
  const where = [sql`environment_id = ${environmentId}`, sql`position > ${after}`];
  if (last !== undefined) where.push(sql`position <= ${last}`);
  return store.all(
    sql`SELECT ${columns} FROM topic_messages ${sql.where(where)} ORDER BY position LIMIT ${limit}`,
  );
}

/** Newest first, up to and including position `last`; of one topic when it is given. */
export function newestMessages(
  store: Pick<Store, "all">,
  environmentId: string,
  { last, name }: { last: number; name: string | undefined },
  limit: number,
): Promise<TopicMessage[]> {
  const where = [sql`environment_id = ${environmentId}`, sql`position <= ${last}`];
  if (name !== undefined) where.push(sql`topic = ${name}`);
  return store.all(
    sql`SELECT ${columns} FROM topic_messages ${sql.where(where)} ORDER BY position DESC LIMIT ${limit}`,
  );
}

/** The messages at these positions, without those that have expired. */
export const messagesAt = (
  { all, seams }: Pick<Store, "all" | "seams">,
  environmentId: string,
  positions: readonly number[],
): Promise<TopicMessage[]> =>
  all(sql`SELECT ${columns} FROM topic_messages WHERE environment_id = ${environmentId}
    AND position ${seams.among(column.bigint(positions))} ORDER BY position`);

interface TopicHead {
  environment_id: string;
  position: number;
  retention_floor: number;
  /** The environment's: a restore brings back both logs. */
  epoch: number;
}

/** The heads of the logs of topics; zero for an environment without a publish. */
export const topicHeads = (
  store: Pick<Store, "all">,
  environmentIds: readonly string[],
): Promise<TopicHead[]> =>
  store.all(sql`SELECT h.environment_id, COALESCE(t.position, 0) AS position,
      COALESCE(t.retention_floor, 0) AS retention_floor, h.epoch
    FROM heads h LEFT JOIN topic_heads t ON t.environment_id = h.environment_id
    WHERE h.environment_id IN ${sql.list(environmentIds)}`);

/** The first publish of an environment makes the head; one that is gone gets none. */
export const makeHeads = (session: Session, environmentIds: readonly string[]): Promise<number> =>
  session.run(sql`INSERT INTO topic_heads (environment_id, position, last_at, retention_floor)
    SELECT environment_id, 0, 0, 0 FROM (SELECT environment_id FROM heads
      WHERE environment_id IN ${sql.list(environmentIds)} ORDER BY environment_id ${session.seams.shareRow}) h
    WHERE true ON CONFLICT (environment_id) DO NOTHING`);

export interface UsedTopicKey {
  environment_id: string;
  key: string;
  /** `topic:` and the topic; other uses of the key have another word, or none. */
  function_id: string | null;
  event_id: string;
  /** Null when the message has expired. */
  position: number | null;
}

/** The first use of each key. */
export const findUsedKeys = (
  store: TopicReads,
  keys: readonly { environmentId: string; key: string }[],
): Promise<UsedTopicKey[]> =>
  store.all(sql`SELECT k.environment_id, k.key, k.function_id, k.event_id, m.position
    FROM ${store.seams.rowsFrom("i", {
      ...columnsOf(keys, { text: "environmentId key" }),
    })} JOIN idempotency_keys k ON k.environment_id = i.environment_id AND k.key = i.key
      LEFT JOIN topic_messages m ON m.environment_id = k.environment_id AND m.idempotency_key = k.key
        AND m.id = k.event_id`);

export interface TopicRow {
  name: string;
  message_count: number;
  last_position: number;
  last_at: Instant;
  first_position: number | null;
  first_at: Instant | null;
}

const firstOf = (what: Sql) =>
  sql`(SELECT m.${what} FROM topic_messages m WHERE m.environment_id = t.environment_id AND m.topic = t.name
    ORDER BY m.position LIMIT 1)`;

const topicColumns = sql`t.name, t.message_count, t.last_position, t.last_at,
  ${firstOf(sql.raw("position"))} AS first_position, ${firstOf(sql.raw("at"))} AS first_at`;

/** Topics by name, after `after`. */
export const listTopics = (
  store: TopicReads,
  environmentId: string,
  { after, limit }: { after: string; limit: number },
): Promise<TopicRow[]> =>
  store.all(sql`SELECT ${topicColumns} FROM topics t WHERE t.environment_id = ${environmentId} AND t.name > ${after}
    ORDER BY t.name LIMIT ${limit}`);

export const getTopic = (
  store: TopicReads,
  environmentId: string,
  name: string,
): Promise<TopicRow | undefined> =>
  store.one(
    sql`SELECT ${topicColumns} FROM topics t WHERE t.environment_id = ${environmentId} AND t.name = ${name}`,
  );

/** Messages of the topic after a position, counted up to the cap. */
export const countBehind = (
  store: TopicReads,
  environmentId: string,
  topic: string,
  after: number,
): Promise<number> =>
  countOf(
    store,
    sql`FROM topic_messages
    WHERE environment_id = ${environmentId} AND topic = ${topic} AND position > ${after}`,
    countCap,
  );

/** Environments with messages, by id. */
export const environmentsWithTopics = (
  store: Pick<Store, "all">,
  after: string,
  limit: number,
): Promise<{ environment_id: string; position: number }[]> =>
  store.all(sql`SELECT environment_id, position FROM topic_heads WHERE environment_id > ${after}
    ORDER BY environment_id LIMIT ${limit}`);

/** The oldest messages of an environment, in order. */
export const oldestMessages = (
  store: Pick<Store, "all">,
  environmentId: string,
  limit: number,
): Promise<{ position: number; at: Instant }[]> =>
  store.all(sql`SELECT position, at FROM topic_messages WHERE environment_id = ${environmentId}
    ORDER BY position LIMIT ${limit}`);

/**
 * Raises the floor to `floor` and deletes messages below it, at most `limit`. It locks the head as a publish
 * does, so that the two never change a topic's count at the same time.
 */
export async function expireMessages(
  session: Session,
  environmentId: string,
  floor: number,
  limit: number,
): Promise<number> {
  const { holdRow } = session.seams;
  const head = await session.one<{ position: number }>(
    sql`SELECT position FROM topic_heads WHERE environment_id = ${environmentId} ${holdRow}`,
  );
  if (!head) return 0;
  await session.run(sql`UPDATE topic_heads SET retention_floor = ${sql.bigint(floor)}
    WHERE environment_id = ${environmentId} AND retention_floor < ${sql.bigint(floor)}`);
  const gone = await session.all<{ topic: string; bytes: number }>(sql`DELETE FROM topic_messages
    WHERE environment_id = ${environmentId} AND position IN (SELECT position FROM topic_messages
      WHERE environment_id = ${environmentId} AND position < ${floor} ORDER BY position LIMIT ${limit})
    RETURNING topic, octet_length(data) + COALESCE(octet_length(metadata), 0) AS bytes`);
  const counts = Object.entries(Object.groupBy(gone, ({ topic }) => topic));
  if (counts.length === 0) return 0;
  const freed = gone.reduce((sum, { bytes }) => sum - bytes, 0);
  await session.run(noteGrown(session.seams, new Map([[environmentId, freed]])));
  const names = sql.list(counts.map(([topic]) => topic));
  await session.run(sql`UPDATE topics SET message_count = message_count - v.count
    FROM ${session.seams.rowsFrom("v", {
      name: column.text(counts.map(([topic]) => topic)),
      count: column.bigint(counts.map(([, list]) => list!.length)),
    })} WHERE topics.environment_id = ${environmentId} AND topics.name = v.name`);
  await session.run(sql`DELETE FROM topics WHERE environment_id = ${environmentId} AND name IN ${names}
    AND message_count <= 0`);
  return gone.length;
}
