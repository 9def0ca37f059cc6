import type { HidesEvent } from "../../../gate/things.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Store } from "../../../store/store.ts";
import type { Step } from "../runs/run.ts";
import type { Steering } from "../steering/service.ts";
import type { PendingItem, RepairKey } from "./rows.ts";
import * as rows from "./rows.ts";
import {
  errorText,
  outcomeOfFault,
  type RepairAction,
  type RepairOutcome,
  type RepairRequest,
} from "./rules.ts";

/** What the starter of a repair may do now. */
export interface StarterRights {
  /** The deny policy that keeps this run from the starter. */
  refusalOf(target: { runId: string; stepId?: string }): Promise<Fault | undefined>;
  /** Whether a deny policy keeps the event from the starter. */
  hidesEvent: HidesEvent;
}

export interface ActDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  /** Steers runs through this store. */
  steeringOn: (store: Store) => Pick<Steering, "cancel" | "resume" | "patch" | "inject">;
  stepsOf: (environmentId: string, runId: string) => Promise<Step[]>;
}

export interface Acting extends RepairKey {
  fence: number;
  action: RepairAction;
  request: RepairRequest;
  reason: string;
  rights: StarterRights;
}

/** `again`: nothing was done, and it may be tried later. */
export type Acted =
  | { outcome: Exclude<RepairOutcome, "pending" | "undone">; error?: string; wasDone?: boolean }
  | "again";

/** Another node, a pause or a stop took the repair away from this holder. */
export class LostRepair extends Error {}

/**
 * Acts on one run, exactly once: the run counts as done in the transaction that acts, under the fence of the
 * repair.
 */
export async function actOn(deps: ActDeps, repair: Acting, item: PendingItem): Promise<Acted> {
  const { action, rights } = repair;
  const runId = item.run_id;
  if (item.status === null) return { outcome: "over", error: "the run has expired" };
  const isMoot =
    action === "cancel" ? item.status !== "active" : action === "resume" && item.status !== "failed";
  if (isMoot) return { outcome: "over" };
  let step: Step | undefined;
  if (action === "patch" || action === "inject") {
    step = await stepOf(deps, repair, runId);
    if (!step) return { outcome: "failed", error: `step ${repair.request.step} not found` };
  }
  const refused = await rights.refusalOf({ runId, ...(step && { stepId: step.id }) });
  if (refused) return { outcome: "refused", error: errorText(refused.message) };
  const marked = markingStore(deps, repair, runId);
  try {
    await steer(deps.steeringOn(marked.store), repair, { runId, stepId: step?.id ?? "" });
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    const isAboutRun = step === undefined && error.thing !== "step";
    const outcome = outcomeOfFault(action, error, isAboutRun);
    if (marked.isMarked()) return { outcome: "failed", error: errorText(error.message), wasDone: true };
    return outcome ? { outcome, error: errorText(error.message) } : "again";
  }
  return { outcome: marked.isMarked() ? "done" : "over" };
}

async function stepOf(deps: ActDeps, repair: Acting, runId: string): Promise<Step | undefined> {
  const steps = await deps.stepsOf(repair.environment_id, runId);
  const { step: wanted } = repair.request;
  return (
    steps.find(({ id, stepId }) => id === wanted || stepId === wanted) ??
    steps.find(({ name }) => name === wanted)
  );
}

async function steer(
  steering: ReturnType<ActDeps["steeringOn"]>,
  { id, environment_id, action, request, reason }: Acting,
  { runId, stepId }: { runId: string; stepId: string },
): Promise<void> {
  const output = request.output ?? "";
  switch (action) {
    case "cancel":
      await steering.cancel(environment_id, runId, reason, id);
      return;
    case "resume":
    case "rerun":
      await steering.resume(environment_id, { runId, fromStep: request.step, skipSleep: undefined }, id);
      return;
    case "patch":
      await steering.patch(environment_id, { stepId, output, reason }, id);
      return;
    case "inject":
      await steering.inject(environment_id, { runId, stepId, output, reason }, id);
  }
}

/** The first transaction through this store also marks the run as done, or throws `LostRepair`. */
function markingStore({ store, clock }: ActDeps, repair: Acting, runId: string) {
  let isMarked = false;
  const marking: Store = {
    ...store,
    async write(work) {
      if (isMarked) return store.write(work);
      const result = await store.write(async (session) => {
        if ((await rows.takeItem(session, repair, runId, clock.now())) === 0) throw new LostRepair();
        return work(session);
      });
      isMarked = true;
      return result;
    },
  };
  return { store: marking, isMarked: () => isMarked };
}
