import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import { signalPlace } from "../../waits/rules.ts";
import { stepKey } from "../step-moves.ts";
import { dropStepWaits } from "../waits/drop-waits.ts";
import { isHeld, type Resolution, resolveSteps, type WaitingRow } from "../waits/resolve-steps.ts";
import { signalsTakenMax } from "./limits.ts";

/** A signal that a step took. */
export interface TakenSignal {
  row: WaitingRow;
  stepId: string;
  name: string;
  /** Its number in the run. */
  sequence: number;
}

interface SignalWait {
  run_id: string;
  step_id: string;
  name: string;
}

/**
 * Hands what was sent to these runs to the steps that wait for it: of a name, the oldest signal to the step
 * that asked first. The caller holds the executions' locks, so that each signal is taken once, and each step
 * takes one; held runs take none until they are resumed.
 */
export async function takeSignals(
  session: Session,
  locked: ReadonlyMap<string, WaitingRow>,
  now: Instant,
): Promise<TakenSignal[]> {
  const rows = [...locked.values()].filter((row) => !isHeld(row));
  if (rows.length === 0) return [];
  const { among, byKey, rowsFrom } = session.seams;
  const ids = column.text(rows.map((row) => row.run_id));
  const open = await session.all<SignalWait>(sql`SELECT w.run_id, w.of_step AS step_id, w.subject AS name
    FROM waits w JOIN steps s ON s.run_id = w.run_id AND s.step_id = w.of_step AND s.status = 'waiting'
    WHERE w.run_id ${among(ids)} AND w.kind = 'wait' AND w.place = ${signalPlace} AND w.met IS NULL
    ORDER BY w.run_id, s.sequence, w.of_step`);
  if (open.length === 0) return [];
  const counts = new Map<string, number>();
  const places = open.map(({ run_id, name }) => {
    const key = stepKey(run_id, name);
    const place = (counts.get(key) ?? 0) + 1;
    counts.set(key, place);
    return place;
  });
  const found = await session.all<{
    ord: number;
    sequence: number;
    data: string;
  }>(sql`SELECT v.ord, g.sequence, g.data
    FROM ${rowsFrom("v", {
      ...columnsOf(open, { text: "run_id name" }),
      place: column.bigint(places),
    })} JOIN (SELECT k.run_id, k.name, k.sequence,
          row_number() OVER (PARTITION BY k.run_id, k.name ORDER BY k.sequence) AS place
        FROM run_signals k WHERE k.run_id ${among(ids)} AND k.taken_at IS NULL) k
      ON k.run_id = v.run_id AND k.name = v.name AND k.place = v.place
    JOIN run_signals g ON g.run_id = k.run_id AND g.sequence = k.sequence
    ORDER BY g.run_id, g.sequence LIMIT ${signalsTakenMax}`);
  if (found.length === 0) return [];
  const taken = found.map(({ ord, sequence }): TakenSignal => {
    const { run_id, step_id: stepId, name } = open[ord - 1]!;
    return { row: locked.get(run_id)!, stepId, name, sequence };
  });
  const run_id = column.text(taken.map(({ row }) => row.run_id));
  const list = rowsFrom("v", {
    run_id,
    ...columnsOf(taken, { text: "stepId", bigint: "sequence" }),
  });
  // The step has the data from here on.
  await session.run(sql`UPDATE run_signals SET taken_at = ${sql.bigint(now)}, taken_by = v.step_id, data = NULL
    FROM ${list} WHERE run_signals.run_id = v.run_id AND run_signals.sequence = v.sequence
      ${byKey("run_signals.run_id", run_id)}`);
  await dropStepWaits(
    session,
    taken.map(({ row, stepId }) => ({ runId: row.run_id, stepId })),
  );
  await resolveSteps(
    session,
    taken.map(
      ({ row, stepId, name }, at): Resolution => ({
        ...{ row, stepId, status: "completed", output: at + 1, error: null, seenPosition: "kept" },
        detail: JSON.stringify({ step_id: stepId, signal: name }),
      }),
    ),
    found.map(({ data }) => data),
    now,
  );
  return taken;
}

/** The steps run again: what they had taken is kept for them. A person's patch was not what was sent. */
export const giveBackSignals = (
  session: Session,
  runId: string,
  stepIds: readonly string[],
): Promise<number> =>
  session.run(sql`UPDATE run_signals SET taken_at = NULL, taken_by = NULL,
      data = CASE WHEN s.patched_at IS NULL THEN s.output ELSE s.original_output END
    FROM steps s WHERE run_signals.run_id = ${runId} AND s.run_id = ${runId} AND s.step_id = run_signals.taken_by
      AND s.step_id ${session.seams.among(column.text(stepIds))}`);
