import type { Instant } from "../../../../kit/clock.ts";
import { sql } from "../../../../kit/sql.ts";
import { unranked } from "../../../../kit/step-id.ts";
import type { Basics, LeaderWrite, Session, Store } from "../../../../store/store.ts";
import type { Healed } from "../../../record/integrity/service.ts";
import type { FunctionDefinition } from "../../functions/definition.ts";
import { laneOf } from "../../functions/rules.ts";
import { neverWakesAt } from "../execution/commit-reports.ts";
import {
  asleep,
  type BrokenRun,
  dropOrphans,
  lostRuns,
  orphans,
  overdue,
  stillOverdue,
  withoutWake,
} from "../invariants.ts";
import { compensatingMsMax } from "../limits.ts";
import type { RunEnding } from "../run.ts";
import { dropWaits } from "../waits/drop-waits.ts";
import type { QueueHint } from "./due.ts";

/** What of a run that lost its execution tells in which lane it counts. */
export interface LostRun {
  environment_id: string;
  function_id: string;
  function_version: number;
  /** JSON text of what started it; null when that has expired. */
  data: string | null;
}

const lostRun = (store: Store, runId: string): Promise<LostRun | undefined> =>
  store.one(sql`SELECT r.environment_id, r.function_id, r.function_version,
      (SELECT v.data FROM events v WHERE v.id = r.event_id AND v.environment_id = r.environment_id) AS data
    FROM runs r WHERE r.id = ${runId}`);

interface RunHistoryRow {
  sequence: number;
  type: string;
  at: Instant;
  detail: string;
}

interface RunHistoryDetail {
  attempt?: number;
  execution_seq?: number;
  step_id?: string;
  until?: Instant;
  event_id?: string;
  from?: string;
  actor_id?: string;
  ending?: RunEnding;
}

/** The state of a run, read from its history alone. */
interface RestoredState {
  state: "queued" | "sleeping" | "held";
  attempt: number;
  /** The highest fence in its history. */
  fence: number;
  startedAt: Instant | null;
  /** Of a sleep. */
  sleep: { stepId: string; until: Instant } | undefined;
  heldAt: Instant | null;
  heldBy: string | null;
  /** What it woke up by last: an event, or the time. */
  wokenBy: { eventId: string } | { at: Instant } | undefined;
  /** What it ends with, when it was compensating. */
  ending: RunEnding | undefined;
}

/** Pure: `history` in order. What people write over steps moves no run. */
export function restoredStateOf(history: readonly RunHistoryRow[]): RestoredState {
  const restored: RestoredState = {
    state: "queued",
    attempt: 1,
    fence: 0,
    startedAt: null,
    sleep: undefined,
    heldAt: null,
    heldBy: null,
    wokenBy: undefined,
    ending: undefined,
  };
  let last: { type: string; at: Instant; detail: RunHistoryDetail } | undefined;
  for (const { type, at, detail: text } of history) {
    const detail = JSON.parse(text) as RunHistoryDetail;
    if (type !== "run.lease_expired") restored.attempt = Math.max(restored.attempt, detail.attempt ?? 1);
    restored.fence = Math.max(restored.fence, detail.execution_seq ?? 0);
    if (type === "run.started") restored.startedAt ??= at;
    // A failed run that was resumed starts again.
    if (type === "run.resumed" && detail.from === "failed") restored.ending = undefined;
    restored.ending = detail.ending ?? restored.ending;
    if (type === "run.woken")
      restored.wokenBy = detail.event_id === undefined ? { at } : { eventId: detail.event_id };
    if (type !== "step.patched") last = { type, at, detail };
  }
  if (last?.type === "run.paused") {
    const { at, detail } = last;
    return { ...restored, state: "held", heldAt: at, heldBy: detail.actor_id ?? null };
  }
  const { step_id: stepId, until } = last?.detail ?? {};
  if (last?.type === "run.slept" && stepId !== undefined && until !== undefined)
    return { ...restored, state: "sleeping", sleep: { stepId, until } };
  // The previous attempt failed; the run is retried at once, because the delay was lost with the execution.
  if (last?.type === "run.retrying" && stepId === undefined)
    return { ...restored, attempt: restored.attempt + 1 };
  return restored;
}

/**
 * Inserts the execution that an active run lost. Its fence is higher than any before, so a report of the old
 * lease is stale. The execution is queued, asleep or held, as its history says; a handler that waited for an
 * event asks for it again. Answers the state, undefined when the run has an execution meanwhile. `laneId` is
 * its concurrency queue, null for none. Locks: the run's row; there is no execution to lock.
 */
