import { scheduleSliceMax } from "../../kit/limits.ts";
import { isOfItem } from "../../store/store.ts";
import * as rows from "./rows.ts";
import { scheduleChanges } from "./rules.ts";
import type { SchedulesDeps, Write } from "./service.ts";

/** Makes the schedules of environments whose functions have changed into those that these ask for. */
export function openTakeUp({ store, clock, log, definitions, self, onFrame }: SchedulesDeps) {
  /** Of each environment once a tick: who changes its functions all the time holds up nobody. */
  async function takeUpChanges(write: Write): Promise<void> {
    for (let after = ""; ; ) {
      const changed = await rows.unscheduled(store, after, scheduleSliceMax);
      for (const environmentId of changed)
        await takeUp(write, environmentId).catch((error: unknown) => {
          // What is wrong with one environment's triggers must not stop everybody's.
          if (!isOfItem(error)) throw error;
          log.warn("cron.not_taken_up", { environmentId, error });
        });
      if (changed.length < scheduleSliceMax) return;
      after = changed.at(-1)!;
    }
  }

  async function takeUp(write: Write, environmentId: string): Promise<void> {
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

  return takeUpChanges;
}
