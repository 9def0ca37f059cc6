import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { storedKey } from "../../../kit/key-claims.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";

/** A cron trigger of a function. */
export interface Schedule {
  environmentId: string;
  functionId: string;
  /** Tells the schedules of one function apart; never given twice while one is left. */
  place: number;
  expression: string;
  /** Empty: only its function is started. */
  eventName: string;
  /** The next slot; null while it rests, and for an expression that does not parse. */
  nextAt: Instant | null;
  /** The ledger: expected = fired + missed. */
  expectedCount: number;
  firedCount: number;
  missedCount: number;
  /** The process that led when `nextAt` was last moved. */
  movedBy: string;
  /** The last slot that was fired; its event is null where a leader that died had fired it. */
  lastAt: Instant | null;
  lastEventId: string | null;
}

const ownColumns = (s: string) =>
  sql.raw(`${s}.environment_id AS "environmentId", ${s}.function_id AS "functionId", ${s}.place, ${s}.expression,
  ${s}.event_name AS "eventName", ${s}.next_at AS "nextAt", ${s}.expected_count AS "expectedCount",
  ${s}.fired_count AS "firedCount", ${s}.missed_count AS "missedCount", ${s}.moved_by AS "movedBy", ${s}.last_at AS "lastAt",
  ${s}.last_event_id AS "lastEventId"`);

/** Environments after `after` whose functions changed since their schedules were made. */
export async function unscheduled(store: Store, after: string, limit: number): Promise<string[]> {
  const rows = await store.all<{ environment_id: string }>(sql`SELECT environment_id FROM heads
    WHERE schedules_version <> definitions_version AND environment_id > ${after}
    ORDER BY environment_id LIMIT ${limit}`);
  return rows.map((row) => row.environment_id);
}

export function schedulesOf(reader: Pick<Session, "all">, environmentId: string): Promise<Schedule[]> {
  return reader.all(sql`SELECT ${ownColumns("s")} FROM schedules s WHERE s.environment_id = ${environmentId}
    ORDER BY s.function_id, s.place`);
}

export const schedulesOfFunction = (
  reader: Pick<Session, "all">,
  environmentId: string,
  functionId: string,
): Promise<Schedule[]> =>
  reader.all(sql`SELECT ${ownColumns("s")} FROM schedules s
    WHERE s.environment_id = ${environmentId} AND s.function_id = ${functionId} ORDER BY s.place`);

export interface LastRun {
  id: string;
  event_id: string;
  function_id: string;
  status: string;
  state: string | null;
}

/** Of each event of a slot the run of its function, if it started one: one look along the index of events. */
export const lastRunsOf = (
  { all, seams }: Pick<Store, "all" | "seams">,
  environmentId: string,
  last: readonly { eventId: string; functionId: string }[],
): Promise<LastRun[]> => {
  const id = column.text(last.map(({ eventId }) => eventId));
  return all(sql`SELECT r.id, r.event_id, r.function_id, r.status, e.state
    FROM ${seams.rowsFrom("i", { id, function_id: column.text(last.map(({ functionId }) => functionId)) })}
      JOIN runs r ON r.event_id = i.id ${seams.byKey("r.event_id", id)} AND r.function_id = i.function_id
      LEFT JOIN executions e ON e.run_id = r.id
    WHERE r.environment_id = ${environmentId} ORDER BY r.created_at, r.id`);
};

export async function setScheduled(session: Session, environmentId: string, version: number): Promise<void> {
  await session.run(
    sql`UPDATE heads SET schedules_version = ${version} WHERE environment_id = ${environmentId}`,
  );
}

export async function deleteSchedules(session: Session, gone: readonly Schedule[]): Promise<void> {
  for (const { environmentId, functionId, place } of gone)
    await session.run(sql`DELETE FROM schedules WHERE environment_id = ${environmentId}
      AND function_id = ${functionId} AND place = ${place}`);
}

export async function putSchedules(session: Session, put: readonly Schedule[], now: Instant): Promise<void> {
  if (put.length === 0) return;
  await session.run(sql`INSERT INTO schedules (environment_id, function_id, place, expression, event_name, next_at,
      expected_count, fired_count, missed_count, moved_by, created_at, updated_at)
    SELECT v.environment_id, v.function_id, v.place, v.expression, v.event_name, v.next_at, 0, 0, 0, v.moved_by,
      ${sql.bigint(now)}, ${sql.bigint(now)}
    FROM ${session.seams.rowsFrom("v", {
      ...keyColumns(put),
      ...columnsOf(put, { text: "expression eventName movedBy", bigint: "nextAt" }),
    })} WHERE true
    ON CONFLICT (environment_id, function_id, place) DO UPDATE SET next_at = excluded.next_at,
      moved_by = excluded.moved_by, updated_at = excluded.updated_at`);
}

export interface DueSchedule extends Schedule {
  nextAt: Instant;
  /** Null when the environment is gone. */
  definitionsVersion: number | null;
  schedulesVersion: number | null;
  /** In a slice by turns: whose it is. */
  turn: number;
}

const head = sql`heads h WHERE h.environment_id = d.environment_id`;

const due = (now: Instant): DueRows => ({
  table: "schedules",
  columns: sql`${ownColumns("d")}, (SELECT h.definitions_version FROM ${head}) AS "definitionsVersion",
    (SELECT h.schedules_version FROM ${head}) AS "schedulesVersion"`,
  where: sql`d.next_at IS NOT NULL`,
  dueAt: "next_at",
  until: now,
});

