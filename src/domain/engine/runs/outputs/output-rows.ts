import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { column, type Sql, sql } from "../../../../kit/sql.ts";
import type { Session, Store } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import type { Fence } from "../run.ts";
import { outputBytesRead, outputChunksRead, outputRowsRead } from "./limits.ts";

/** A write before its place is known. */
export interface OutputDraft extends Fence {
  environmentId: string;
  name: string;
  /** Null outside of steps: then it is the attempt, which the execution knows. */
  source: string | null;
}

/** Where a write of an execution stands whose fence holds. */
export interface WritePlace {
  ord: number;
  state: string;
  attempt: number;
  source: string;
  /** Next index of the output and its bytes so far; null before its first write. */
  next: number | null;
  total: number | null;
  /** How many chunks of this source are stored; null for none. */
  reached: number | null;
  /** Outputs that the run has, where this one is new; else 0. */
  names: number;
}

/** Locks: the executions, sorted by run. */
export async function lockPlaces(session: Session, drafts: readonly OutputDraft[]): Promise<WritePlace[]> {
  const { rowsFrom, byKey, holdRow } = session.seams;
  const runIds = column.text(drafts.map(({ runId }) => runId));
  const wanted = rowsFrom("i", {
    run_id: runIds,
    ...columnsOf(drafts, { text: "environmentId leaseHash name source", bigint: "executionSeq" }),
  });
  const held = sql`${wanted} JOIN executions e ON e.run_id = i.run_id AND e.environment_id || '' = i.environment_id
    AND e.execution_seq = i.execution_seq AND e.lease_hash = i.lease_hash ${byKey("e.run_id", runIds)}`;
  const source = sql`COALESCE(i.source, 'attempt ' || CAST(e.attempt AS TEXT))`;
  const ofOutput = sql`FROM run_outputs o WHERE o.run_id = i.run_id AND o.name = i.name`;
  const [, places] = await session.together([
    sql`SELECT e.run_id FROM ${held} ORDER BY e.run_id ${holdRow}`,
    sql`SELECT i.ord, e.state, e.attempt, ${source} AS source,
      (SELECT o.first + o.count ${ofOutput} ORDER BY o.first DESC LIMIT 1) AS next,
      (SELECT o.total ${ofOutput} ORDER BY o.first DESC LIMIT 1) AS total,
      (SELECT o.source_first + o.count ${ofOutput} AND o.source = ${source}
        ORDER BY o.source_first DESC LIMIT 1) AS reached,
      CASE WHEN EXISTS (SELECT 1 ${ofOutput}) THEN 0 ELSE (SELECT count(DISTINCT o.name) FROM run_outputs o
        WHERE o.run_id = i.run_id) END AS names
    FROM ${held}`,
  ]);
  return places as unknown as WritePlace[];
}

/** JSON of an output that counts, without what this step wrote: an empty one means outside of steps. */
export const countedBytes = async (
  session: Session,
  { runId, name }: { runId: string; name: string },
  without: string | undefined,
): Promise<number> =>
  (await session.one<{
    bytes: number;
  }>(sql`SELECT CAST(COALESCE(sum(octet_length(chunks)), 0) AS BIGINT) AS bytes
    FROM run_outputs WHERE run_id = ${runId} AND name = ${name} AND superseded_by IS NULL
      ${without === undefined ? sql.empty : sql`AND COALESCE(step_id, '') <> ${without}`}`))!.bytes;

export interface NewOutput extends RowOf<"run_outputs", "name, source, attempt, count, total"> {
  runId: string;
  environmentId: string;
  /** Index of its first chunk in the output, and among those of its source. */
  first: number;
  sourceFirst: number;
  /** Null outside of steps. */
  stepId: string | null;
  /** JSON of the list. */
  chunks: string;
}

