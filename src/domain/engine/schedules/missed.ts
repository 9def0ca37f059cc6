import type { Instant } from "../../../kit/clock.ts";
import type { LeaderWrite } from "../../../store/store.ts";
import * as rows from "./rows.ts";
import { type MissedCause, type MissedSlots, nameOf, withoutFired } from "./rules.ts";
import type { ScheduleSyncDeps } from "./sync.ts";

/** Missed slots that one transaction records. */
const missedAtOnce = 1_000;

export type MissedMove = rows.ScheduleMove & { missed: MissedSlots };

interface MissedDeps extends Pick<ScheduleSyncDeps, "self" | "onFrame"> {
  now: Instant;
  hasFailed: (schedule: rows.Schedule) => boolean;
}

/** Moves schedules past the slots that they missed, and announces those that no node fired after all. */
export async function recordMissed(
  write: LeaderWrite,
  moves: readonly MissedMove[],
  { now, self, onFrame, hasFailed }: MissedDeps,
): Promise<void> {
  const causeOf = (schedule: rows.DueSchedule): MissedCause => {
    if (hasFailed(schedule)) return "fire_failed";
    return schedule.movedBy === self ? "stall" : "downtime";
  };
  // Sorted, so that two leaders at once lock schedules in the same order.
  const sorted = moves.toSorted((a, b) => (nameOf(a.schedule) < nameOf(b.schedule) ? -1 : 1));
  for (const some of slices(sorted)) {
    const missedSchedules = await write(async (session) => {
      const left: { schedule: rows.DueSchedule; missed: MissedSlots }[] = [];
      for (const { schedule, nextAt, firedCount, missed, last } of some) {
        const unfired = await rows.takeMissedSlots(session, schedule, missed.slots, now);
        const { missed: over, fired } = withoutFired(missed, unfired);
        const counts = { firedCount: firedCount + fired, missedCount: over?.count ?? 0 };
        const count = await rows.moveSchedules(session, [{ schedule, nextAt, last, ...counts }], {
          now,
          self,
        });
        if (count > 0 && over) left.push({ schedule, missed: over });
      }
      return left;
    });
    for (const { schedule, missed } of missedSchedules) {
      const { environmentId, functionId } = schedule;
      const { slots: _, ...window } = missed;
      onFrame({ environmentId, functionId, at: now, leaf: "missed", ...window, cause: causeOf(schedule) });
    }
  }
}

/** Cuts the list after `missedAtOnce` slots; a schedule with more is a slice of its own. */
function slices(moves: readonly MissedMove[]): MissedMove[][] {
  const all: MissedMove[][] = [];
  let slots = missedAtOnce;
  for (const move of moves) {
    if (slots >= missedAtOnce) {
      all.push([]);
      slots = 0;
    }
    all.at(-1)!.push(move);
    slots += move.missed.count;
  }
  return all;
}
