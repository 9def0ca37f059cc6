import type { Instant } from "../../../kit/clock.ts";
import { countCap, gaugeCountMax } from "../../../kit/limits.ts";
import { countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

/** An event that an endpoint did not take. Its payload stands in the log alone. */
export interface LetterRow
  extends RowOf<
    "webhook_dead_letters",
    "environment_id, endpoint_id, event_id, event_name, position, attempts, last_error, dead_at"
  > {
  /** Set while it is to be sent again. */
  due_at: Instant | null;
}

/** With the stream of its event, while the log has that. */
export type ListedLetter = LetterRow & { entity_id: string | null };

export type LetterKey = Pick<LetterRow, "environment_id" | "endpoint_id" | "event_id">;

const fields =
  sql.raw(`environment_id, endpoint_id, event_id, event_name, position, attempts, last_error, dead_at,
  due_at`);

const ofEndpoint = (key: Pick<LetterKey, "environment_id" | "endpoint_id">): Sql =>
  sql`environment_id = ${key.environment_id} AND endpoint_id = ${key.endpoint_id}`;
const its = (key: LetterKey): Sql => sql`${ofEndpoint(key)} AND event_id = ${key.event_id}`;

/** A second death of the same event counts its tries together. */
export const insertLetter = (session: Session, row: LetterRow): Promise<number> =>
  session.run(sql`INSERT INTO webhook_dead_letters (${fields}) VALUES (${row.environment_id}, ${row.endpoint_id},
      ${row.event_id}, ${row.event_name}, ${sql.bigint(row.position)}, ${sql.bigint(row.attempts)},
      ${row.last_error}, ${sql.bigint(row.dead_at)}, ${row.due_at})
    ON CONFLICT (environment_id, endpoint_id, event_id) DO UPDATE SET
      attempts = webhook_dead_letters.attempts + excluded.attempts, last_error = excluded.last_error,
      dead_at = excluded.dead_at, due_at = NULL`);

export const listLetters = (
  reader: StoreReader,
  key: Pick<LetterKey, "environment_id" | "endpoint_id">,
  { limit, offset }: { limit: number; offset: number },
): Promise<ListedLetter[]> =>
  reader.all(sql`SELECT ${fields}, (SELECT entity_id FROM events WHERE events.id = webhook_dead_letters.event_id) AS entity_id
    FROM webhook_dead_letters WHERE ${ofEndpoint(key)}
    ORDER BY position, event_id LIMIT ${limit} OFFSET ${offset}`);

/** Counted up to `countCap`. */
export const countLetters = (
  reader: StoreReader,
  key: Pick<LetterKey, "environment_id" | "endpoint_id">,
): Promise<number> => countOf(reader, sql`FROM webhook_dead_letters WHERE ${ofEndpoint(key)}`, countCap);

export const getLetter = (reader: StoreReader, key: LetterKey): Promise<LetterRow | undefined> =>
  reader.one(sql`SELECT ${fields} FROM webhook_dead_letters WHERE ${its(key)}`);

/** In log order, by the index of due letters: the bound and `+ 0` keep it off the one with all letters. */
export const dueLetters = (
  reader: StoreReader,
  key: Pick<LetterKey, "environment_id" | "endpoint_id">,
  limit: number,
): Promise<LetterRow[]> =>
  reader.all(sql`SELECT ${fields} FROM webhook_dead_letters WHERE ${ofEndpoint(key)} AND due_at IS NOT NULL AND due_at >= 0
    ORDER BY position + 0 LIMIT ${limit}`);

export const setDue = (session: Session, key: LetterKey, at: Instant): Promise<number> =>
  session.run(sql`UPDATE webhook_dead_letters SET due_at = ${at} WHERE ${its(key)}`);

export const noteLetterFailure = (session: Session, key: LetterKey, error: string): Promise<number> =>
  session.run(sql`UPDATE webhook_dead_letters SET due_at = NULL, attempts = attempts + 1, last_error = ${error}
    WHERE ${its(key)}`);

export const deleteLetter = (session: Session, key: LetterKey): Promise<number> =>
  session.run(sql`DELETE FROM webhook_dead_letters WHERE ${its(key)}`);

export const forgetLetters = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM webhook_dead_letters WHERE (environment_id, endpoint_id, event_id) IN (
    SELECT environment_id, endpoint_id, event_id FROM webhook_dead_letters WHERE dead_at < ${before}
    ORDER BY dead_at LIMIT ${limit})`);

export const countAllLetters = (reader: StoreReader): Promise<number> =>
  countOf(reader, sql`FROM webhook_dead_letters`, gaugeCountMax);