/** What the same steps, or handlers outside of steps, wrote before is not part of the outputs any more. */
export async function supersede(session: Session, outputs: readonly NewOutput[]): Promise<void> {
  if (outputs.length === 0) return;
  const runIds = column.text(outputs.map(({ runId }) => runId));
  await session.run(sql`UPDATE run_outputs SET superseded_by = v.first FROM ${session.seams.rowsFrom("v", {
    run_id: runIds,
    ...columnsOf(outputs, { text: "name", bigint: "first" }),
    step_id: column.text(outputs.map(({ stepId }) => stepId ?? "")),
  })} WHERE run_outputs.run_id = v.run_id AND run_outputs.name = v.name
    AND COALESCE(run_outputs.step_id, '') = v.step_id AND superseded_by IS NULL
    ${session.seams.byKey("run_outputs.run_id", runIds)}`);
}

/** The last statement of its transaction. */
export const insertOutputs = (session: Session, outputs: readonly NewOutput[], now: Instant): Promise<void> =>
  session.last(sql`INSERT INTO run_outputs (run_id, name, first, environment_id, attempt, step_id, source, source_first,
      count, total, chunks, at)
    SELECT v.run_id, v.name, v.first, v.environment_id, v.attempt, v.step_id, v.source, v.source_first, v.count, v.total,
      v.chunks, ${sql.bigint(now)}
    FROM ${session.seams.rowsFrom("v", {
      ...columnsOf(outputs, {
        text: "runId name environmentId stepId source chunks",
        bigint: "first attempt sourceFirst count total",
      }),
    })}`);

export interface OutputRow extends RowOf<"run_outputs", "first, source_first, attempt, count, total"> {
  /** JSON of the list. */
  chunks: string;
  /** Index of the first chunk that took its place. */
  superseded_by: number | null;
}

/** A place behind a whole write, or before the first one. */
export interface OutputPlace {
  environmentId: string;
  runId: string;
  name: string;
  next: number;
  /** Bytes of the output up to there. */
  total: number;
}

/** One row for a place behind which nothing is written: its fields of an output are null. */
export type OutputRead = { ord: number; status: string | null } & (OutputRow | { first: null });

const rowFields = sql.raw("o.first, o.source_first, o.attempt, o.count, o.total, o.chunks, o.superseded_by");

/** What stands behind each place, in order, and the status of its run as of the same moment. */
export function readBehind(store: Store, places: readonly OutputPlace[]): Promise<OutputRead[]> {
  const behind = sql`o.run_id = i.run_id AND o.name = i.name AND o.first >= i.next AND o.first < i.next + ${outputChunksRead}
    AND (o.first = i.next OR o.total <= i.total + ${outputBytesRead})`;
  // Row by row, whatever the statistics say.
  const postgres: Sql = sql`LATERAL (SELECT ${rowFields} FROM run_outputs o WHERE ${behind} ORDER BY o.first
    LIMIT ${outputChunksRead}) o ON true`;
  return store.all(sql`SELECT i.ord, ${rowFields},
      (SELECT r.status FROM runs r WHERE r.id = i.run_id AND r.environment_id = i.environment_id) AS status
    FROM ${store.seams.rowsFrom("i", {
      ...columnsOf(places, { text: "environmentId runId name", bigint: "next total" }),
    })} LEFT JOIN ${{ postgres, libsql: sql`run_outputs o ON ${behind}` }}
    ORDER BY i.ord, o.first`);
}

/** In order, from the write that has the chunk `from`. */
export const rowsFrom = (
  store: Store,
  { runId, name }: { runId: string; name: string },
  from: number,
): Promise<OutputRow[]> =>
  store.all(sql`SELECT ${rowFields} FROM run_outputs o
    WHERE run_id = ${runId} AND name = ${name} AND first >= COALESCE((SELECT max(b.first) FROM run_outputs b
      WHERE b.run_id = ${runId} AND b.name = ${name} AND b.first <= ${sql.bigint(from)}), 0)
      AND first + count > ${sql.bigint(from)}
    ORDER BY first LIMIT ${outputRowsRead}`);

/** What the writes that begin at `tries` took the place of, in order. */
export const supersededBy = (
  store: Store,
  { runId, name }: { runId: string; name: string },
  tries: readonly number[],
): Promise<{ first: number; count: number; superseded_by: number }[]> =>
  store.all(sql`SELECT first, count, superseded_by FROM run_outputs
    WHERE run_id = ${runId} AND name = ${name} AND first < ${sql.bigint(tries.at(-1)!)}
      AND superseded_by ${store.seams.among(column.bigint(tries))} ORDER BY first`);

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