async function restoreExecution(
  session: Session,
  runId: string,
  { now, laneId }: { now: Instant; laneId: string | null },
): Promise<RestoredState["state"] | undefined> {
  const run = await session.one(sql`SELECT id FROM runs WHERE id = ${runId} AND status = 'active'
    AND NOT EXISTS (SELECT 1 FROM executions WHERE run_id = ${runId})
    AND EXISTS (SELECT 1 FROM heads h WHERE h.environment_id = runs.environment_id) ORDER BY id ${session.seams.holdRow}`);
  if (!run) return undefined;
  const history = await session.all<RunHistoryRow>(
    sql`SELECT sequence, type, at, detail FROM run_history WHERE run_id = ${runId} ORDER BY sequence`,
  );
  const restored = restoredStateOf(history);
  const { state, attempt, fence, startedAt, sleep, heldAt, heldBy, wokenBy, ending } = restored;
  const sequence = (history.at(-1)?.sequence ?? 0) + 1;
  const wakeAt = state === "held" ? neverWakesAt : (sleep?.until ?? now);
  const positionOf = (id: ReturnType<typeof sql>) =>
    sql`(SELECT v.position FROM events v WHERE v.id = ${id} AND v.environment_id = r.environment_id)`;
  const seen =
    wokenBy === undefined
      ? positionOf(sql.raw("r.event_id"))
      : "eventId" in wokenBy
        ? positionOf(sql`${wokenBy.eventId}`)
        : sql`(SELECT v.position FROM events v WHERE v.environment_id = r.environment_id AND v.at <= ${wokenBy.at}
            ORDER BY v.at DESC, v.id DESC LIMIT 1)`;
  const inserted = await session.run(sql`INSERT INTO executions
      (run_id, environment_id, function_id, function_version, state, wake_at, execution_seq, attempt, max_attempts,
       started_at, step_count, history_count, lost_count, waiting_step_id, timeout_at, parent_run_id, lane_id,
       seen_position, watched_at, held_from, held_wake_at, held_at, held_by, ending)
    SELECT r.id, r.environment_id, r.function_id, r.function_version, ${state}, ${sql.bigint(wakeAt)},
      CASE WHEN r.execution_seq > ${sql.bigint(fence)} THEN r.execution_seq ELSE ${sql.bigint(fence)} END + 1,
      ${sql.bigint(attempt)}, r.max_attempts, ${instant(startedAt)},
      COALESCE((SELECT max(s.sequence) + 1 FROM steps s WHERE s.run_id = r.id AND s.sequence < ${sql.bigint(unranked)}), 0), ${sql.bigint(sequence)}, 0,
      ${text(sleep?.stepId)}, ${ending ? sql.bigint(now + compensatingMsMax) : sql.raw("r.timeout_at")}, r.parent_run_id, ${text(laneId)},
      COALESCE(${seen}, (SELECT h.position FROM heads h WHERE h.environment_id = r.environment_id)),
      (SELECT min(${sql.bigint(now)}) FROM waits w WHERE w.run_id = r.id AND w.kind = 'cancel'),
      ${text(heldAt === null ? null : "queued")}, ${instant(heldAt === null ? null : now)}, ${instant(heldAt)},
      ${text(heldBy)}, ${text(ending && JSON.stringify({ ...ending, interrupted: true }))}
    FROM runs r WHERE r.id = ${runId} ON CONFLICT (run_id) DO NOTHING`);
  if (inserted === 0) return undefined;
  await dropWaits(session, [runId]);
  await session.run(sql`UPDATE resumes SET plan = NULL WHERE run_id = ${runId}`);
  // History names the restored state: the next restore reads it from the last row.
  const [type, detail] =
    state === "held"
      ? ["run.paused", { restored: true, ...(heldBy !== null && { actor_id: heldBy }) }]
      : sleep
        ? ["run.slept", { step_id: sleep.stepId, until: sleep.until, restored: true }]
        : ["run.restored", {}];
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT r.id, ${sql.bigint(sequence)}, r.environment_id, ${type}, ${sql.bigint(now)}, ${JSON.stringify(detail)}
    FROM runs r WHERE r.id = ${runId}`);
  return state;
}

/**
 * A run whose wait or invocation is gone is queued: its handler asks for the same again. Answers where,
 * undefined when the run is well meanwhile. Locks: the execution.
 */
async function requeueAsleep(
  session: Session,
  runId: string,
  now: Instant,
): Promise<{ environmentId: string; functionId: string } | undefined> {
  await session.one(sql`SELECT run_id FROM executions WHERE run_id = ${runId} ${session.seams.holdRow}`);
  // A statement of its own, which sees what was committed while the lock was waited for.
  const row = await session.one<{ environment_id: string; function_id: string; history_count: number }>(
    sql`SELECT e.environment_id, e.function_id, e.history_count FROM executions e
      WHERE e.run_id = ${runId} AND ${withoutWake}`,
  );
  if (!row) return undefined;
  const { environment_id: environmentId, function_id: functionId } = row;
  await session.run(sql`UPDATE executions SET state = 'queued', wake_at = ${sql.bigint(now)}, lease_hash = NULL,
      worker_id = NULL, waiting_step_id = NULL, history_count = history_count + 1 WHERE run_id = ${runId}`);
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    VALUES (${runId}, ${row.history_count + 1}, ${environmentId}, 'run.restored', ${now}, '{}')`);
  return { environmentId, functionId };
}

