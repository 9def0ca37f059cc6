import type { Instant } from "../../../../kit/clock.ts";
import { countOf } from "../../../../kit/count-of.ts";
import { sql } from "../../../../kit/sql.ts";
import type { Session, Store } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/row.ts";
import type { WaitingRow } from "../waits/resolve-steps.ts";
import { signalCharsShown } from "./limits.ts";

/** Locks: the execution. Undefined for a run that is over, or not of this environment. */
export const lockSignalled = (
  session: Session,
  environmentId: string,
  runId: string,
): Promise<(WaitingRow & { ending: string | null }) | undefined> =>
  session.one(sql`SELECT run_id, environment_id, function_id, state, waiting_step_id, history_count, gather_ms, ending
    FROM executions WHERE run_id = ${runId} AND environment_id || '' = ${environmentId} ${session.seams.holdRow}`);

/** Undefined of a run that is not of this environment. */
export const statusOf = async (
  reader: Pick<Session, "one">,
  environmentId: string,
  runId: string,
): Promise<string | undefined> =>
  (
    await reader.one<{ status: string }>(
      sql`SELECT status FROM runs WHERE id = ${runId} AND environment_id = ${environmentId}`,
    )
  )?.status;

/** The signal that an earlier call with the key sent. */
export const sentBefore = (
  session: Session,
  runId: string,
  key: string,
): Promise<{ taken_at: Instant | null } | undefined> =>
  session.one(sql`SELECT taken_at FROM run_signals WHERE run_id = ${runId} AND idempotency_key = ${key}`);

export const countKept = (reader: Pick<Session, "one">, runId: string): Promise<number> =>
  countOf(reader, sql`FROM run_signals WHERE run_id = ${runId} AND taken_at IS NULL`);

export interface NewSignal {
  runId: string;
  environmentId: string;
  name: string;
  /** JSON text. */
  data: string;
  idempotencyKey: string | null;
  sentBy: string;
}

/** Answers its number; the caller holds the execution's lock. */
export async function insertSignal(session: Session, signal: NewSignal, now: Instant): Promise<number> {
  const { runId, environmentId, name, data, idempotencyKey, sentBy } = signal;
  const last = await session.one<{ sequence: number }>(
    sql`SELECT sequence FROM run_signals WHERE run_id = ${runId} ORDER BY sequence DESC LIMIT 1`,
  );
  const sequence = (last?.sequence ?? 0) + 1;
  await session.run(sql`INSERT INTO run_signals (run_id, sequence, environment_id, name, data, idempotency_key, sent_by, sent_at)
    VALUES (${runId}, ${sql.bigint(sequence)}, ${environmentId}, ${name}, ${data}, CAST(${idempotencyKey} AS TEXT), ${sentBy}, ${sql.bigint(now)})`);
  return sequence;
}

export interface SignalRow
  extends RowOf<"run_signals", "sequence, name, sent_by, sent_at, taken_at, taken_by"> {
  /** Null of one that is taken, or too long to be shown. */
  data: string | null;
}

/** Newest first, one more than `limit` where there are more. */
export const signalsOf = (
  store: Store,
  { environmentId, runId, before }: { environmentId: string; runId: string; before: number | undefined },
  limit: number,
): Promise<SignalRow[]> =>
  store.all(sql`SELECT sequence, name, CASE WHEN length(data) <= ${signalCharsShown} THEN data END AS data,
      sent_by, sent_at, taken_at, taken_by
    FROM run_signals WHERE run_id = ${runId} AND environment_id || '' = ${environmentId}
      ${before === undefined ? sql.empty : sql`AND sequence < ${sql.bigint(before)}`}
    ORDER BY sequence DESC LIMIT ${limit + 1}`);
