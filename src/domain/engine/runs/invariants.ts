import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax, overdueMs } from "../../../kit/limits.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import { runPlace, signalPlace, streamPlace } from "../waits/rules.ts";
import { sweepSliceMax } from "./limits.ts";

interface Lost {
  id: string;
  at: Instant;
}

/**
 * No such row. The limit keeps it a lookup for each row outside: a join would read every run or execution
 * that there is.
 */
const none = (row: Sql): Sql => sql`(SELECT 1 ${row} LIMIT 1) IS NULL`;

/** Of execution `e`: it waits for an event or a child, and nothing but its deadline would wake it. */
export const withoutWake = sql`((e.state = 'waiting' AND ${none(sql`FROM waits w
    WHERE w.run_id = e.run_id AND w.kind = 'wait' AND COALESCE(w.of_step, w.step_id) = e.waiting_step_id`)})
  OR (e.state = 'invoking' AND ${none(sql`FROM invocations i
      WHERE i.parent_run_id = e.run_id AND i.step_id = e.waiting_step_id`)}
    AND ${none(sql`FROM steps s JOIN runs c ON c.id = s.child_run_id
      WHERE s.run_id = e.run_id AND s.step_id = e.waiting_step_id AND (c.status = 'active'
        OR (SELECT 1 FROM child_ends d WHERE d.child_run_id = c.id LIMIT 1) IS NOT NULL)`)}))`;

/**
 * The balances of runs: those that were created are over, or have an execution with a wake that will come or
 * a person who holds them; every execution has an active run; no lane is overfull; nothing that is due is
 * late.
 */
export const runChecks = (store: Store, clock: { now(): Instant }): IntegrityCheck[] => [
  {
    name: "runs.without_execution",
    about: "Active runs that nothing would ever move, among the newest runs.",
    run: async (environmentId) =>
      violationsOf(
        await store.all<Lost>(sql`SELECT r.id, r.created_at AS at, r.function_id AS function FROM (
          SELECT id, function_id, status, created_at FROM runs WHERE environment_id = ${environmentId}
          ORDER BY created_at DESC, id DESC LIMIT ${integrityRowsMax}) r
        WHERE r.status = 'active' AND ${none(sql`FROM executions e WHERE e.run_id = r.id`)}`),
      ),
  },
  {
    name: "executions.without_run",
    about: "Executions whose run has ended or is not there.",
    run: async (environmentId) =>
      violationsOf(
        await store.all<Lost>(sql`SELECT e.run_id AS id, COALESCE(e.claimed_at, e.started_at, 0) AS at,
            e.function_id AS function, e.state FROM (
          SELECT run_id, function_id, state, claimed_at, started_at FROM executions WHERE environment_id = ${environmentId}
          LIMIT ${integrityRowsMax}) e
        WHERE ${none(sql`FROM runs r WHERE r.id = e.run_id AND r.status = 'active'`)}`),
      ),
  },
  {
    name: "timers.overdue",
    about: "Leases, sleeps, retries and waits whose time passed without anyone moving them.",
    run: async (environmentId) => {
      const late = clock.now() - overdueMs;
      return violationsOf(
        await store.all<Lost>(sql`SELECT run_id AS id, wake_at AS at, function_id AS function, state FROM (
          SELECT run_id, environment_id, function_id, state, wake_at FROM executions WHERE state <> 'queued' AND wake_at <= ${late}
          ORDER BY wake_at LIMIT ${integrityRowsMax}) due WHERE environment_id = ${environmentId}
        UNION ALL SELECT run_id, timeout_at, function_id, state FROM (
          SELECT run_id, environment_id, function_id, state, timeout_at FROM executions
          WHERE timeout_at IS NOT NULL AND timeout_at <= ${late}
          ORDER BY timeout_at LIMIT ${integrityRowsMax}) ended WHERE environment_id = ${environmentId}`),
      );
    },
  },
  {
    name: "runs.without_wake",
    about: "Runs that wait for an event or a child, and nothing but their deadline would wake them.",
    run: async (environmentId) =>
      violationsOf(
        await store.all<Lost>(sql`SELECT e.run_id AS id, COALESCE(e.claimed_at, e.started_at, 0) AS at,
            e.function_id AS function, e.state, e.waiting_step_id AS step FROM (
          SELECT run_id, function_id, state, waiting_step_id, claimed_at, started_at FROM executions
          WHERE environment_id = ${environmentId} LIMIT ${integrityRowsMax}) e
        WHERE ${withoutWake}`),
      ),
  },
  {
    name: "lanes.overfull",
    about: "Leases in lanes that were handed more than their function's limit since it was last changed.",
    run: async (environmentId) =>
      violationsOf(
        await store.all<Lost>(sql`SELECT e.lane_id AS id, max(e.claimed_at) AS at, max(f.id) AS function,
            count(*) AS leased, max(f.lane_limit) AS "limit" FROM (
            SELECT id, lane_limit, updated_at FROM functions WHERE environment_id = ${environmentId}
              AND lane_limit IS NOT NULL ORDER BY id LIMIT ${integrityRowsMax}) f
          JOIN executions e ON e.environment_id = ${environmentId} AND e.function_id = f.id AND e.state = 'leased'
        WHERE e.lane_id IS NOT NULL AND e.claimed_at > f.updated_at
        GROUP BY e.lane_id HAVING count(*) > max(f.lane_limit)`),
      ),
  },
  {
    name: "events.unmatched",
    about:
      "Events that were not compared in time with the waits for their name, and waits that were not compared with past events.",
    run: async (environmentId) => {
      const late = clock.now() - overdueMs;
      return violationsOf(
        await store.all<Lost>(sql`SELECT id, at, name AS event FROM (
          SELECT v.id, v.at, v.name FROM events v WHERE v.environment_id = ${environmentId}
            AND v.position > (SELECT m.position FROM matchers m WHERE m.environment_id = ${environmentId})
            AND v.at + 0 <= ${late}
          ORDER BY v.position LIMIT ${integrityRowsMax}) v
        WHERE (SELECT 1 FROM waits w WHERE w.environment_id = ${environmentId} AND w.event_name = v.name
          AND w.fresh_at IS NULL LIMIT 1) IS NOT NULL
        UNION ALL SELECT run_id, fresh_at, event_name FROM (SELECT run_id, fresh_at, event_name FROM waits
          WHERE environment_id = ${environmentId} AND fresh_at IS NOT NULL AND fresh_at <= ${late}
          ORDER BY fresh_at LIMIT ${integrityRowsMax}) w`),
      );
    },
  },
  {
    name: "children.overdue",
    about: "Children that were not started in time, and ends of children that did not reach their parents.",
    run: async (environmentId) => {
      const late = clock.now() - overdueMs;
      return violationsOf(
        await store.all<Lost>(sql`SELECT parent_run_id AS id, due_at AS at FROM (
          SELECT parent_run_id, environment_id, due_at FROM invocations WHERE due_at <= ${late}
          ORDER BY due_at LIMIT ${integrityRowsMax}) i WHERE environment_id = ${environmentId}
        UNION ALL SELECT child_run_id, ended_at FROM (
          SELECT child_run_id, environment_id, ended_at FROM child_ends WHERE ended_at <= ${late}
          ORDER BY ended_at LIMIT ${integrityRowsMax}) d WHERE environment_id = ${environmentId}`),
      );
    },
  },
];