export const dueSchedules = (store: Store, now: Instant, slice: Slice): Promise<DueSchedule[]> =>
  store.all(sliceOf(store.seams, due(now), slice));

export const environmentsDueNow = (store: Store, now: Instant): Promise<WorkScope[]> =>
  store.all(environmentsDue(due(now)));

export async function nextSlotAt(store: Store): Promise<Instant | undefined> {
  const row = await store.one<{ at: number | null }>(
    sql`SELECT min(next_at) AS at FROM schedules WHERE next_at IS NOT NULL`,
  );
  return row?.at ?? undefined;
}

export interface ScheduleMove {
  schedule: DueSchedule;
  nextAt: Instant | null;
  firedCount: number;
  missedCount: number;
  /** The slot that was fired; undefined for none. */
  last: { at: Instant; eventId: string | null } | undefined;
}

/**
 * Moves schedules to their next slot and counts fired and missed slots; skips those that another leader
 * moved. Answers how many moved.
 */
export function moveSchedules(
  session: Session,
  moved: readonly ScheduleMove[],
  { now, self }: { now: Instant; self: string },
): Promise<number> {
  return session.run(sql`UPDATE schedules SET next_at = v.next_at, moved_by = ${self}, updated_at = ${now},
      fired_count = fired_count + v.fired, missed_count = missed_count + v.missed,
      expected_count = expected_count + v.fired + v.missed,
      last_event_id = CASE WHEN v.last_at IS NULL THEN schedules.last_event_id ELSE v.last_event_id END,
      last_at = COALESCE(v.last_at, schedules.last_at)
    FROM ${session.seams.rowsFrom("v", {
      ...keyColumns(moved.map(({ schedule }) => schedule)),
      was_at: column.bigint(moved.map(({ schedule }) => schedule.nextAt)),
      next_at: column.bigint(moved.map(({ nextAt }) => nextAt)),
      fired: column.bigint(moved.map(({ firedCount }) => firedCount)),
      missed: column.bigint(moved.map(({ missedCount }) => missedCount)),
      last_at: column.bigint(moved.map(({ last }) => last?.at ?? null)),
      last_event_id: column.text(moved.map(({ last }) => last?.eventId ?? null)),
    })} WHERE schedules.environment_id = v.environment_id AND schedules.function_id = v.function_id
      AND schedules.place = v.place AND schedules.next_at + 0 = v.was_at`);
}

/** The idempotency key of a slot: a new leader or a retry that fires it again starts nothing twice. */
export const keyOfSlot = (
  { functionId, place }: Pick<Schedule, "functionId" | "place">,
  slot: Instant,
): string => `cron:${functionId}:${place}:${slot}`;

/**
 * Of these the slots that a node older than 0.37 took: it stored their keys as callers' are. A caller's event
 * under such a key, whose source is another, takes no slot.
 */
export async function slotsFiredBefore(
  { all, seams }: Pick<Session, "all" | "seams">,
  schedule: Pick<Schedule, "environmentId" | "functionId" | "place">,
  slots: readonly Instant[],
): Promise<Set<Instant>> {
  if (slots.length === 0) return new Set();
  const rows = await all<{ slot: Instant }>(sql`SELECT v.slot FROM ${seams.rowsFrom("v", {
    key: column.text(slots.map((slot) => keyOfSlot(schedule, slot))),
    slot: column.bigint(slots),
  })} JOIN idempotency_keys k ON k.environment_id = ${schedule.environmentId} AND k.key = v.key
    LEFT JOIN events e ON e.id = k.event_id AND e.environment_id = k.environment_id
    WHERE k.event_id = '' OR e.source = 'cron'`);
  return new Set(rows.map(({ slot }) => slot));
}

/**
 * Takes the keys of slots that no node has fired, so that no node fires them later; answers these slots. A
 * slot whose firing was committed but not yet announced has its key already. Locks: the keys, in their order.
 */
export async function takeMissedSlots(
  session: Session,
  schedule: Schedule,
  slots: readonly Instant[],
  now: Instant,
): Promise<Set<Instant>> {
  const { environmentId, functionId, eventName } = schedule;
  const before = await slotsFiredBefore(session, schedule, slots);
  const left = slots.filter((slot) => !before.has(slot));
  const bySlot = new Map(
    left.map((slot) => [storedKey({ idempotencyKey: keyOfSlot(schedule, slot), ownKey: true })!, slot]),
  );
  const invokes = eventName === "";
  const taken = await session.all<{ key: string }>(sql`INSERT INTO idempotency_keys
      (environment_id, key, kind, function_id, event_id, run_ids, created_at)
    SELECT ${environmentId}, v.key, ${invokes ? "invoke" : "emit"}, ${sql`CAST(${invokes ? functionId : null} AS TEXT)`},
      '', '[]', ${sql.bigint(now)}
    FROM ${session.seams.rowsFrom("v", { key: column.text([...bySlot.keys()].sort()) })} WHERE true
    ON CONFLICT (environment_id, key) DO NOTHING RETURNING key`);
  return new Set(taken.map(({ key }) => bySlot.get(key)!));
}

const keyColumns = (list: readonly Schedule[]) => ({
  ...columnsOf(list, { text: "environmentId functionId", bigint: "place" }),
});
