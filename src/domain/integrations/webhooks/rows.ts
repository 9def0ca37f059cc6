import {
  type BoundedCount,
  type BoundedList,
  type BoundedPage,
  countLooked,
  firstLooksMax,
  looksMax,
  lookThrough,
} from "../../../kit/bounded-look.ts";
import type { Instant } from "../../../kit/clock.ts";
import { idempotencyKeptMs, webhookKeyKeptMs } from "../../../kit/limits.ts";
import { countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { flowDeliveriesMax } from "./limits.ts";

export interface SourceRow
  extends RowOf<
    "webhook_sources",
    `environment_id, id, name, event_prefix, source_type, verify_header, verify_algorithm, metadata,
  sealed, prev_sealed, prev_expires_at, token_hash, token_prefix, created_at, updated_at`
  > {
  /** JSON text. */
  verify_config: string | null;
}

const fields = sql.raw(`environment_id, id, name, event_prefix, source_type, verify_header, verify_algorithm,
  verify_config, metadata, sealed, prev_sealed, prev_expires_at, token_hash, token_prefix, created_at, updated_at`);

const its = ({ environment_id, id }: Pick<SourceRow, "environment_id" | "id">): Sql =>
  sql`environment_id = ${environment_id} AND id = ${id}`;

/** Whatever its environment is: who sends to it names no other. */
export const sourceOfId = (reader: StoreReader, id: string): Promise<SourceRow | undefined> =>
  reader.one(sql`SELECT ${fields} FROM webhook_sources WHERE id = ${id}
    AND EXISTS (SELECT 1 FROM heads h WHERE h.environment_id = webhook_sources.environment_id)`);

export const getSource = (
  reader: StoreReader,
  environmentId: string,
  id: string,
): Promise<SourceRow | undefined> =>
  reader.one(
    sql`SELECT ${fields} FROM webhook_sources WHERE environment_id = ${environmentId} AND id = ${id}`,
  );

/** The same, locked for the rest of the transaction. */
export const holdSource = (
  session: Session,
  environmentId: string,
  id: string,
): Promise<SourceRow | undefined> =>
  session.one(sql`SELECT ${fields} FROM webhook_sources
    WHERE environment_id = ${environmentId} AND id = ${id} ${session.seams.holdRow}`);

export const listSources = (
  reader: StoreReader,
  environmentId: string,
  page: { limit: number; offset: number },
): Promise<SourceRow[]> =>
  reader.all(sql`SELECT ${fields} FROM webhook_sources WHERE environment_id = ${environmentId}
    ORDER BY id LIMIT ${page.limit} OFFSET ${page.offset}`);

export const countSources = (reader: StoreReader, environmentId: string): Promise<number> =>
  countOf(reader, sql`FROM webhook_sources WHERE environment_id = ${environmentId}`);

export const insertSource = (session: Session, row: SourceRow): Promise<number> =>
  session.run(sql`INSERT INTO webhook_sources (${fields}) VALUES (${row.environment_id}, ${row.id}, ${row.name},
    ${row.event_prefix}, ${row.source_type}, ${row.verify_header}, ${row.verify_algorithm}, ${row.verify_config},
    ${row.metadata}, ${row.sealed}, ${row.prev_sealed}, ${row.prev_expires_at}, ${row.token_hash},
    ${row.token_prefix}, ${sql.bigint(row.created_at)}, ${sql.bigint(row.updated_at)})`);

export const updateSource = (session: Session, row: SourceRow): Promise<number> =>
  session.run(sql`UPDATE webhook_sources SET name = ${row.name}, source_type = ${row.source_type},
      verify_header = ${row.verify_header}, verify_algorithm = ${row.verify_algorithm},
      verify_config = ${row.verify_config}, metadata = ${row.metadata}, sealed = ${row.sealed},
      prev_sealed = ${row.prev_sealed}, prev_expires_at = ${row.prev_expires_at}, token_hash = ${row.token_hash},
      token_prefix = ${row.token_prefix}, updated_at = ${sql.bigint(row.updated_at)}
    WHERE ${its(row)}`);

export const deleteSource = (session: Session, environmentId: string, id: string): Promise<number> =>
  session.run(sql`DELETE FROM webhook_sources WHERE environment_id = ${environmentId} AND id = ${id}`);

/** Of the whole installation, for a new master key. */
export const sealedSources = (
  reader: StoreReader,
): Promise<Pick<SourceRow, "environment_id" | "id" | "sealed" | "prev_sealed">[]> =>
  reader.all(sql`SELECT environment_id, id, sealed, prev_sealed FROM webhook_sources
    WHERE sealed IS NOT NULL OR prev_sealed IS NOT NULL ORDER BY environment_id, id`);

export const resealSource = (
  session: Session,
  row: Pick<SourceRow, "environment_id" | "id" | "sealed" | "prev_sealed">,
): Promise<number> =>
  session.run(sql`UPDATE webhook_sources SET sealed = ${row.sealed}, prev_sealed = ${row.prev_sealed}
    WHERE ${its(row)}`);

/** Secrets whose grace is over are stored no longer. */
export const dropExpiredSecrets = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`UPDATE webhook_sources SET prev_sealed = NULL, prev_expires_at = NULL
    WHERE id IN (SELECT id FROM webhook_sources WHERE prev_expires_at < ${before}
      ORDER BY prev_expires_at, id LIMIT ${limit}) AND prev_expires_at < ${before}`);

export interface DeliveryRow
  extends RowOf<
    "webhook_deliveries",
    `environment_id, id, source_id, external_id, status, signature_key, event_id, event_name, error,
  is_repeat, redelivered_from, created_at, request_body`
  > {
  /** 1 where the text is the body byte for byte. */
  body_whole: number;
  /** JSON text. */
  request_headers: string;
}

