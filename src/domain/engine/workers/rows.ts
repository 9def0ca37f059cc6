import { inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { columnsOf, readAs } from "../../../kit/columns.ts";
import { countOf, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export type WorkerRecord = ReturnType<typeof toWorker>;

interface WorkerRow extends RowOf<"workers"> {
  transport: "rest" | "stream";
  /** By how much its clock was ahead of the server's when it registered, if that was too much. */
  clock_off_ms: number | null;
  /** The mark of its process (`holderOf`); null when it does not name one. */
  holder: string | null;
  /** Which build of its program it is; null when it does not say. */
  deployment: string | null;
}

export async function upsertWorker(session: Session, worker: WorkerRecord): Promise<void> {
  await session.run(sql`INSERT INTO workers (environment_id, id, hostname, function_ids, labels, sdk, runtime, transport,
      max_concurrent, active_jobs, registered_at, last_heartbeat_at, compensates, clock_off_ms, definition_hashes, holder, poll_end,
      deployment)
    VALUES (${worker.environmentId}, ${worker.id}, ${worker.hostname}, ${JSON.stringify(worker.functionIds)},
      ${JSON.stringify(worker.labels)}, ${worker.sdk}, ${worker.runtime}, ${worker.transport}, ${worker.maxConcurrent},
      ${worker.activeJobs}, ${worker.registeredAt}, ${worker.lastHeartbeatAt},
      ${worker.compensates ? 1 : 0}, ${worker.clockOffMs},
      ${worker.definitionHashes && JSON.stringify(worker.definitionHashes)}, ${worker.holder}, ${worker.pollEnd ? 1 : 0},
      ${worker.deployment})
    ON CONFLICT (environment_id, id) DO UPDATE SET hostname = excluded.hostname, function_ids = excluded.function_ids,
      labels = excluded.labels, sdk = excluded.sdk, runtime = excluded.runtime, transport = excluded.transport,
      max_concurrent = excluded.max_concurrent, registered_at = excluded.registered_at,
      last_heartbeat_at = excluded.last_heartbeat_at, compensates = excluded.compensates,
      clock_off_ms = excluded.clock_off_ms, definition_hashes = excluded.definition_hashes,
      holder = excluded.holder, poll_end = excluded.poll_end, deployment = excluded.deployment`);
}

export const getWorker = (store: Store, environmentId: string, id: string) =>
  read.one(store, sql`SELECT * FROM workers WHERE environment_id = ${environmentId} AND id = ${id}`);

export const listWorkers = (store: Store, environmentId: string) =>
  read.all(store, sql`SELECT * FROM workers WHERE environment_id = ${environmentId} ORDER BY id`);

/** Heartbeats of many workers at once; `activeJobs` null keeps the number of the last heartbeat. */
export async function recordHeartbeats(
  session: Session,
  heartbeats: readonly { environmentId: string; id: string; at: Instant; activeJobs: number | null }[],
): Promise<void> {
  await session.run(sql`UPDATE workers SET last_heartbeat_at = v.at,
      active_jobs = COALESCE(v.active_jobs, workers.active_jobs)
    FROM ${session.seams.rowsFrom("v", {
      ...columnsOf(heartbeats, { text: "environmentId id", bigint: "at activeJobs" }),
    })} WHERE workers.environment_id = v.environment_id AND workers.id = v.id`);
}

/** Workers of all environments with a heartbeat since then, counted up to `most`. */
export const countAlive = (store: Store, since: Instant, most: number): Promise<number> =>
  countOf(store, sql`FROM workers WHERE last_heartbeat_at >= ${since}`, most);

export const forgetSilent = (
  session: Session,
  before: Instant,
): Promise<{ environment_id: string; id: string }[]> =>
  session.all(sql`DELETE FROM workers WHERE last_heartbeat_at < ${before} RETURNING environment_id, id`);

/** Deletes the row of a worker that says goodbye, unless another process has its name by now. */
export const partFrom = (
  session: Session,
  { environmentId, id, holder }: { environmentId: string; id: string; holder: string | null },
): Promise<number> =>
  session.run(sql`DELETE FROM workers WHERE environment_id = ${environmentId} AND id = ${id}
    AND COALESCE(holder, '') = ${holder ?? ""}`);

/** Deletes the row of a worker whose stream has ended, unless the worker has registered again since. */
export async function forgetWorker(
  session: Session,
  { environmentId, id, registeredAt }: Pick<WorkerRecord, "environmentId" | "id" | "registeredAt">,
): Promise<number> {
  return session.run(sql`DELETE FROM workers WHERE environment_id = ${environmentId} AND id = ${id}
    AND transport = 'stream' AND registered_at = ${registeredAt}`);
}

const toWorker = (row: WorkerRow) => ({
  ...inCamelCase(row),
  functionIds: JSON.parse(row.function_ids) as string[],
  labels: JSON.parse(row.labels) as Record<string, string>,
  /** It understands jobs of runs that are compensating. */
  compensates: row.compensates === 1,
  /** By function, what tells the definition that it serves from others; null when it does not say. */
  definitionHashes:
    row.definition_hashes === null ? null : (JSON.parse(row.definition_hashes) as Record<string, string>),
  /** It says that it lives when a held poll of it breaks: one that ends is a sign of its death. */
  pollEnd: row.poll_end === 1,
});

const read = readAs(toWorker);
