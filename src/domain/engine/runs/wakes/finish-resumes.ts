import type { Instant } from "../../../../kit/clock.ts";
import { ownKeyMark } from "../../../../kit/key-claims.ts";
import { column, sql } from "../../../../kit/sql.ts";
import { invokeKey, stepKey } from "../../../../kit/step-id.ts";
import { storedJson } from "../../../../kit/stored-json.ts";
import type { Session } from "../../../../store/store.ts";
import { giveBackSignals } from "../signals/take-signals.ts";
import { noteSteps, tookUntil } from "../step-moves.ts";
import { compareAgain } from "../waits/drop-waits.ts";
import { rankOfMet } from "../waits/rank-met.ts";

/** What a resume does to the run once its message is published. */
export interface ResumePlan {
  /** What the execution was: `held`, `sleeping`, …; `failed` when there was none. */
  from: string;
  /** Steps that are discarded and run again, by the worker's ids; absent in plans of older nodes. */
  againIds?: readonly string[];
  /** Compensations, and what the failure did, as above. */
  forgottenIds?: readonly string[];
  /** Steps that stay after one that runs again. */
  keptIds?: readonly string[];
  /** The sleep that the resume ends early. */
  sleptStepId: string | null;
  /** The execution waited for a retry: the resume starts that attempt. */
  nextAttempt: boolean;
  /** The step that ended the run, after its last try: it is tried again. Absent in plans of older nodes. */
  exhaustedStepId?: string | null;
  /** A sleep or a wait that continues where a person had held the run: with its own deadline. */
  goesOn?: { state: "sleeping" | "waiting"; stepId: string; until: Instant } | null;
}

interface Resumed {
  run_id: string;
  environment_id: string;
  function_id: string;
  history_count: number;
  plan: string | null;
}

/**
 * Sleeps and waits as it did when it was held. What was logged meanwhile is compared with the wait as with a
 * new one. False when there is no such wait any more: its handler asks for it again.
 */
