import type { Instant } from "../../../kit/clock.ts";
import { type CronPlan, parseCron } from "../../../kit/cron/cron.ts";
import type { FunctionRecord } from "../functions/definition.ts";
import type { Schedule } from "./rows.ts";

/** A cron slot fires at most this late: longer than a new leader takes to begin. */
const cronLateMsMax = 10_000;
/** Missed slots that are counted one by one. */
const cronSlotsCountMax = 1_000;

/** Published after the commit, and may be lost: topic `system.cron.{functionId}.{leaf}`. */
export type CronFrame = { environmentId: string; functionId: string; at: Instant } & (
  | { leaf: "registered"; expression: string; nextRun: Instant; replaced: boolean }
  | { leaf: "removed"; cause: "triggers_changed" | "function_deleted" }
  | { leaf: "invalid"; expression: string; error: string }
  | ({ leaf: "missed" } & Missed)
);

export interface Missed {
  count: number;
  cause: MissedCause;
  /** False: there were at least so many. */
  verified: boolean;
  /** The first and the last missed slot. */
  windowStart: Instant;
  windowEnd: Instant;
}

export type MissedCause = "downtime" | "stall" | "fire_failed";

/** Key of a schedule in maps of this process. */
export const nameOf = ({ environmentId, functionId, place }: Schedule) =>
  `${environmentId}\n${functionId}\n${place}`;

export const planOf = (expression: string): CronPlan | { error: string } => {
  try {
    return parseCron(expression);
  } catch (error) {
    return { error: (error as Error).message };
  }
};

interface WantedSchedule {
  functionId: string;
  expression: string;
  eventName: string;
}

/** Equal triggers of one function are one schedule. */
function wantedOf(record: FunctionRecord): WantedSchedule[] {
  const { id, triggers } = record.definition;
  const wanted = new Map<string, WantedSchedule>();
  for (const { cron, event = "" } of triggers) {
    if (cron === undefined) continue;
    // A registered expression may be invalid; what cannot be stored as text is replaced.
    const expression = cron.toWellFormed().replaceAll("\0", "\uFFFD");
    wanted.set(`${event}\n${expression}`, { functionId: id, expression, eventName: event });
  }
  return [...wanted.values()];
}

export interface ScheduleChanges {
  gone: Schedule[];
  /** New ones, and those whose next slot changes because their function was paused or is active again. */
  put: Schedule[];
  frames: CronFrame[];
}

/**
 * What turns an environment's schedules into those that its functions ask for. A paused function's rest; an
 * archived one has none.
 */
export function scheduleChanges(
  environmentId: string,
  known: readonly Schedule[],
  functions: Iterable<FunctionRecord>,
  { now, self }: { now: Instant; self: string },
): ScheduleChanges {
  const changes: ScheduleChanges = { gone: [], put: [], frames: [] };
  const byFunction = Map.groupBy(known, ({ functionId }) => functionId);
  for (const record of functions) {
    const { id } = record.definition;
    const mine = byFunction.get(id) ?? [];
    byFunction.delete(id);
    const wanted = record.status === "archived" ? [] : wantedOf(record);
    const isWanted = (schedule: WantedSchedule) => (one: WantedSchedule) =>
      one.expression === schedule.expression && one.eventName === schedule.eventName;
    const left = mine.filter((schedule) => !wanted.some(isWanted(schedule)));
    changes.gone.push(...left);
    const frame = { environmentId, functionId: id, at: now };
    // Those that never had a slot were announced as invalid.
    let ended = left.filter(({ expression }) => "next" in planOf(expression)).length;
    let place = Math.max(-1, ...mine.map((schedule) => schedule.place));
    for (const one of wanted) {
      const plan = planOf(one.expression);
      const nextAt = "next" in plan && record.status === "active" ? (plan.next(now) ?? null) : null;
      const before = mine.find(isWanted(one));
      if (before) {
        if ((before.nextAt === null) !== (nextAt === null))
          changes.put.push({ ...before, nextAt, movedBy: self });
        continue;
      }
      changes.put.push({
        environmentId,
        ...one,
        place: ++place,
        nextAt,
        expectedCount: 0,
        firedCount: 0,
        missedCount: 0,
        movedBy: self,
        ...{ lastAt: null, lastEventId: null },
      });
      if ("error" in plan)
        changes.frames.push({ ...frame, leaf: "invalid", expression: one.expression, error: plan.error });
      else {
        const nextRun = nextAt ?? plan.next(now) ?? now;
        const replaced = ended > 0;
        if (replaced) ended--;
        changes.frames.push({ ...frame, leaf: "registered", expression: one.expression, nextRun, replaced });
      }
    }
    for (; ended > 0; ended--) changes.frames.push({ ...frame, leaf: "removed", cause: "triggers_changed" });
  }
  for (const [functionId, left] of byFunction) {
    changes.gone.push(...left);
    for (const { expression } of left)
      if ("next" in planOf(expression))
        changes.frames.push({
          environmentId,
          functionId,
          at: now,
          leaf: "removed",
          cause: "function_deleted",
        });
  }
  return changes;
}

export interface MissedSlots extends Omit<Missed, "cause"> {
  /** Those that are known one by one, in order. */
  slots: readonly Instant[];
}

/**
 * The missed slots that were really not fired; the others were fired by another leader and count as `fired`.
 */
export function withoutFired(
  missed: MissedSlots,
  unfired: ReadonlySet<Instant>,
): { missed: MissedSlots | undefined; fired: number } {
  const slots = missed.slots.filter((slot) => unfired.has(slot));
  const fired = missed.slots.length - slots.length;
  const [windowStart] = slots;
  if (windowStart === undefined) return { missed: undefined, fired };
  return {
    missed: { ...missed, slots, count: missed.count - fired, windowStart, windowEnd: slots.at(-1)! },
    fired,
  };
}

export interface DueSlots {
  /** The slot to fire; undefined when the last one is too long ago. */
  fires: Instant | undefined;
  missed: MissedSlots | undefined;
  nextAt: Instant | null;
}

/** Of the slots from `nextAt` until now the last one fires when it is recent; nothing is backfilled. */
export function dueSlots(plan: CronPlan, firstAt: Instant, now: Instant): DueSlots {
  const slots = [firstAt];
  let next = plan.next(firstAt);
  while (next !== undefined && next <= now && slots.length < cronSlotsCountMax) {
    slots.push(next);
    next = plan.next(next);
  }
  const verified = next === undefined || next > now;
  // More than are counted: the last one is looked for from its end.
  if (!verified) {
    let last = plan.next(now - cronLateMsMax - 1);
    while (last !== undefined && last <= now) {
      slots.push(last);
      last = plan.next(last);
    }
    next = last;
  }
  const last = slots.at(-1)!;
  const fires = now - last <= cronLateMsMax ? last : undefined;
  if (fires !== undefined) slots.pop();
  const missed =
    slots.length === 0
      ? undefined
      : { count: slots.length, verified, windowStart: slots[0]!, windowEnd: slots.at(-1)!, slots };
  return { fires, missed, nextAt: next ?? null };
}
