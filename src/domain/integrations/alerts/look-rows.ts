import type { Instant } from "../../../kit/clock.ts";
import { countCap } from "../../../kit/limits.ts";
import { type Sql, sql } from "../../../kit/sql.ts";
import type { StoreReader } from "../../../store/store.ts";
import { alertSubjectsMax } from "./limits.ts";

// What rules look at: counts, and heads of indexes. Nothing here reads runs.

const ofFunction = (functionId: string | null, name = "function_id"): Sql =>
  functionId === null ? sql.empty : sql`AND ${sql.raw(name)} = ${functionId}`;

/** Failures of each function since a rule asks for them, those that failed last first. */
export const failureCounts = (
  reader: StoreReader,
  environmentId: string,
  functionId: string | null,
): Promise<{ function_id: string; count: number }[]> =>
  reader.all(sql`SELECT function_id, count FROM failure_counts
    WHERE environment_id = ${environmentId} ${ofFunction(functionId)} ORDER BY last_at DESC, function_id`);

export const endsSince = async (
  reader: StoreReader,
  environmentId: string,
  minute: Instant,
): Promise<{ completed: number; failed: number }> =>
  (await reader.one<{
    completed: number;
    failed: number;
  }>(sql`SELECT CAST(COALESCE(sum(completed), 0) AS BIGINT) AS completed,
      CAST(COALESCE(sum(failed), 0) AS BIGINT) AS failed
    FROM flow_minutes WHERE environment_id = ${environmentId} AND minute >= ${sql.bigint(minute)}`))!;

/** The function whose first queued run waits longest: the head of each queue. */
export const longestQueued = (
  reader: StoreReader,
  environmentId: string,
  functionId: string | null,
): Promise<{ id: string; at: Instant } | undefined> =>
  reader.one(sql`SELECT id, at FROM (
      SELECT f.id, (SELECT e.wake_at FROM executions e
        WHERE e.environment_id = f.environment_id AND e.function_id = f.id AND e.state = 'queued'
        ORDER BY e.wake_at LIMIT 1) AS at
      FROM functions f WHERE f.environment_id = ${environmentId} ${ofFunction(functionId, "f.id")}) heads
    WHERE at IS NOT NULL ORDER BY at, id LIMIT 1`);

/** Whether there is such a function that workers must ask for runs of. */
export const isPulled = async (reader: StoreReader, environmentId: string, id: string): Promise<boolean> =>
  (await reader.one(sql`SELECT id FROM functions WHERE environment_id = ${environmentId} AND id = ${id}
    AND status = 'active' AND mode = 'pull'`)) !== undefined;

export const missedSlots = (
  reader: StoreReader,
  environmentId: string,
  functionId: string | null,
): Promise<{ function_id: string; count: number }[]> =>
  reader.all(sql`SELECT function_id, CAST(sum(missed_count) AS BIGINT) AS count FROM schedules
    WHERE environment_id = ${environmentId} ${ofFunction(functionId)} AND missed_count > 0
    GROUP BY function_id ORDER BY function_id`);

/** Dead letters of both kinds, counted up to `countCap` each. */
export const deadLetters = async (
  reader: StoreReader,
  environmentId: string,
): Promise<{ messages: number; webhooks: number }> =>
  (await reader.one<{ messages: number; webhooks: number }>(sql`SELECT
    (SELECT count(*) FROM (SELECT 1 FROM outbox WHERE environment_id = ${environmentId} AND dead_at IS NOT NULL
      LIMIT ${countCap}) m) AS messages,
    (SELECT count(*) FROM (SELECT 1 FROM webhook_dead_letters WHERE environment_id = ${environmentId}
      LIMIT ${countCap}) w) AS webhooks`))!;

/** Names of things in trouble, one more than a rule has alerts for. */
const named = (reader: StoreReader, from: Sql): Promise<{ name: string }[]> =>
  reader.all(sql`SELECT name FROM (${from}) named ORDER BY name LIMIT ${alertSubjectsMax + 1}`);

export const openBreakers = (reader: StoreReader, environmentId: string, functionId: string | null) =>
  named(
    reader,
    sql`SELECT DISTINCT function_id AS name FROM breakers
      WHERE environment_id = ${environmentId} ${ofFunction(functionId)} AND opened_at IS NOT NULL`,
  );

export const brokenProjections = (reader: StoreReader, environmentId: string) =>
  named(
    reader,
    sql`SELECT name FROM projections WHERE environment_id = ${environmentId} AND status = 'error'`,
  );

export const stoppedEndpoints = (reader: StoreReader, environmentId: string) =>
  named(
    reader,
    sql`SELECT id AS name FROM webhook_endpoints
      WHERE environment_id = ${environmentId} AND status = 'disabled'`,
  );
