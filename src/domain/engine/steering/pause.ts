import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Store } from "../../../store/store.ts";
import type { Runs } from "../runs/service.ts";
import { requireRun } from "./find.ts";
import * as rows from "./rows.ts";

export interface PauseDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  runs: Pick<Runs, "neverWakesAt">;
  /** Called after the commit with runs that changed their state; a hint that may be lost. */
  onMoved?: (runs: readonly { runId: string; environmentId: string }[]) => void;
}

/** A run that no worker holds is held at once; a leased one when its worker reports next. */
export async function pauseRun(
  { store, clock, runs, onMoved }: PauseDeps,
  environmentId: string,
  runId: string,
  actorId: string,
): Promise<"pause_requested" | "paused"> {
  const run = await requireRun(store, environmentId, runId);
  const paused = await store.write(async (session) => {
    const execution = await rows.lockExecution(session, environmentId, runId);
    if (!execution) {
      const { status } = await requireRun(session, environmentId, run.id);
      throw new Fault("failed_precondition", `the run is ${status} and cannot be paused`);
    }
    const at = clock.now();
    if (execution.state === "held") return "paused";
    if (execution.state === "resuming")
      throw new Fault("aborted", "the run is being resumed, try again", { headers: { "Retry-After": "1" } });
    if (execution.state === "leased") {
      await rows.requestPause(session, runId, at, actorId);
      return "pause_requested";
    }
    await rows.holdNow(session, execution, { at, by: actorId, never: runs.neverWakesAt });
    await rows.note(session, {
      runId,
      environmentId,
      type: "run.paused",
      at,
      detail: { from: execution.state, actor_id: actorId },
      sequence: execution.history_count + 1,
    });
    return "paused";
  });
  if (paused === "paused") onMoved?.([{ runId, environmentId }]);
  return paused;
}