const text = (value: string | null | undefined) => sql`CAST(${value ?? null} AS TEXT)`;
const instant = (value: Instant | null) => sql`CAST(${value} AS BIGINT)`;

export interface SweepDeps extends Basics<"store" | "clock"> {
  /** The tick of `runs.wake`: moves due executions. */
  wakeOnce: () => Promise<unknown>;
  /** Records, counts and logs what was repaired. */
  healed: (write: LeaderWrite, list: readonly Healed[]) => Promise<void>;
  onQueued: (lanes: readonly QueueHint[]) => void;
  definitionOf: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
}

/**
 * The tick of `runs.sweep`: moves overdue timers at once, and checks runs and executions one slice a tick, in
 * turn.
 */
export function openSweep({ store, clock, wakeOnce, healed, onQueued, definitionOf }: SweepDeps) {
  let runsAfter = "";
  let executionsAfter = "";

  const named = (name: string, list: readonly BrokenRun[]): Healed[] =>
    list.map(({ id, environment_id }) => ({ name, environmentId: environment_id, id }));

  /**
   * Answers the queue that got the run, null when it is restored asleep or held, undefined when nothing was
   * wrong.
   */
  async function restore(write: LeaderWrite, { id }: BrokenRun): Promise<QueueHint | null | undefined> {
    const run = await lostRun(store, id);
    if (!run) return undefined;
    const { environment_id: environmentId, function_id: functionId, function_version, data } = run;
    const definition = await definitionOf(environmentId, functionId, function_version);
    const laneId = data === null ? null : laneOf({ environmentId, definition }, JSON.parse(data));
    const now = clock.now();
    const state = await write((session) => restoreExecution(session, id, { now, laneId }));
    if (state === undefined) return undefined;
    return state === "queued" ? { environmentId, functionId } : null;
  }

  return async (write: LeaderWrite): Promise<void> => {
    const late = await overdue(store, clock.now());
    if (late.length > 0) {
      await wakeOnce();
      const ids = late.map((one) => one.id);
      const left = await stillOverdue(store, ids, clock.now());
      await healed(
        write,
        named(
          "timers.overdue",
          late.filter((one) => !left.has(one.id)),
        ),
      );
    }

    const lost = await lostRuns(store, runsAfter);
    runsAfter = lost.last ?? "";
    const restored: BrokenRun[] = [];
    const lanes: QueueHint[] = [];
    const troubles: unknown[] = [];
    for (const one of lost.found)
      try {
        const lane = await restore(write, one);
        if (lane === undefined) continue;
        restored.push(one);
        if (lane !== null) lanes.push(lane);
      } catch (error) {
        // What cannot be put right in one run keeps no other from it.
        troubles.push(error);
      }
    await healed(write, named("runs.without_execution", restored));
    if (lanes.length > 0) onQueued(lanes);

    const woken: BrokenRun[] = [];
    const wokenLanes: QueueHint[] = [];
    for (const one of await asleep(store, executionsAfter)) {
      const lane = await write((session) => requeueAsleep(session, one.id, clock.now()));
      if (!lane) continue;
      woken.push(one);
      wokenLanes.push(lane);
    }
    await healed(write, named("runs.without_wake", woken));
    if (wokenLanes.length > 0) onQueued(wokenLanes);

    const stray = await orphans(store, executionsAfter);
    executionsAfter = stray.last ?? "";
    const dropped: BrokenRun[] = [];
    for (const one of stray.found)
      if ((await write((session) => dropOrphans(session, [one.id]))) > 0) dropped.push(one);
    await healed(write, named("executions.without_run", dropped));
    if (troubles.length > 0) throw new AggregateError(troubles, "some runs stay without an execution");
  };
}