async function goOn(
  session: Session,
  row: Resumed,
  { state, stepId, until }: NonNullable<ResumePlan["goesOn"]>,
  now: Instant,
): Promise<boolean> {
  // Of several waits each is asked for again: some may be over since, and children ended.
  const other = await session.one(sql`SELECT step_id FROM steps WHERE run_id = ${row.run_id}
    AND status IN ('waiting', 'sleeping') AND step_id <> ${stepId} LIMIT 1`);
  if (other) return false;
  if (state === "waiting") {
    if ((await compareAgain(session, row.run_id, { at: now, stepId })) === 0) return false;
  }
  const sequence = row.history_count + 1;
  await session.run(sql`UPDATE executions SET state = ${state}, wake_at = ${sql.bigint(until)}, lease_hash = NULL,
      worker_id = NULL, waiting_step_id = ${stepId}, held_from = NULL, held_wake_at = NULL, held_at = NULL, held_by = NULL,
      history_count = ${sequence}
    WHERE run_id = ${row.run_id}`);
  // History names the state that the run is in now: a reader, and `restoreExecution`, go by its last row.
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    VALUES (${row.run_id}, ${sequence}, ${row.environment_id}, ${state === "sleeping" ? "run.slept" : "run.waiting"},
      ${sql.bigint(now)}, ${JSON.stringify({ step_id: stepId, until, resumed: true })})`);
  return true;
}

/**
 * A step that runs again sends again: the child, the event and the message that it had sent keep their rows
 * and lose its key. What stays is marked, because its place in the order says nothing any more.
 */
async function forgetSteps(session: Session, row: Resumed, plan: ResumePlan): Promise<void> {
  const { againIds = [], forgottenIds = [], keptIds = [] } = plan;
  const gone = [...againIds, ...forgottenIds];
  const inRun = sql`run_id = ${row.run_id} AND step_id`;
  if (gone.length > 0) {
    // A text that does not begin with the run may be another caller's key.
    const isOwn = (id: string) => id.startsWith(`${row.run_id}:`);
    const keys = gone.flatMap((id) => [
      ...(isOwn(id) ? [stepKey(id)] : []),
      ownKeyMark + invokeKey(row.run_id, id),
    ]);
    await session.run(sql`DELETE FROM idempotency_keys
      WHERE environment_id = ${row.environment_id} AND key ${session.seams.among(column.text(keys))}`);
    await giveBackSignals(session, row.run_id, gone);
    await session.run(sql`DELETE FROM steps WHERE ${inRun} ${session.seams.among(column.text(gone))}`);
    // What its handler writes after them is new, although it comes the same way.
    await session.run(sql`UPDATE run_logs SET seen = 0 WHERE run_id = ${row.run_id}`);
  }
  if (keptIds.length > 0)
    await session.run(
      sql`UPDATE steps SET is_kept = 1 WHERE ${inRun} ${session.seams.among(column.text(keptIds))}`,
    );
}

/**
 * Second step of a resume: deletes discarded steps, ends a sleep, drops a wait (the handler asks for it
 * again) and queues the run, or returns it to the sleep or the wait it was held in. The caller holds the
 * locks of the executions, which are in state `resuming`. Answers the queues that got runs.
 */
export async function finishResumes(
  session: Session,
  runIds: readonly string[],
  now: Instant,
): Promise<{ environmentId: string; functionId: string }[]> {
  const { rowsFrom, byKey } = session.seams;
  const run_id = column.text(runIds);
  const rows =
    await session.all<Resumed>(sql`SELECT e.run_id, e.environment_id, e.function_id, e.history_count, r.plan
    FROM ${rowsFrom("v", { run_id })} JOIN executions e ON e.run_id = v.run_id ${byKey("e.run_id", run_id)}
      LEFT JOIN resumes r ON r.run_id = v.run_id
    WHERE e.state = 'resuming' ORDER BY e.run_id`);
  const queued: Resumed[] = [];
  for (const row of rows) {
    const plan = row.plan === null ? undefined : storedJson<ResumePlan>(row.plan);
    const at = sql.bigint(now);
    if (plan?.goesOn && (await goOn(session, row, plan.goesOn, now))) {
      await session.run(sql`UPDATE resumes SET plan = NULL WHERE run_id = ${row.run_id}`);
      continue;
    }
    queued.push(row);
    if (plan) await forgetSteps(session, row, plan);
    if (plan && plan.sleptStepId !== null)
      await session.run(sql`UPDATE steps SET status = 'completed', output = 'null', ended_at = ${at}, updated_at = ${at},
          duration_ms = ${tookUntil(now)},
          seen_position = (SELECT h.position FROM heads h WHERE h.environment_id = ${row.environment_id}),
          sequence = CASE WHEN (SELECT e.gather_ms FROM executions e WHERE e.run_id = ${row.run_id}) IS NULL
            THEN sequence ELSE ${sql.bigint(rankOfMet(now))} END
        WHERE run_id = ${row.run_id} AND step_id = ${plan.sleptStepId} AND status = 'sleeping'`);
    if (plan?.exhaustedStepId)
      await session.run(sql`UPDATE steps SET sleep_until = NULL
        WHERE run_id = ${row.run_id} AND step_id = ${plan.exhaustedStepId} AND status = 'failed'`);
    noteSteps(session, [{ ...row, step_id: plan?.sleptStepId ?? null }], now);
    await session.run(sql`DELETE FROM waits WHERE run_id = ${row.run_id} AND kind = 'wait'`);
    // While asleep it missed no event; at anything else it still is where it was.
    const seen =
      plan?.sleptStepId == null
        ? sql.raw("seen_position")
        : sql`CASE WHEN gather_ms IS NULL THEN COALESCE((SELECT h.position FROM heads h
            WHERE h.environment_id = ${row.environment_id}), seen_position) ELSE seen_position END`;
    await session.run(sql`UPDATE executions SET state = 'queued', wake_at = ${at}, lease_hash = NULL, worker_id = NULL,
        waiting_step_id = NULL, held_from = NULL, held_wake_at = NULL, held_at = NULL, held_by = NULL,
        attempt = attempt + ${plan?.nextAttempt === true ? 1 : 0}, seen_position = ${seen}
      WHERE run_id = ${row.run_id}`);
    await session.run(sql`UPDATE resumes SET plan = NULL WHERE run_id = ${row.run_id}`);
  }
  return queued.map((row) => ({ environmentId: row.environment_id, functionId: row.function_id }));
}
