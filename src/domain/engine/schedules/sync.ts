import type { Clock, Instant } from "../../../kit/clock.ts";
import { type Basics, isOfItem, type LeaderWrite } from "../../../store/store.ts";
import type { DefinitionsCache } from "../functions/definition.ts";
import * as rows from "./rows.ts";
import {
  type CronFrame,
  type MissedCause,
  type MissedSlots,
  nameOf,
  scheduleChanges,
  withoutFired,
} from "./rules.ts";

/** Environments whose triggers are taken up in one tick, and schedules that fire in one. */
export const scheduleSliceMax = 100;

export interface ScheduleSyncDeps extends Basics<"store" | "log"> {
  clock: Pick<Clock, "now">;
  definitions: Pick<DefinitionsCache, "current">;
  /** Id of this process: a slot that it should have fired itself was missed by a stall, not by downtime. */
  self: string;
  /** Called after the commit; a hint that may be lost. */
  onFrame: (frame: CronFrame) => void;
}

/** Stores the schedules that changed functions declare, and deletes those that they no longer declare. */
export function openScheduleSync({ store, clock, log, definitions, self, onFrame }: ScheduleSyncDeps) {
  /** Each environment once a tick: one whose functions change all the time must not hold up the others. */
  async function syncChanged(write: LeaderWrite): Promise<void> {
    for (let after = ""; ; ) {
      const changed = await rows.unscheduled(store, after, scheduleSliceMax);
      for (const environmentId of changed)
        await syncEnvironment(write, environmentId).catch((error: unknown) => {
          // Triggers of one environment that cannot be stored must not stop the others.
          if (!isOfItem(error)) throw error;
          log.warn("cron.not_taken_up", { environmentId, error });
        });
      if (changed.length < scheduleSliceMax) return;
      after = changed.at(-1)!;
    }
  }

  async function syncEnvironment(write: LeaderWrite, environmentId: string): Promise<void> {
    const known = await definitions.current(environmentId).catch(() => undefined);
    if (!known) return;
    const now = clock.now();
    const frames = await write(async (session) => {
      const before = await rows.schedulesOf(session, environmentId);
      const changes = scheduleChanges(environmentId, before, known.functions.values(), { now, self });
      await rows.deleteSchedules(session, changes.gone);
      await rows.putSchedules(session, changes.put, now);
      await rows.setScheduled(session, environmentId, known.version);
      return changes.frames;
    });
    for (const frame of frames) onFrame(frame);
  }

  return syncChanged;
}

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
