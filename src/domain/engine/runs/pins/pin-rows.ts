import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { countCap } from "../../../../kit/limits.ts";
import { column, type Sql, sql } from "../../../../kit/sql.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Session, Store, StoreReader } from "../../../../store/store.ts";
import type { ExecutionState } from "../run.ts";
import { pinPlacesMax, pinSliceMax } from "./limits.ts";

/** Runs of one function in one state that are pinned to one deployment. */
export interface PinnedPlace {
  environmentId: string;
  functionId: string;
  deployment: string;
  state: ExecutionState;
}

const key = ["environment_id", "function_id", "pinned_to", "state"] as const;
const shown = sql.raw(
  'environment_id AS "environmentId", function_id AS "functionId", pinned_to AS deployment, state',
);

/**
 * Where runs are pinned, of all environments or one, in the order of the places, and behind one of them. The
 * index of pinned runs is walked in jumps from one place to the next, so that however many runs there are at
 * a place, it costs one.
 */
export function pinnedPlaces(
  store: Pick<Store, "all" | "seams">,
  { environmentId, after }: { environmentId?: string; after?: PinnedPlace | undefined } = {},
): Promise<PinnedPlace[]> {
  const here = environmentId === undefined ? sql.empty : sql` AND d.environment_id = ${environmentId}`;
  const found = store.seams.firstOfKeys({
    ...{ table: "executions", columns: key, key, where: sql`d.pinned_to IS NOT NULL${here}` },
    after: after && [after.environmentId, after.functionId, after.deployment, after.state],
  });
  return store.all(sql`WITH RECURSIVE ${found} SELECT ${shown} FROM found LIMIT ${pinPlacesMax}`);
}

/** How many runs are at each of these places of an environment, counted up to `countCap`. */
export async function countPinned(
  store: Pick<Store, "all" | "seams">,
  environmentId: string,
  places: readonly PinnedPlace[],
): Promise<(PinnedPlace & { count: number })[]> {
  if (places.length === 0) return [];
  return store.all(sql`SELECT ${environmentId} AS "environmentId", v.function_id AS "functionId",
      v.pinned_to AS deployment, v.state, (SELECT count(*) FROM (
        SELECT 1 FROM executions e WHERE e.environment_id = ${environmentId} AND e.function_id = v.function_id
          AND e.pinned_to = v.pinned_to AND e.state = v.state LIMIT ${countCap}) counted) AS count
    FROM ${store.seams.rowsFrom("v", {
      ...columnsOf(places, { text: "functionId state" }),
      pinned_to: column.text(places.map((place) => place.deployment)),
    })}`);
}

/** A connected worker that says its deployment. */
export interface DeployedWorker {
  environmentId: string;
  functionIds: readonly string[];
  deployment: string;
  registeredAt: Instant;
}

/** Those with a heartbeat since then; what cannot be read of one serves nothing. */
export async function deployedWorkers(
  reader: StoreReader,
  environmentIds: readonly string[],
  since: Instant,
): Promise<DeployedWorker[]> {
  const rows = await reader.all<{
    environment_id: string;
    function_ids: string;
    deployment: string;
    registered_at: number;
  }>(sql`SELECT environment_id, function_ids, deployment, registered_at FROM workers
    WHERE environment_id IN ${sql.list(environmentIds)} AND last_heartbeat_at >= ${since} AND deployment IS NOT NULL`);
  return rows.map((row) => ({
    environmentId: row.environment_id,
    functionIds: storedJson<string[]>(row.function_ids) ?? [],
    deployment: row.deployment,
    registeredAt: row.registered_at,
  }));
}

/** Of those that serve the function, the deployment of the one that registered last. */
export function newestOf(
  workers: readonly DeployedWorker[],
  { environmentId, functionId }: Pick<PinnedPlace, "environmentId" | "functionId">,
): string | null {
  const serving = workers.filter(
    (one) => one.environmentId === environmentId && one.functionIds.includes(functionId),
  );
  return serving.sort((a, b) => b.registeredAt - a.registeredAt)[0]?.deployment ?? null;
}

export interface MovedRow {
  run_id: string;
  lane_id: string | null;
}

interface PlaceMove {
  to: "stranded" | "queued";
  wakeAt: Instant;
  now: Instant;
  detail: object;
}

/**
 * A slice of the runs at a place gets another state, which the history notes. Locks: executions (never
 * waited for).
 */
