import type { Basics, LeaderWrite } from "../../../../store/store.ts";
import type { Healed } from "../../../record/integrity/service.ts";
import type { FunctionDefinition } from "../../functions/definition.ts";
import { laneOf } from "../../functions/rules.ts";
import {
  asleep,
  type BrokenRun,
  dropOrphans,
  lostRuns,
  orphans,
  overdue,
  stillOverdue,
} from "../invariants.ts";
import type { QueueHint } from "./due.ts";
import { lostRun, requeueAsleep, restoreExecution } from "./restore-execution.ts";

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
