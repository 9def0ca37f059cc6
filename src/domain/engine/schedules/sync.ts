import type { Clock } from "../../../kit/clock.ts";
import { type Basics, isOfItem, type LeaderWrite } from "../../../store/store.ts";
import type { DefinitionsCache } from "../functions/definition.ts";
import * as rows from "./rows.ts";
import { type CronFrame, scheduleChanges } from "./rules.ts";

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