const deliveryFields = `environment_id, id, source_id, external_id, status, signature_key, event_id, event_name, error,
  is_repeat, redelivered_from, body_whole, created_at, request_headers`;

export const insertDelivery = (session: Session, row: DeliveryRow): Promise<number> =>
  session.run(sql`INSERT INTO webhook_deliveries (${sql.raw(deliveryFields)}, request_body)
    VALUES (${row.environment_id}, ${row.id}, ${row.source_id}, ${row.external_id}, ${row.status},
      ${row.signature_key}, ${row.event_id}, ${row.event_name}, ${row.error}, ${sql.bigint(row.is_repeat)},
      ${row.redelivered_from}, ${sql.bigint(row.body_whole)}, ${sql.bigint(row.created_at)},
      ${row.request_headers}, ${row.request_body})`);

export const getDelivery = (
  reader: StoreReader,
  environmentId: string,
  id: string,
): Promise<DeliveryRow | undefined> =>
  reader.one(sql`SELECT ${sql.raw(deliveryFields)}, request_body FROM webhook_deliveries
    WHERE environment_id = ${environmentId} AND id = ${id}`);

export interface DeliveryFilter {
  environmentId: string;
  sourceId: string | undefined;
  status: string | undefined;
}

/** By id, of all sources or of one: no index has statuses, so that a webhook writes one less. */
const listOf = ({ environmentId, sourceId, status }: DeliveryFilter, before?: string): BoundedList => ({
  columns: sql.raw("id, status"),
  from: sql.raw("webhook_deliveries"),
  served: [
    sql`environment_id = ${environmentId}`,
    ...(sourceId === undefined ? [] : [sql`source_id = ${sourceId}`]),
    ...(before === undefined ? [] : [sql`id < ${before}`]),
  ],
  asked: status === undefined ? [] : [sql`status = ${status}`],
  order: sql.raw("id DESC"),
});

/** Newest first, behind `before`, each with the beginning of its body. */
export async function listDeliveries(
  reader: StoreReader,
  filter: DeliveryFilter,
  page: { before: string | undefined; limit: number; offset: number; bodyCharsMax: number },
): Promise<BoundedPage<DeliveryRow, { id: string }>> {
  const { found, ...look } = await lookThrough<{ id: string }>(reader, listOf(filter, page.before), {
    ...page,
    looks: page.before === undefined ? firstLooksMax : looksMax,
  });
  const ids = found.map(({ id }) => id);
  const rows = await reader.all<DeliveryRow>(sql`SELECT ${sql.raw(deliveryFields)},
      substr(request_body, 1, ${page.bodyCharsMax + 1}) AS request_body
    FROM webhook_deliveries WHERE environment_id = ${filter.environmentId} AND id IN ${sql.list(ids)}
    ORDER BY id DESC`);
  return { found: rows, ...look };
}

export const countDeliveries = (reader: StoreReader, filter: DeliveryFilter): Promise<BoundedCount> =>
  countLooked(reader, listOf(filter), firstLooksMax);

/** What a repeat is answered; of an event that has expired nothing but its id. */
export interface FirstEvent {
  event_id: string;
  event_name: string | null;
  position: number | undefined;
}

/** The event that the key of a provider's id was used for. */
export async function firstEvent(
  reader: StoreReader,
  environmentId: string,
  key: string,
): Promise<FirstEvent | undefined> {
  const found = await reader.one<{ event_id: string; event_name: string | null; position: number | null }>(
    sql`SELECT k.event_id, v.name AS event_name, v.position FROM idempotency_keys k
        LEFT JOIN events v ON v.id = k.event_id AND v.environment_id = k.environment_id
      WHERE k.environment_id = ${environmentId} AND k.key = ${key}`,
  );
  return found && { ...found, position: found.position ?? undefined };
}

export const keepProof = (
  session: Session,
  { environment_id, event_id, created_at }: DeliveryRow,
  key: string,
): Promise<number> =>
  session.run(sql`INSERT INTO idempotency_keys (environment_id, key, kind, function_id, event_id, run_ids, created_at)
    VALUES (${environment_id}, ${key}, 'emit', NULL, ${event_id}, '[]', ${created_at + webhookKeyKeptMs - idempotencyKeptMs})
    ON CONFLICT (environment_id, key) DO NOTHING`);

export const forgetDeliveries = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM webhook_deliveries WHERE (environment_id, id) IN (
    SELECT environment_id, id FROM webhook_deliveries WHERE created_at < ${before}
    ORDER BY created_at, id LIMIT ${limit})`);

export interface FlowRow {
  source_id: string;
  status: string;
  event_name: string | null;
  count: number;
  latest: Instant;
}

/** Among the newest deliveries of the environment: how many of each source, status and event. */
export const flowOf = (reader: StoreReader, environmentId: string): Promise<FlowRow[]> =>
  reader.all(sql`SELECT source_id, status, event_name, count(*) AS count, max(created_at) AS latest FROM (
      SELECT source_id, status, event_name, created_at FROM webhook_deliveries
      WHERE environment_id = ${environmentId} ORDER BY id DESC LIMIT ${flowDeliveriesMax}) newest
    GROUP BY source_id, status, event_name ORDER BY source_id, status, event_name`);

export const allSources = (reader: StoreReader, environmentId: string): Promise<SourceRow[]> =>
  reader.all(sql`SELECT ${fields} FROM webhook_sources WHERE environment_id = ${environmentId} ORDER BY id`);