export interface BrokenRun {
  id: string;
  environment_id: string;
}

/**
 * The next slice of runs by id, from behind `after`: those that are active without an execution, and where
 * the slice ended. What a deleted environment left is the purge's business: there the executions go first.
 */
export async function lostRuns(
  store: Store,
  after: string,
): Promise<{ found: BrokenRun[]; last: string | undefined }> {
  const end = await endOf(
    store,
    sql`SELECT id FROM runs WHERE id > ${after} ORDER BY id LIMIT ${sweepSliceMax}`,
  );
  const found = await store.all<BrokenRun>(sql`SELECT r.id, r.environment_id FROM (
      SELECT id, environment_id, status FROM runs WHERE id > ${after} ORDER BY id LIMIT ${sweepSliceMax}) r
    WHERE r.status = 'active' AND ${none(sql`FROM executions e WHERE e.run_id = r.id`)}
      AND (SELECT 1 FROM heads h WHERE h.environment_id = r.environment_id LIMIT 1) IS NOT NULL`);
  return { found, last: end };
}

/** The same of executions. */
export async function orphans(
  store: Store,
  after: string,
): Promise<{ found: BrokenRun[]; last: string | undefined }> {
  const end = await endOf(
    store,
    sql`SELECT run_id AS id FROM executions WHERE run_id > ${after} ORDER BY run_id LIMIT ${sweepSliceMax}`,
  );
  const found = await store.all<BrokenRun>(sql`SELECT e.run_id AS id, e.environment_id FROM (
      SELECT run_id, environment_id FROM executions WHERE run_id > ${after} ORDER BY run_id LIMIT ${sweepSliceMax}) e
    WHERE ${none(sql`FROM runs r WHERE r.id = e.run_id AND r.status = 'active'`)}`);
  return { found, last: end };
}

/** In the slice of executions from behind `after`: those that nothing would wake. */
export const asleep = (store: Store, after: string): Promise<BrokenRun[]> =>
  store.all<BrokenRun>(sql`SELECT e.run_id AS id, e.environment_id FROM (
      SELECT run_id, environment_id, state, waiting_step_id FROM executions WHERE run_id > ${after}
      ORDER BY run_id LIMIT ${sweepSliceMax}) e
    WHERE ${withoutWake}`);

/** Undefined when the slice was the last. */
async function endOf(store: Store, slice: Sql): Promise<string | undefined> {
  const row = await store.one<{ last: string | null; count: number }>(
    sql`SELECT max(id) AS last, count(*) AS count FROM (${slice}) slice`,
  );
  return row && row.count === sweepSliceMax ? (row.last ?? undefined) : undefined;
}

/**
 * Executions that belong to no active run lead nowhere: they go, and what they waited for. Locks: executions,
 * sorted.
 */
