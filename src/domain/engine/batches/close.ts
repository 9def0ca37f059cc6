import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Flush, SyncSession } from "../../../store/store.ts";
import { insertNewRuns, newRunColumns, newRunsInserted } from "../runs/create.ts";
import type { NewRun } from "../runs/run.ts";
import { batchBytesMax } from "./limits.ts";

/** What a function and key had open when read. Its batches begin only if it still begins with that event. */
export interface Close {
  batchId: string;
  environmentId: string;
  firstPosition: number;
  /** Where the events that still wait begin, and when the first of them was logged, if there is one yet. */
  next: { position: number; at: Instant };
  /** Events that no longer wait, and their bytes. */
  count: number;
  bytes: number;
  /** Events that still wait are not looked at before this time. */
  notBefore: Instant;
  /** Empty for what is dropped: its function is deleted or archived. */
  runs: readonly BatchRun[];
  isDropped: boolean;
}

export interface BatchRun {
  run: NewRun;
  from: number;
  to: number;
}

export interface CloseInput {
  now: Instant;
  closes: readonly Close[];
}

/**
 * Gives events to runs in one transaction. What is locked (an event joins it, or another node closes it), or
 * begins with another event by now, is skipped. Positions only grow, so that an event is never given twice.
 * Locks: batches, sorted, never waited for.
 */
export const closeFlush: Flush<CloseInput, { ord: number }> = {
  name: "batches.close",

  postgres({ closes, now }, seams) {
    const runs = closes.flatMap((close) => close.runs.map(({ run }) => run));
    const parts = sql.ctes(
      {
        "held AS MATERIALIZED": sql`SELECT i.*, i.is_dropped = 1 OR d.count = i.taken AS is_over
          FROM (SELECT * FROM ${seams.rowsFrom("f", closeColumns(closes))} ORDER BY id) i CROSS JOIN LATERAL (
            SELECT d.count FROM batches d WHERE d.id = i.id AND d.first_position + 0 = i.first_position
            FOR UPDATE SKIP LOCKED) d`,
      },
      runs.length > 0 && {
        "run AS MATERIALIZED": sql`SELECT r.* FROM ${seams.rowsFrom("r", runColumns(closes))}
          JOIN held ON held.id = r.batch_id ORDER BY r.id`,
        ...newRunsInserted(seams, runs, now),
        "place AS MATERIALIZED": sql.raw(`SELECT n.id AS run_id, x.ctid AS at FROM run n CROSS JOIN LATERAL (
          SELECT b.ctid FROM batch_events b WHERE b.environment_id = n.environment_id AND b.batch_id = n.batch_id
            AND b.position >= n.from_position AND b.position <= n.position ORDER BY b.position) x`),
        "given AS": sql.raw(`UPDATE batch_events b SET run_id = p.run_id FROM place p
          WHERE b.ctid = p.at AND b.ctid = ANY (ARRAY(SELECT at FROM place))`),
      },
      closes.some(({ isDropped }) => isDropped) && {
        "dropped AS": sql.raw(`DELETE FROM batch_events WHERE ctid = ANY (ARRAY(
          SELECT x.ctid FROM held h CROSS JOIN LATERAL (
            SELECT b.ctid FROM batch_events b WHERE h.is_dropped = 1 AND b.environment_id = h.environment_id
              AND b.batch_id = h.id AND b.run_id IS NULL ORDER BY b.position) x))`),
      },
      {
        "over AS": sql.raw("DELETE FROM batches WHERE id = ANY (ARRAY(SELECT id FROM held WHERE is_over))"),
        "moved AS": sql`UPDATE batches d SET count = d.count - h.taken, bytes = d.bytes - h.taken_bytes,
          first_position = h.next_position, closes_at = GREATEST(h.not_before, CASE
            WHEN d.count - h.taken >= d.size OR d.bytes - h.taken_bytes >= ${batchBytesMax} THEN ${now}::bigint
            ELSE h.next_at + d.timeout_ms END)
        FROM held h WHERE d.id || '' = h.id AND d.id = ANY (ARRAY(SELECT id FROM held WHERE NOT is_over))`,
      },
    );
    return sql`WITH ${parts} SELECT ord FROM held`;
  },

  libsql(session, { closes, now }) {
    const held = closes.flatMap((close, at) => {
      const open = openSync(session, close);
      return open === undefined ? [] : { close, open, ord: at + 1 };
    });
    const own = held.map(({ close }) => close);
    const runs = own.flatMap((close) => close.runs.map(({ run }) => run));
    if (runs.length > 0) insertNewRuns(session, session.seams.rowsFrom("n", runColumns(own)), runs, now);
    for (const { close, open } of held) closeSync(session, close, { open, now });
    return held.map(({ ord }) => ({ ord }));
  },
};

/** How many events are open; undefined when others are by now. */
const openSync = (session: SyncSession, { batchId, firstPosition }: Close): number | undefined =>
  session.one<{ count: number }>(
    sql`SELECT count FROM batches WHERE id = ${batchId} AND first_position = ${firstPosition}`,
  )?.count;

function closeSync(session: SyncSession, close: Close, { open, now }: { open: number; now: Instant }): void {
  const { batchId, environmentId, next, count, bytes, notBefore, runs, isDropped } = close;
  for (const { run, from, to } of runs)
    session.run(sql`UPDATE batch_events SET run_id = ${run.id} WHERE environment_id = ${environmentId}
      AND batch_id = ${batchId} AND position >= ${from} AND position <= ${to}`);
  if (isDropped)
    session.run(sql`DELETE FROM batch_events WHERE environment_id = ${environmentId} AND batch_id = ${batchId}
      AND run_id IS NULL`);
  if (isDropped || open === count) session.run(sql`DELETE FROM batches WHERE id = ${batchId}`);
  else
    session.run(sql`UPDATE batches SET count = count - ${count}, bytes = bytes - ${bytes},
        first_position = ${next.position}, closes_at = MAX(${notBefore}, CASE
          WHEN count - ${count} >= size OR bytes - ${bytes} >= ${batchBytesMax} THEN ${now}
          ELSE ${next.at} + timeout_ms END)
      WHERE id = ${batchId}`);
}

/** A run stands where its last event does: later events resolve its waits. */
const runColumns = (closes: readonly Close[]) => {
  const runs = closes.flatMap(({ batchId, runs: own }) => own.map((one) => ({ ...one, batchId })));
  return {
    ...newRunColumns(runs.map(({ run }) => run)),
    position: column.bigint(runs.map(({ to }) => to)),
    from_position: column.bigint(runs.map(({ from }) => from)),
    batch_id: column.text(runs.map(({ batchId }) => batchId)),
  };
};

const closeColumns = (closes: readonly Close[]) => ({
  ...columnsOf(closes, { text: "environmentId", bigint: "firstPosition notBefore" }),
  id: column.text(closes.map((one) => one.batchId)),
  next_position: column.bigint(closes.map(({ next }) => next.position)),
  next_at: column.bigint(closes.map(({ next }) => next.at)),
  taken: column.bigint(closes.map((one) => one.count)),
  taken_bytes: column.bigint(closes.map((one) => one.bytes)),
  is_dropped: column.bigint(closes.map((one) => (one.isDropped ? 1 : 0))),
});
