import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import { errorGroupsMax, groupOf, type NewErrorGroup, restOf } from "../errors/rules.ts";
import type { RunError } from "./run.ts";

/** A run that ends as failed. */
export interface FailedRun {
  runId: string;
  environmentId: string;
  functionId: string;
  error: RunError;
}

/**
 * The group of each failure, by run. Groups that are not there yet are counted without a lock: calls at once
 * may pass the bound by a few.
 */
export async function groupsOf(
  reader: Pick<StoreReader, "all"> & Pick<Session, "seams">,
  failures: readonly FailedRun[],
): Promise<Map<string, NewErrorGroup>> {
  const groups = new Map(failures.map((one) => [one.runId, groupOf(one.functionId, one.error)]));
  const distinct = new Map(
    failures.map(({ runId, environmentId }) => {
      const group = groups.get(runId)!;
      return [`${environmentId}\n${group.id}`, { ...group, environmentId }];
    }),
  );
  const list = [...distinct.values()];
  const full = await reader.all<{ id: string; environment_id: string }>(sql`SELECT v.id, v.environment_id
    FROM ${reader.seams.rowsFrom("v", {
      ...columnsOf(list, { text: "id environmentId functionId" }),
    })} WHERE NOT EXISTS (SELECT 1 FROM error_groups g WHERE g.environment_id = v.environment_id AND g.id = v.id)
      AND (SELECT count(*) FROM (SELECT 1 FROM error_groups g WHERE g.environment_id = v.environment_id
        AND g.function_id = v.function_id LIMIT ${errorGroupsMax}) counted) >= ${errorGroupsMax}`);
  const isFull = new Set(full.map(({ environment_id, id }) => `${environment_id}\n${id}`));
  for (const { runId, environmentId, functionId } of failures)
    if (isFull.has(`${environmentId}\n${groups.get(runId)!.id}`)) groups.set(runId, restOf(functionId));
  return groups;
}

interface Grouped {
  errorGroup: NewErrorGroup | null;
}

/** Further columns of ends that are failures. */
export const groupColumns = (list: readonly Grouped[]) => ({
  error_group: column.text(list.map(({ errorGroup }) => errorGroup?.id ?? null)),
  group_function: column.text(list.map(({ errorGroup }) => errorGroup?.functionId ?? null)),
  group_code: column.text(list.map(({ errorGroup }) => errorGroup?.code ?? null)),
  group_message: column.text(list.map(({ errorGroup }) => errorGroup?.message ?? null)),
  group_frame: column.text(list.map(({ errorGroup }) => errorGroup?.frame ?? null)),
});

/**
 * Counts the failures of `source`, rows `v` with `groupColumns`, `run_id` and `environment_id`: a row a
 * group, in the order of their keys and after the locks of the executions.
 */
export const countFailures = (source: Sql, now: Instant): Sql => sql`INSERT INTO error_groups AS g
    (environment_id, id, function_id, code, message, frame, count, first_seen_at, last_seen_at, sample_run_id)
  SELECT v.environment_id, v.error_group, max(v.group_function), max(v.group_code), max(v.group_message),
    max(v.group_frame), count(*), ${sql.bigint(now)}, ${sql.bigint(now)}, max(v.run_id)
  FROM ${source} WHERE v.error_group IS NOT NULL
  GROUP BY v.environment_id, v.error_group ORDER BY v.environment_id, v.error_group
  ON CONFLICT (environment_id, id) DO UPDATE SET count = g.count + excluded.count,
    last_seen_at = excluded.last_seen_at, sample_run_id = excluded.sample_run_id`;

/** Of the rows `v` of ends, those of environments that are told of failures. */
export const noteFailedRuns = (source: Sql, now: Instant): Sql => sql`INSERT INTO failed_runs
    (run_id, failed_at, environment_id, due_at)
  SELECT v.run_id, ${sql.bigint(now)}, v.environment_id, ${sql.bigint(now)} FROM ${source}
  WHERE v.error_group IS NOT NULL
    AND (SELECT e.tells_failures FROM environments e WHERE e.id = v.environment_id) IS NOT NULL
  ON CONFLICT (run_id, failed_at) DO NOTHING`;

/** Counts them by function for alerts, in environments that have a rule about failed runs. */
export const countForAlerts = (source: Sql, now: Instant): Sql => sql`INSERT INTO failure_counts AS c
    (environment_id, function_id, count, last_at)
  SELECT v.environment_id, v.group_function, count(*), ${sql.bigint(now)} FROM ${source}
  WHERE v.error_group IS NOT NULL AND EXISTS (SELECT 1 FROM alert_rules a
    WHERE a.environment_id = v.environment_id AND a.condition = 'run_failed')
  GROUP BY v.environment_id, v.group_function ORDER BY v.environment_id, v.group_function
  ON CONFLICT (environment_id, function_id) DO UPDATE SET count = c.count + excluded.count,
    last_at = excluded.last_at`;