export async function moveAtPlace(
  session: Session,
  place: PinnedPlace,
  { to, wakeAt, now, detail }: PlaceMove,
): Promise<MovedRow[]> {
  const moved = await session.all<MovedRow & { history_count: number }>(sql`UPDATE executions
      SET state = ${to}, wake_at = ${sql.bigint(wakeAt)}, history_count = history_count + 1
    WHERE run_id IN (SELECT e.run_id FROM executions e WHERE e.environment_id = ${place.environmentId}
        AND e.function_id = ${place.functionId} AND e.pinned_to = ${place.deployment} AND e.state = ${place.state}
      ORDER BY e.run_id LIMIT ${pinSliceMax} ${session.seams.skipLocked})
    RETURNING run_id, lane_id, history_count`);
  const type = to === "stranded" ? "run.stranded" : "run.requeued";
  await note(
    session,
    moved.map((row) => ({ ...row, environment_id: place.environmentId, type, detail })),
    now,
  );
  return moved;
}

interface NotedMove {
  run_id: string;
  environment_id: string;
  history_count: number;
  type: string;
  detail: object;
}

async function note(session: Session, rows: readonly NotedMove[], now: Instant): Promise<void> {
  if (rows.length === 0) return;
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT run_id, sequence, environment_id, type, ${sql.bigint(now)}, detail FROM ${session.seams.rowsFrom(
      "v",
      {
        ...columnsOf(rows, { text: "run_id environment_id type" }),
        sequence: column.bigint(rows.map((row) => row.history_count)),
        detail: column.text(rows.map((row) => JSON.stringify(row.detail))),
      },
    )}`);
}

/** A run, pinned or not. Locks: the execution. */
export interface PinnedRow extends MovedRow {
  environment_id: string;
  function_id: string;
  state: ExecutionState;
  pinned_to: string | null;
  history_count: number;
}

const pinnedColumns = sql.raw(
  "run_id, environment_id, function_id, lane_id, state, pinned_to, history_count",
);

export const lockPinned = (
  session: Session,
  environmentId: string,
  runId: string,
): Promise<PinnedRow | undefined> =>
  session.one(sql`SELECT ${pinnedColumns} FROM executions
    WHERE run_id = ${runId} AND environment_id || '' = ${environmentId} ${session.seams.holdRow}`);

/** These runs, which the caller holds, belong to another deployment from now on; null for the next. */
export async function repin(
  session: Session,
  rows: readonly (PinnedRow & { to: string | null })[],
  { now, by }: { now: Instant; by: { actor_id: string } | { cause: "grace" } },
): Promise<void> {
  const run_id = column.text(rows.map((row) => row.run_id));
  const { rowsFrom, byKey } = session.seams;
  const queued = (column: Sql, value: Sql) =>
    sql`CASE WHEN state = 'stranded' THEN ${value} ELSE ${column} END`;
  await session.run(sql`UPDATE executions SET pinned_to = v.pinned_to, history_count = executions.history_count + 1,
      wake_at = ${queued(sql.raw("wake_at"), sql.bigint(now))}, state = ${queued(sql.raw("state"), sql.raw("'queued'"))}
    FROM ${rowsFrom("v", { run_id, pinned_to: column.text(rows.map((row) => row.to)) })}
    WHERE executions.run_id = v.run_id ${byKey("executions.run_id", run_id)}`);
  const type = (row: PinnedRow) => (row.state === "stranded" ? "run.requeued" : "run.moved");
  await note(
    session,
    rows.map((row) => ({
      ...row,
      history_count: row.history_count + 1,
      type: type(row),
      detail: { from: row.pinned_to, to: row.to, ...by },
    })),
    now,
  );
}

/** Runs whose time to wait for their deployment is over. The caller holds them. */
export async function moveStranded(
  session: Session,
  runIds: readonly string[],
  { now, since }: { now: Instant; since: Instant },
): Promise<void> {
  const rows = await session.all<PinnedRow>(
    sql`SELECT ${pinnedColumns} FROM executions WHERE run_id IN ${sql.list(runIds)} AND state = 'stranded'`,
  );
  if (rows.length === 0) return;
  const environments = [...new Set(rows.map((row) => row.environment_id))];
  const workers = await deployedWorkers(session, environments, since);
  const to = (row: PinnedRow) => {
    const place = { environmentId: row.environment_id, functionId: row.function_id };
    // A worker of its own deployment may be back, and the look that would queue it still to come.
    const own = workers.filter((one) => one.deployment === row.pinned_to);
    return newestOf(own, place) ?? newestOf(workers, place);
  };
  await repin(
    session,
    rows.map((row) => ({ ...row, to: to(row) })),
    { now, by: { cause: "grace" } },
  );
}
