import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Flush, SyncSession } from "../../../store/store.ts";
import { noteBytes, noteGrown } from "../../engine/quotas/rows.ts";
import {
  type Appended,
  type AppendLog,
  append,
  boundColumn,
  isKeyed,
  lockHeads,
  moveHead,
  moveHeads,
  onlyEnvironment,
  refuseLostKeys,
  survivors,
  takeKeys,
} from "../core/append.ts";
import { topicPrefix } from "./rules.ts";

/** One message on its way into the log of topics. */
export interface NewMessage {
  id: string;
  environmentId: string;
  topic: string;
  /** JSON texts. */
  data: string;
  metadata: string | null;
  idempotencyKey: string | null;
  /** The run that publishes it. */
  runId: string | null;
}

export interface PublishFlushInput {
  now: Instant;
  messages: readonly NewMessage[];
  /** Each of these must get its key; otherwise nothing is written and `lostKeys` is raised. */
  bound?: ReadonlySet<NewMessage>;
}

/** A message missing in the answer was not written: its key is taken, or its log has no head. */
export interface PublishedRow {
  ord: number;
  position: number;
  at: Instant;
}

const messageColumns = (messages: readonly NewMessage[]) => ({
  ...columnsOf(messages, { text: "id environmentId topic data metadata" }),
  key: column.text(messages.map((m) => m.idempotencyKey)),
});

/**
 * What a key was used for, as every repeat of it must say too: an emit has nothing there, an invoke a
 * function's id.
 */
export const useOf = (topic: string): string => topicPrefix + topic;

/** Runs publish little beside others: only their flushes carry the column. */
const runColumn = (messages: readonly NewMessage[]) =>
  messages.some((m) => m.runId !== null) ? { run_id: column.text(messages.map((m) => m.runId)) } : {};

const topicLog: AppendLog<NewMessage> = {
  heads: "topic_heads",
  keyKind: sql.raw("'publish'"),
  keyUse: sql.raw(`'${topicPrefix}' || topic`),
  keyRunIds: sql.raw("'[]'"),
  keyColumns: messageColumns,
};

const messageNames = "environment_id, position, id, topic, data, metadata, at";
/** The insert of messages up to its source. */
const insertMessages = (ofRuns: object) => {
  const further = Object.keys(ofRuns)
    .map((name) => `, ${name}`)
    .join("");
  return sql.raw(`INSERT INTO topic_messages (${messageNames}, idempotency_key${further})
    SELECT ${messageNames}, key${further} FROM`);
};
const countTarget = sql.raw("topics (environment_id, name, message_count, last_position, last_at)");
const countAgain = sql.raw(`ON CONFLICT (environment_id, name) DO UPDATE SET
  message_count = topics.message_count + excluded.message_count, last_position = excluded.last_position,
  last_at = excluded.last_at`);

/**
 * Appends messages of any number of publishers in one round trip (see `log/core/append.ts`), and counts them
 * by topic.
 */
export const publishFlush: Flush<PublishFlushInput, PublishedRow> = {
  name: "topics.publish",

  postgres({ messages, bound, now }, seams) {
    const keyed = isKeyed(messages);
    const ofRuns = runColumn(messages);
    const columns = { ...messageColumns(messages), ...ofRuns, ...boundColumn(messages, bound) };
    const only = onlyEnvironment(messages);
    const parts = sql.ctes(
      { "item AS MATERIALIZED": sql`SELECT * FROM ${seams.rowsFrom("i", columns)}` },
      keyed && takeKeys(topicLog, now),
      survivors(keyed, only !== undefined),
      ...(only === undefined
        ? [lockHeads(topicLog), moveHeads(topicLog, now)]
        : [moveHead(topicLog, now, { environmentId: only, count: keyed ? undefined : messages.length })]),
      {
        "placed AS MATERIALIZED": sql`SELECT a.*, m.base + a.place AS position, m.last_at AS at
          FROM alive a JOIN moved m ON m.environment_id = a.environment_id`,
        "logged AS": sql`${insertMessages(ofRuns)} placed`,
        "noted AS": noteBytes(
          seams,
          [...new Set(messages.map((m) => m.environmentId))],
          sql`SELECT CAST(sum(octet_length(p.data) + COALESCE(octet_length(p.metadata), 0)) AS BIGINT)
            FROM placed p WHERE p.environment_id = q.environment_id`,
        ),
        "counted AS": sql`INSERT INTO ${countTarget}
          SELECT environment_id, topic, count(*), max(position), max(at) FROM placed
          GROUP BY environment_id, topic ORDER BY environment_id, topic ${countAgain}`,
      },
    );
    return sql`WITH ${parts}
    SELECT ord, position, at FROM placed ${refuseLostKeys(topicLog, bound)}`;
  },

  libsql(session, { messages, bound, now }) {
    const environmentIds = new Set(messages.map((m) => m.environmentId));
    const appended = append(session, topicLog, { entries: messages, bound, now, environmentIds });
    if (appended.length > 0) write(session, appended);
    return appended.map(({ ord, position, at }) => ({ ord, position, at }));
  },
};

function write(session: SyncSession, appended: readonly Appended<NewMessage>[]): void {
  const { rowsFrom } = session.seams;
  const messages = appended.map((one) => one.entry);
  const ofRuns = runColumn(messages);
  session.run(
    sql`${insertMessages(ofRuns)} ${rowsFrom("i", {
      ...messageColumns(messages),
      ...ofRuns,
      ...columnsOf(appended, { bigint: "position at" }),
    })}`,
  );
  const grown = new Map<string, number>();
  for (const { environmentId: id, data, metadata } of messages)
    grown.set(id, (grown.get(id) ?? 0) + Buffer.byteLength(data) + Buffer.byteLength(metadata ?? ""));
  session.run(noteGrown(session.seams, grown));
  const topics = [...Map.groupBy(appended, ({ entry }) => `${entry.environmentId}\n${entry.topic}`).values()];
  const lastOf = (own: typeof appended) => own.at(-1)!;
  // `WHERE true` keeps SQLite from reading the conflict clause as a join condition.
  session.run(sql`INSERT INTO ${countTarget}
    SELECT environment_id, name, count, position, at FROM ${rowsFrom("i", {
      environment_id: column.text(topics.map((own) => lastOf(own).entry.environmentId)),
      name: column.text(topics.map((own) => lastOf(own).entry.topic)),
      count: column.bigint(topics.map((own) => own.length)),
      position: column.bigint(topics.map((own) => lastOf(own).position)),
      at: column.bigint(topics.map((own) => lastOf(own).at)),
    })} WHERE true ${countAgain}`);
}
