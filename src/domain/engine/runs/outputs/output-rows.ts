import type { Instant } from "../../../../kit/clock.ts";
import { sql } from "../../../../kit/sql.ts";
import type { Session, Store } from "../../../../store/store.ts";
import type { Fence } from "../run.ts";
import { outputRowsRead } from "./limits.ts";

/** Locks: the execution. Undefined where the fence does not hold. */
export const lockWriter = (
  session: Session,
  { environmentId, runId, executionSeq, leaseHash }: Fence & { environmentId: string },
): Promise<{ state: string; attempt: number } | undefined> =>
  session.one(sql`SELECT state, attempt FROM executions WHERE run_id = ${runId}
      AND environment_id || '' = ${environmentId} AND execution_seq = ${sql.bigint(executionSeq)}
      AND lease_hash = ${leaseHash} ${session.seams.holdRow}`);

/** Where an output has come: the next index, and the bytes so far. */
export const lastOf = (
  session: Session,
  runId: string,
  name: string,
): Promise<{ next: number; total: number } | undefined> =>
  session.one(sql`SELECT first + count AS next, total FROM run_outputs WHERE run_id = ${runId} AND name = ${name}
    ORDER BY first DESC LIMIT 1`);

/** How many chunks of this source are stored; undefined for none. */
export const reachedBy = async (
  session: Session,
  { runId, name, source }: Pick<NewOutput, "runId" | "name" | "source">,
): Promise<number | undefined> =>
  (
    await session.one<{ reached: number }>(sql`SELECT source_first + count AS reached FROM run_outputs
      WHERE run_id = ${runId} AND name = ${name} AND source = ${source} ORDER BY source_first DESC LIMIT 1`)
  )?.reached;

export const countNames = async (session: Session, runId: string): Promise<number> =>
  (await session.one<{ count: number }>(
    sql`SELECT count(*) AS count FROM (SELECT DISTINCT name FROM run_outputs WHERE run_id = ${runId}) n`,
  ))!.count;

/** What the same step, or the handler outside of steps, wrote before is not part of the output any more. */
export const supersede = (session: Session, { runId, name, stepId, first }: NewOutput): Promise<number> =>
  session.run(sql`UPDATE run_outputs SET superseded_by = ${sql.bigint(first)} WHERE run_id = ${runId} AND name = ${name}
    AND COALESCE(step_id, '') = ${stepId ?? ""} AND superseded_by IS NULL`);

export interface NewOutput {
  runId: string;
  environmentId: string;
  name: string;
  /** Index of its first chunk in the output, and among those of its source. */
  first: number;
  sourceFirst: number;
  source: string;
  /** Null outside of steps. */
  stepId: string | null;
  attempt: number;
  count: number;
  total: number;
  /** JSON of the list. */
  chunks: string;
}

export const insertOutput = (session: Session, output: NewOutput, now: Instant): Promise<number> =>
  session.run(sql`INSERT INTO run_outputs (run_id, name, first, environment_id, attempt, step_id, source, source_first,
      count, total, chunks, at)
    VALUES (${output.runId}, ${output.name}, ${sql.bigint(output.first)}, ${output.environmentId},
      ${sql.bigint(output.attempt)}, CAST(${output.stepId} AS TEXT), ${output.source}, ${sql.bigint(output.sourceFirst)},
      ${sql.bigint(output.count)}, ${sql.bigint(output.total)}, ${output.chunks}, ${sql.bigint(now)})`);

export interface OutputRow {
  first: number;
  source_first: number;
  attempt: number;
  count: number;
  /** JSON of the list. */
  chunks: string;
  /** Index of the first chunk that took its place. */
  superseded_by: number | null;
}

/** In order, from the write that has the chunk `from`. */
export const rowsFrom = (
  store: Store,
  { runId, name }: { runId: string; name: string },
  from: number,
): Promise<OutputRow[]> =>
  store.all(sql`SELECT first, source_first, attempt, count, chunks, superseded_by FROM run_outputs
    WHERE run_id = ${runId} AND name = ${name} AND first >= COALESCE((SELECT max(b.first) FROM run_outputs b
      WHERE b.run_id = ${runId} AND b.name = ${name} AND b.first <= ${sql.bigint(from)}), 0)
      AND first + count > ${sql.bigint(from)}
    ORDER BY first LIMIT ${outputRowsRead}`);

/** What the write that begins at `by` took the place of. */
export const supersededBy = (
  store: Store,
  { runId, name }: { runId: string; name: string },
  by: number,
): Promise<{ first: number; count: number }[]> =>
  store.all(sql`SELECT first, count FROM run_outputs WHERE run_id = ${runId} AND name = ${name}
    AND first < ${sql.bigint(by)} AND superseded_by = ${sql.bigint(by)} ORDER BY first`);

export const statusOf = async (
  store: Store,
  environmentId: string,
  runId: string,
): Promise<string | undefined> =>
  (
    await store.one<{ status: string }>(
      sql`SELECT status FROM runs WHERE id = ${runId} AND environment_id = ${environmentId}`,
    )
  )?.status;

export const outputsOf = (
  store: Store,
  environmentId: string,
  runId: string,
): Promise<{ name: string; chunks: number; bytes: number }[]> =>
  store.all(sql`SELECT name, max(first + count) AS chunks, max(total) AS bytes FROM run_outputs
    WHERE run_id = ${runId} AND environment_id || '' = ${environmentId} GROUP BY name ORDER BY name`);

/** The newest writes that count, newest first. */
export const tailOf = (store: Store, runId: string, name: string): Promise<{ chunks: string }[]> =>
  store.all(sql`SELECT chunks FROM run_outputs WHERE run_id = ${runId} AND name = ${name}
    AND superseded_by IS NULL ORDER BY first DESC LIMIT ${outputRowsRead}`);
