import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { QueueHint } from "../run.ts";
import { signalsTakenMax } from "../signals/limits.ts";
import { takeSignals } from "../signals/take-signals.ts";
import { isHeld, lockWaiting, queueHintsOfRows, resolveSteps } from "../waits/resolve-steps.ts";
import { type MetCondition, meetConditions } from "../waits/wait-conditions.ts";
import type { StateWait } from "./state-rows.ts";

export interface LookedAt {
  met: readonly MetCondition<StateWait>[];
  /** Waits for signals that their runs keep. */
  signalled: readonly StateWait[];
  /** Waits that are not met, and by when they are looked at without a change. */
  unmet: readonly { wait: StateWait; nextLookAt: Instant | null }[];
}

/**
 * One transaction of loop `runs.states`: wakes runs whose states were found, and plans the next looks. A
 * state that was found counts, whatever it is now. Runs woken, resumed or ended since stay as they are.
 *
 * Locks: executions sorted by run, then their rows.
 */
export async function applyStates(
  session: Session,
  { met, signalled, unmet }: LookedAt,
  now: Instant,
): Promise<QueueHint[]> {
  const later = [...unmet];
  const lanes: QueueHint[] = [];
  const locked = await lockWaiting(
    session,
    [...met.map(({ wait }) => wait), ...signalled].map(({ run_id }) => run_id),
  );
  if (met.length > 0) {
    const places = await placesOf(
      session,
      met.map(({ wait }) => wait),
    );
    const there = met.filter((_, at) => places.has(at + 1));
    const { woken, texts } = await meetConditions(session, there, locked, 0);
    await resolveSteps(session, woken, texts, now);
    lanes.push(...queueHintsOfRows(woken.map(({ row }) => row)));
    // A held run is not moved: its waits are looked at again when it is resumed.
    for (const { wait } of there) if (isHeld(locked.get(wait.run_id))) later.push({ wait, nextLookAt: null });
    const left = there.filter(({ wait }) => !locked.has(wait.run_id)).map(({ wait }) => wait);
    if (left.length > 0)
      await session.run(sql`DELETE FROM waits WHERE (run_id, kind, step_id) IN (
        SELECT v.run_id, 'wait', v.step_id FROM ${rowsOf(session, left)})`);
  }
  if (signalled.length > 0) {
    const taken = await takeSignals(session, locked, now);
    lanes.push(...queueHintsOfRows(taken.map(({ row }) => row)));
    // What waits yet: another took the signal, a person holds the run, or more came than is taken at once.
    const nextLookAt = taken.length === signalsTakenMax ? now : null;
    for (const wait of signalled) later.push({ wait, nextLookAt });
  }
  await planLooks(session, later, now);
  return lanes;
}

/** A wait that something else planned meanwhile is looked at once more. */
async function planLooks(session: Session, unmet: LookedAt["unmet"], now: Instant): Promise<void> {
  const moved = unmet.filter(({ wait, nextLookAt }) => wait.due_at !== nextLookAt);
  if (moved.length === 0) return;
  await session.run(sql`UPDATE waits SET due_at = CASE WHEN COALESCE(waits.due_at, -1) = COALESCE(v.due_at, -1)
      THEN v.next_at ELSE ${sql.bigint(now)} END
    FROM ${session.seams.rowsFrom("v", {
      ...columnsOf(
        moved.map(({ wait }) => wait),
        { text: "run_id step_id", bigint: "due_at" },
      ),
      next_at: column.bigint(moved.map(({ nextLookAt }) => nextLookAt)),
    })} WHERE waits.run_id = v.run_id AND waits.kind = 'wait' AND waits.step_id = v.step_id
      AND waits.place IS NOT NULL AND waits.met IS NULL`);
}

const rowsOf = (session: Session, waits: readonly StateWait[]) =>
  session.seams.rowsFrom("v", {
    ...columnsOf(waits, { text: "run_id step_id place subject test" }),
    bound: column.bigint(waits.map((wait) => wait.bound ?? -1)),
    wanted: column.text(waits.map((wait) => wait.wanted ?? "")),
  });

/** Places, from 1, of waits that are still as they were read; runs may have made others of the same name. */
async function placesOf(session: Session, waits: readonly StateWait[]): Promise<Set<number>> {
  const rows = await session.all<{ ord: number }>(sql`SELECT v.ord FROM ${rowsOf(session, waits)}
    WHERE (SELECT 1 FROM waits w WHERE w.run_id = v.run_id AND w.kind = 'wait' AND w.step_id = v.step_id
      AND w.place = v.place AND w.subject = v.subject AND w.test = v.test AND COALESCE(w.bound, -1) = v.bound
      AND COALESCE(w.wanted, '') = v.wanted AND w.met IS NULL LIMIT 1) IS NOT NULL`);
  return new Set(rows.map((row) => row.ord));
}
