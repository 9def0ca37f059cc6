import type { Instant } from "../../../../kit/clock.ts";
import { Fault, missing } from "../../../../kit/fault.ts";
import { pageSize } from "../../../../kit/page.ts";
import { countOf, sql } from "../../../../kit/sql.ts";
import type { Basics, Session, Store } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import type { QueueHint } from "../run.ts";
import { queueHintsOfRows, type WaitingRow } from "../waits/resolve-steps.ts";
import { signalCharsShown, signalsKeptMax } from "./limits.ts";
import { takeSignals } from "./take-signals.ts";

/** Locks: the execution. Undefined for a run that is over, or not of this environment. */
const lockSignalled = (
  session: Session,
  environmentId: string,
  runId: string,
): Promise<(WaitingRow & { ending: string | null }) | undefined> =>
  session.one(sql`SELECT run_id, environment_id, function_id, state, waiting_step_id, history_count, gather_ms, ending
    FROM executions WHERE run_id = ${runId} AND environment_id || '' = ${environmentId} ${session.seams.holdRow}`);

/** Undefined of a run that is not of this environment. */
const statusOf = async (
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
const sentBefore = (
  session: Session,
  runId: string,
  key: string,
): Promise<{ taken_at: Instant | null } | undefined> =>
  session.one(sql`SELECT taken_at FROM run_signals WHERE run_id = ${runId} AND idempotency_key = ${key}`);

const countKept = (reader: Pick<Session, "one">, runId: string): Promise<number> =>
  countOf(reader, sql`FROM run_signals WHERE run_id = ${runId} AND taken_at IS NULL`);

interface NewSignal {
  runId: string;
  environmentId: string;
  name: string;
  /** JSON text. */
  data: string;
  idempotencyKey: string | null;
  sentBy: string;
}

/** Answers its number; the caller holds the execution's lock. */
async function insertSignal(session: Session, signal: NewSignal, now: Instant): Promise<number> {
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
const signalsOf = (
  store: Store,
  { environmentId, runId, before }: { environmentId: string; runId: string; before: number | undefined },
  limit: number,
): Promise<SignalRow[]> =>
  store.all(sql`SELECT sequence, name, CASE WHEN length(data) <= ${signalCharsShown} THEN data END AS data,
      sent_by, sent_at, taken_at, taken_by
    FROM run_signals WHERE run_id = ${runId} AND environment_id || '' = ${environmentId}
      ${before === undefined ? sql.empty : sql`AND sequence < ${sql.bigint(before)}`}
    ORDER BY sequence DESC LIMIT ${limit + 1}`);

/** What is sent to runs by name, for steps that wait for it. */
export type SignalBox = ReturnType<typeof openSignals>;

export interface SignalsDeps extends Basics<"store" | "clock"> {
  /** Called after the commit, with the queues that got runs. */
  onQueued: (lanes: readonly QueueHint[]) => void;
}

/** A step that waited has the signal, or the next step that waits for its name gets it. */
export type SignalState = "taken" | "kept";

export interface SignalsPage {
  signals: SignalRow[];
  /** Of all signals of the run. */
  kept: number;
  hasMore: boolean;
}

export function openSignals({ store, clock, onQueued }: SignalsDeps) {
  return {
    /** A repeat with the key of an earlier call answers what became of that signal. */
    async send(signal: NewSignal): Promise<SignalState> {
      const { environmentId, runId, idempotencyKey } = signal;
      const sent = await store.write(async (session) => {
        const now = clock.now();
        const row = await lockSignalled(session, environmentId, runId);
        const status = row ? "active" : await statusOf(session, environmentId, runId);
        if (status === undefined) throw missing("run", runId);
        const before = idempotencyKey === null ? undefined : await sentBefore(session, runId, idempotencyKey);
        if (before) return { isTaken: before.taken_at !== null, lanes: [] };
        if (!row) throw takesNone(`is ${status}`);
        if (row.ending !== null) throw takesNone("is being undone");
        if ((await countKept(session, runId)) >= signalsKeptMax)
          throw new Fault(
            "resource_exhausted",
            `the run keeps ${signalsKeptMax} signals that no step has waited for, which is the most`,
            { code: "SIGNALS_FULL" },
          );
        const sequence = await insertSignal(session, signal, now);
        const taken = await takeSignals(session, new Map([[runId, row]]), now);
        return {
          isTaken: taken.some((one) => one.sequence === sequence),
          lanes: queueHintsOfRows(taken.map((one) => one.row)),
        };
      });
      if (sent.lanes.length > 0) onQueued(sent.lanes);
      return sent.isTaken ? "taken" : "kept";
    },

    /** Newest first. */
    async list(
      environmentId: string,
      { runId, limit, before }: { runId: string; limit?: number | undefined; before?: number | undefined },
    ): Promise<SignalsPage> {
      if ((await statusOf(store, environmentId, runId)) === undefined) throw missing("run", runId);
      const size = pageSize(limit);
      const found = await signalsOf(store, { environmentId, runId, before }, size);
      const kept = await countKept(store, runId);
      return { signals: found.slice(0, size), kept, hasMore: found.length > size };
    },
  };
}

const takesNone = (why: string): Fault =>
  new Fault("failed_precondition", `the run ${why} and takes no signal`);
