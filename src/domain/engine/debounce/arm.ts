import { column, type Sql, sql } from "../../../kit/sql.ts";
import { entryIdOf } from "./rules.ts";

/** A debounced start, stored by the flush that logs its event. */
export interface NewArm {
  environmentId: string;
  functionId: string;
  functionVersion: number;
  key: string;
  eventId: string;
  periodMs: number;
  /** `noMaxWaitMs` for none. */
  maxWaitMs: number;
}

export const armColumns = (arms: readonly NewArm[]) => ({
  id: column.text(arms.map((a) => entryIdOf(a.environmentId, a.functionId, a.key))),
  environment_id: column.text(arms.map((a) => a.environmentId)),
  function_id: column.text(arms.map((a) => a.functionId)),
  function_version: column.bigint(arms.map((a) => a.functionVersion)),
  debounce_key: column.text(arms.map((a) => a.key)),
  event_id: column.text(arms.map((a) => a.eventId)),
  period_ms: column.bigint(arms.map((a) => a.periodMs)),
  max_wait_ms: column.bigint(arms.map((a) => a.maxWaitMs)),
});

/**
 * Arms an entry, or arms it again: the last event wins, the time of the first stays. `source` is a table
 * expression `n` with the columns of `armColumns`, `position` and `at`, at most one row an id; its events are
 * written and their heads held, so that of one entry the last position comes last. `least` is the engine's
 * smaller of two.
 */
export const insertArms = (source: Sql, least: "LEAST" | "MIN"): Sql => sql`INSERT INTO debounces
    (id, environment_id, function_id, function_version, debounce_key, event_id, event_position, period_ms, max_wait_ms,
     first_at, armed_at, fires_at)
  SELECT n.id, n.environment_id, n.function_id, n.function_version, n.debounce_key, n.event_id, n.position, n.period_ms,
    n.max_wait_ms, n.at, n.at, n.at + ${sql.raw(least)}(n.period_ms, n.max_wait_ms)
  FROM ${source} WHERE true
  ON CONFLICT (id) DO UPDATE SET function_version = excluded.function_version, event_id = excluded.event_id,
    event_position = excluded.event_position, period_ms = excluded.period_ms, max_wait_ms = excluded.max_wait_ms,
    armed_at = excluded.armed_at, fires_at = ${sql.raw(least)}(excluded.armed_at + excluded.period_ms,
      debounces.first_at + excluded.max_wait_ms)`;
