import { columnsOf } from "../../../kit/columns.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { FlowNotice } from "../functions/start-options.ts";
import { batchBytesMax } from "./limits.ts";

/** An event that waits in a batch, stored by the flush that logs it. */
export interface NewJoin {
  environmentId: string;
  functionId: string;
  functionVersion: number;
  /** Of the function and a value of its key. */
  batchId: string;
  eventId: string;
  bytes: number;
  size: number;
  timeoutMs: number;
  /** Why the key does not apply to the event; absent when it does. */
  notice?: FlowNotice | undefined;
}

export const joinColumns = (joins: readonly NewJoin[]) => ({
  ...columnsOf(joins, {
    text: "environmentId functionId eventId",
    bigint: "functionVersion bytes size timeoutMs",
  }),
  id: column.text(joins.map((one) => one.batchId)),
});

/**
 * Counts events into what their functions and keys have open. `source` is a table expression `n` with the
 * columns of `joinColumns`, `position` and `at`; its events are written and their heads held, so that the
 * events of one batch come in the order of their positions. `least` is the engine's smaller of two.
 */
export const insertBatches = (source: Sql, least: "LEAST" | "MIN"): Sql => sql`INSERT INTO batches
    (id, environment_id, function_id, function_version, size, timeout_ms, count, bytes, first_position, closes_at)
  SELECT j.id, j.environment_id, j.function_id, j.function_version, j.size, j.timeout_ms, j.count, j.bytes, j.first_position,
    CASE WHEN j.count >= j.size OR j.bytes >= ${batchBytesMax} THEN j.first_at ELSE j.first_at + j.timeout_ms END
  FROM (SELECT n.id, n.environment_id, n.function_id, max(n.function_version) AS function_version, max(n.size) AS size,
      max(n.timeout_ms) AS timeout_ms, count(*) AS count, CAST(sum(n.bytes) AS BIGINT) AS bytes,
      min(n.position) AS first_position, min(n.at) AS first_at
    FROM ${source} GROUP BY n.id, n.environment_id, n.function_id) j
  WHERE true ORDER BY j.id
  ON CONFLICT (id) DO UPDATE SET function_version = excluded.function_version, size = excluded.size,
    timeout_ms = excluded.timeout_ms, count = batches.count + excluded.count, bytes = batches.bytes + excluded.bytes,
    closes_at = ${sql.raw(least)}(batches.closes_at, CASE
      WHEN batches.count + excluded.count >= excluded.size OR batches.bytes + excluded.bytes >= ${batchBytesMax}
      THEN excluded.closes_at - excluded.timeout_ms ELSE excluded.closes_at END)`;

/** The events themselves, from the same rows. */
export const insertBatchEvents = (source: Sql): Sql => sql`INSERT INTO batch_events
    (environment_id, batch_id, position, event_id, bytes, at)
  SELECT n.environment_id, n.id, n.position, n.event_id, n.bytes, n.at FROM ${source}`;