export async function dropOrphans(session: Session, runIds: readonly string[]): Promise<number> {
  const gone = await session.all<{ run_id: string }>(sql`DELETE FROM executions WHERE run_id IN (
      SELECT run_id FROM ${session.seams.rowsFrom("v", { run_id: column.text([...runIds].sort()) })})
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.id = executions.run_id AND r.status = 'active') RETURNING run_id`);
  if (gone.length === 0) return 0;
  const ids = sql.list(gone.map((row) => row.run_id));
  await session.run(sql`DELETE FROM waits WHERE run_id IN ${ids}`);
  await session.run(sql`DELETE FROM invocations WHERE parent_run_id IN ${ids}`);
  return gone.length;
}

/** Environments of what is overdue; a slice. */
export const overdue = (store: Store, now: Instant): Promise<BrokenRun[]> => {
  const late = now - overdueMs;
  return store.all<BrokenRun>(sql`SELECT run_id AS id, environment_id FROM (
      SELECT run_id, environment_id FROM executions WHERE state <> 'queued' AND wake_at <= ${late}
      ORDER BY wake_at LIMIT ${sweepSliceMax}) due
    UNION SELECT run_id, environment_id FROM (
      SELECT run_id, environment_id FROM executions WHERE timeout_at IS NOT NULL AND timeout_at <= ${late}
      ORDER BY timeout_at LIMIT ${sweepSliceMax}) ended`);
};

/** Which of these are still due. */
export async function stillOverdue(
  store: Store,
  runIds: readonly string[],
  now: Instant,
): Promise<Set<string>> {
  const each = store.seams.rowOf("executions", "e", sql`e.run_id = v.run_id`);
  const rows = await store.all<{ run_id: string }>(sql`SELECT e.run_id
    FROM ${store.seams.rowsFrom("v", { run_id: column.text(runIds) })} ${each}
    WHERE (e.state <> 'queued' AND e.wake_at <= ${now - overdueMs}) OR e.timeout_at <= ${now - overdueMs}`);
  return new Set(rows.map((row) => row.run_id));
}

/** Of one place, or of all keys; those of runs that a person holds are left alone, and new ones. */
const waitsIn = (environmentId: string, place: Sql): Sql => sql`(SELECT w.* FROM waits w
    WHERE w.environment_id = ${environmentId} AND ${place} AND w.place IS NOT NULL AND w.met IS NULL
    ORDER BY w.place, w.subject, w.run_id, w.step_id LIMIT ${integrityRowsMax}) w
  JOIN executions e ON e.run_id = w.run_id AND e.state = 'waiting' AND w.due_at IS NULL`;

/** Waits whose state was there long ago, and those whose look is overdue. */
export const statesCheck = (store: Pick<Store, "all">, clock: { now(): Instant }): IntegrityCheck => ({
  name: "waits.unmet",
  about: "Runs that wait for an entity, a key or a child which has long been as they want it.",
  async run(environmentId) {
    const late = clock.now() - overdueMs;
    return violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT w.run_id AS id, s.updated_at AS at, w.step_id AS step
          FROM ${waitsIn(environmentId, sql`w.place = ${streamPlace}`)}
          JOIN streams s ON s.environment_id = w.environment_id AND s.entity_id = w.subject
          WHERE s.version >= w.bound AND s.updated_at <= ${late}
        UNION ALL SELECT w.run_id, r.ended_at, w.step_id FROM ${waitsIn(environmentId, sql`w.place = ${runPlace}`)}
          JOIN runs r ON r.id = w.subject AND r.environment_id = w.environment_id
          WHERE r.status <> 'active' AND r.ended_at <= ${late}
        UNION ALL SELECT w.run_id, g.sent_at, w.step_id FROM ${waitsIn(environmentId, sql`w.place = ${signalPlace}`)}
          JOIN run_signals g ON g.run_id = w.run_id AND g.name = w.subject AND g.taken_at IS NULL
          WHERE g.sent_at <= ${late}
        UNION ALL SELECT w.run_id, k.created_at, w.step_id
          FROM ${waitsIn(environmentId, sql`w.place > 'key:' AND w.place < 'key;'`)}
          JOIN kv_buckets b ON b.environment_id = w.environment_id AND b.name = substr(w.place, 5) AND b.deleted_at IS NULL
          JOIN kv_keys k ON k.environment_id = b.environment_id AND k.bucket_id = b.id AND k.key = w.subject
          WHERE k.created_at <= ${late} AND ((w.test = 'changed' AND k.revision > w.bound)
            OR (w.test = 'absent' AND k.operation = 'delete') OR (k.operation = 'put' AND k.expires_at IS NULL
              AND (w.test = 'exists' OR (w.test = 'equals' AND k.value = w.wanted))))
        UNION ALL SELECT w.run_id, w.due_at, w.step_id FROM (SELECT d.run_id, d.due_at, d.step_id FROM waits d
          WHERE d.environment_id = ${environmentId} AND d.due_at IS NOT NULL AND d.due_at <= ${late}
          ORDER BY d.due_at, d.run_id, d.step_id LIMIT ${integrityRowsMax}) w WHERE w.due_at > 0`),
    );
  },
});
