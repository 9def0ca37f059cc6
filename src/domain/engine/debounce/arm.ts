import { columnsOf } from "../../../kit/columns.ts";
import { nodesWithout } from "../../../kit/node-facts.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import { apartIdOf, entryIdOf, type KeyKind } from "./rules.ts";

/** A debounced start, stored by the flush that logs its event. */
export interface NewArm {
  environmentId: string;
  functionId: string;
  functionVersion: number;
  key: string;
  kind: KeyKind;
  eventId: string;
  periodMs: number;
  /** `noMaxWaitMs` for none. */
  maxWaitMs: number;
}

export const armColumns = (arms: readonly NewArm[]) => ({
  ...columnsOf(arms, {
    text: "environmentId functionId eventId",
    bigint: "functionVersion periodMs maxWaitMs",
  }),
  plain_id: column.text(arms.map((a) => entryIdOf(a))),
  apart_id: column.text(arms.map((a) => apartIdOf(a, a.kind))),
  key_kind: column.text(arms.map(({ kind }) => kind)),
  debounce_key: column.text(arms.map((a) => a.key)),
});

/** What nodes say of themselves that arm entries by the kind of their keys. */
export const knowsKinds = "debounce_kinds";

/**
 * The rows of `armColumns` with the `id` of their entry. While a node lives that knows no kinds, and while an
 * entry waits that one armed, keys of all kinds are of the entry of their text.
 */
export const placedArms = (rows: Sql, arms: readonly NewArm[]): Sql =>
  arms.every((arm) => apartIdOf(arm, arm.kind) === null)
    ? sql`(SELECT r.*, r.plain_id AS id, r.key_kind AS kind FROM ${rows})`
    : sql`(SELECT r.*, CASE WHEN r.apart_id IS NULL OR o.lives OR EXISTS (SELECT 1 FROM debounces d
          WHERE d.id = r.plain_id AND d.key_kind IS NULL) THEN r.plain_id ELSE r.apart_id END AS id,
        CASE WHEN o.lives THEN NULL ELSE r.key_kind END AS kind
      FROM ${rows}, (SELECT EXISTS (${nodesWithout(knowsKinds)}) AS lives) o)`;

/**
 * Arms an entry, or arms it again: the last event wins, the time of the first stays. `source` is a table
 * expression `n` with the columns of `placedArms`, `position` and `at`, at most one row an id; its events are
 * written and their heads held, so that of one entry the last position comes last. `least` is the engine's
 * smaller of two.
 */
export const insertArms = (source: Sql, least: "LEAST" | "MIN"): Sql => sql`INSERT INTO debounces
    (id, environment_id, function_id, function_version, debounce_key, key_kind, event_id, event_position, period_ms, max_wait_ms,
     first_at, armed_at, fires_at)
  SELECT n.id, n.environment_id, n.function_id, n.function_version, n.debounce_key, n.kind, n.event_id, n.position, n.period_ms,
    n.max_wait_ms, n.at, n.at, n.at + ${sql.raw(least)}(n.period_ms, n.max_wait_ms)
  FROM ${source} WHERE true
  ON CONFLICT (id) DO UPDATE SET function_version = excluded.function_version, event_id = excluded.event_id,
    event_position = excluded.event_position, period_ms = excluded.period_ms, max_wait_ms = excluded.max_wait_ms,
    key_kind = CASE WHEN excluded.key_kind IS NULL THEN NULL ELSE debounces.key_kind END,
    armed_at = excluded.armed_at, fires_at = ${sql.raw(least)}(excluded.armed_at + excluded.period_ms,
      debounces.first_at + excluded.max_wait_ms)`;
