import type { Clock } from "../../kit/clock.ts";
import type { Store } from "../../store/store.ts";
import type { Healed, LeaderWriter } from "../integrity/service.ts";
import {
  dropOrphans,
  type Found,
  lostRuns,
  orphans,
  overdue,
  restoreExecution,
  stillOverdue,
} from "./balance.ts";
import type { Lane } from "./wake.ts";

export interface SweepDeps {
  store: Store;
  clock: Clock;
  /** Moves all that is due. */
  wakeOnce: () => Promise<unknown>;
  /** Noted, counted, logged. */
  healed: (write: LeaderWriter, list: readonly Healed[]) => Promise<void>;
  onQueued: (lanes: readonly Lane[]) => void;
  laneOf: (environmentId: string, runId: string) => Promise<Lane>;
}

/** The tick of `runs.sweep`: overdue timers at once; all runs and executions one slice a tick, round and round. */
export function openSweep({ store, clock, wakeOnce, healed, onQueued, laneOf }: SweepDeps) {
  let runsAfter = "";
  let executionsAfter = "";

  const named = (name: string, list: readonly Found[]): Healed[] =>
    list.map(({ id, environment_id }) => ({ name, environmentId: environment_id, id }));

  return async (write: LeaderWriter): Promise<void> => {
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
    const restored: Found[] = [];
    for (const one of lost.found)
      if (await write((session) => restoreExecution(session, one.id, clock.now()))) restored.push(one);
    await healed(write, named("runs.without_execution", restored));
    if (restored.length > 0)
      onQueued(await Promise.all(restored.map((one) => laneOf(one.environment_id, one.id))));

    const stray = await orphans(store, executionsAfter);
    executionsAfter = stray.last ?? "";
    const dropped: Found[] = [];
    for (const one of stray.found)
      if ((await write((session) => dropOrphans(session, [one.id]))) > 0) dropped.push(one);
    await healed(write, named("executions.without_run", dropped));
  };
}
