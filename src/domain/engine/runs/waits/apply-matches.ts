import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { QueueHint } from "../run.ts";
import { endRuns } from "../undo/end-runs.ts";
import {
  isHeld,
  lockWaiting,
  queueHintsOfRows,
  type Resolution,
  resolveSteps,
  type WaitingRow,
} from "./resolve-steps.ts";
import { eventJson, type MatchedWait, meetConditions, metBy } from "./wait-conditions.ts";
import type { WaitRow } from "./wait-rows.ts";

export interface Matches {
  environmentId: string;
  /** Moves the matcher's cursor; null when only a part of the events was compared with fresh waits. */
  cursor: { from: number; to: number; generation: number } | null;
  found: readonly MatchedWait[];
  compared: readonly Compared[];
}

/** Waits that were compared with the log up to `to`; they stay fresh when that was a part of the way. */
export interface Compared {
  waits: readonly WaitRow[];
  to: number;
  isFresh: boolean;
}

export interface Applied {
  lanes: QueueHint[];
  cancelled: string[];
}

/**
 * One transaction of a matcher: wakes and cancels runs, deletes their waits, moves the cursor. Undefined,
 * with nothing changed, when another node moved the cursor or joined fresh waits since the waits were read:
 * the cursor would otherwise pass events that those waits match. Runs that were woken, resumed or ended since
 * then stay as they are.
 *
 * Locks: the matcher's cursor (never waited for), then executions sorted by run, then their rows.
 */
export async function applyMatches(
  session: Session,
  matches: Matches,
  now: Instant,
): Promise<Applied | undefined> {
  const { environmentId, cursor, compared } = matches;
  if (cursor) {
    const held = await session.one<{
      position: number;
      generation: number;
    }>(sql`SELECT position, generation FROM matchers
      WHERE environment_id = ${environmentId} ${session.seams.skipLocked}`);
    if (held?.position !== cursor.from || held.generation !== cursor.generation) return undefined;
  }
  const applied = await applyMatched(session, matches.found, now);
  for (const group of compared) if (group.waits.length > 0) await moveOn(session, group);
  const joins = compared.some((group) => !group.isFresh && group.waits.length > 0);
  if (cursor && (cursor.to !== cursor.from || joins))
    await session.run(sql`UPDATE matchers SET position = ${cursor.to}, generation = generation + ${joins ? 1 : 0}
      WHERE environment_id = ${environmentId}`);
  return applied;
}

async function moveOn(session: Session, { waits, to, isFresh }: Compared): Promise<void> {
  await session.run(sql`UPDATE waits SET from_position = CASE WHEN from_position < ${to} THEN ${sql.bigint(to)}
      ELSE from_position END ${isFresh ? sql.empty : sql.raw(", fresh_at = NULL")}
    WHERE (run_id, kind, step_id, from_position, fresh_at) IN (
      SELECT v.run_id, v.kind, v.step_id, v.from_position, v.fresh_at FROM ${rowsOf(session, waits)})`);
}

async function applyMatched(session: Session, found: readonly MatchedWait[], now: Instant): Promise<Applied> {
  if (found.length === 0) return { lanes: [], cancelled: [] };
  const locked = await lockWaiting(
    session,
    found.map(({ wait }) => wait.run_id),
  );
  const waits = found.map(({ wait }) => wait);
  const places = await placesOf(session, waits);
  const same = found.filter((_, at) => places.has(at + 1));
  const isOfHeld = ({ wait: { kind, run_id } }: MatchedWait) => kind === "wait" && isHeld(locked.get(run_id));
  // A held run is not moved: its wait is compared again when the run is resumed.
  const held = same.filter(isOfHeld).map(({ wait }) => wait);
  if (held.length > 0)
    await session.run(sql`UPDATE waits SET fresh_at = NULL WHERE (run_id, kind, step_id) IN (
      SELECT v.run_id, v.kind, v.step_id FROM ${rowsOf(session, held)})`);
  const free = same.filter((one) => !isOfHeld(one));
  const there = free.filter(({ wait }) => wait.of_step === null);
  if (there.length > 0)
    await session.run(sql`DELETE FROM waits WHERE (run_id, kind, step_id) IN (
      SELECT v.run_id, v.kind, v.step_id FROM ${rowsOf(
        session,
        there.map(({ wait }) => wait),
      )}) ${session.seams.byKey("run_id", column.text(there.map(({ wait }) => wait.run_id)))}`);
  const texts = new Map<string, { ordinal: number; text: string }>();
  const woken: Resolution[] = [];
  const cancelled = new Map<string, WaitingRow>();
  for (const { wait, event } of there) {
    const row = locked.get(wait.run_id);
    if (!row) continue;
    if (wait.kind === "cancel") {
      cancelled.set(row.run_id, row);
      continue;
    }
    const known = texts.get(event.id) ?? { ordinal: texts.size + 1, text: eventJson(event) };
    texts.set(event.id, known);
    woken.push({
      row,
      stepId: wait.step_id,
      status: "completed",
      output: known.ordinal,
      error: null,
      seenPosition: event.position,
      detail: JSON.stringify({ step_id: wait.step_id, event_id: event.id }),
    });
  }
  const many = await meetConditions(
    session,
    free.filter(({ wait }) => wait.of_step !== null).map(metBy),
    locked,
    texts.size,
  );
  woken.push(...many.woken);
  await resolveSteps(session, woken, [...[...texts.values()].map((known) => known.text), ...many.texts], now);
  const undoing = await endRuns(
    session,
    [...cancelled.keys()].map((runId) => ({
      runId,
      status: "cancelled",
      error: null,
      cause: "cancel-on-event",
    })),
    now,
  );
  const ended = [...cancelled.keys()].filter((runId) => !undoing.runIds.has(runId));
  const queued = woken.map(({ row }) => row).filter((row) => !cancelled.has(row.run_id));
  return { lanes: [...queueHintsOfRows(queued), ...undoing.lanes], cancelled: ended };
}

const rowsOf = (session: Session, waits: readonly WaitRow[]) =>
  session.seams.rowsFrom("v", {
    ...columnsOf(waits, { text: "run_id kind step_id", bigint: "from_position" }),
    fresh_at: column.bigint(waits.map((w) => w.fresh_at ?? 0)),
  });

/**
 * Places, from 1, of the waits that are still as they were read; runs may have made others of the same name
 * since.
 */
async function placesOf(session: Session, waits: readonly WaitRow[]): Promise<Set<number>> {
  const rows = await session.all<{ ord: number }>(sql`SELECT v.ord FROM ${rowsOf(session, waits)}
    WHERE (SELECT 1 FROM waits w WHERE w.run_id = v.run_id AND w.kind = v.kind AND w.step_id = v.step_id
      AND w.from_position = v.from_position AND COALESCE(w.fresh_at, 0) = v.fresh_at LIMIT 1) IS NOT NULL`);
  return new Set(rows.map((row) => row.ord));
}
