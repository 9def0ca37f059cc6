import type { Basics, Session } from "../../../store/store.ts";
import type { QueueHint, Run } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import type { ControlMessage, Controls } from "./controls.ts";
import { requireRun } from "./find.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export interface CancelDeps extends Basics<"store" | "log"> {
  controls: Pick<Controls, "notifyHere">;
  /** Writes the message to the outbox in this transaction; call what it answers after the commit. */
  enqueue: (session: Session, message: ControlMessage) => Promise<() => void>;
  runs: Pick<Runs, "get" | "endHeld" | "cancelled">;
  /** Called after the commit with queues that got work, or room under their limit. */
  onQueued: (lanes: readonly QueueHint[]) => void;
}

interface Cancelled {
  execution: rows.ExecutionRow;
  message: ControlMessage;
  /** Queues of the run that is undone first; undefined when it ended. */
  undoing: readonly QueueHint[] | undefined;
  /** Tells the outbox that the message is committed. */
  committed: () => void;
}

export async function cancelRun(
  deps: CancelDeps,
  environmentId: string,
  runId: string,
  { reason, actorId }: { reason: string; actorId: string | undefined },
): Promise<Run> {
  const { store, runs } = deps;
  const before = await requireRun(store, environmentId, runId);
  if (before.status === "cancelled") return runs.get(environmentId, runId);
  if (before.status !== "active") throw rules.notCancellable(before.status);
  const cancelled = await store.write(async (session): Promise<Cancelled | undefined> => {
    const execution = await rows.lockExecution(session, environmentId, runId);
    if (!execution) {
      const now = await requireRun(session, environmentId, runId);
      if (now.status === "cancelled") return undefined;
      throw rules.endedOtherwise(now.status);
    }
    // Its end is decided: what undoes it goes on.
    if (execution.ending !== null) return undefined;
    const cut = rules.cutReason(reason);
    const end = { runId, status: "cancelled" as const, error: null, cause: "user" };
    const undoing = await runs.endHeld(session, [
      { ...end, ...(cut !== "" && { reason: cut }), ...(actorId !== undefined && { actorId }) },
    ]);
    const message: ControlMessage = {
      messageId: `cancel-${runId}`,
      kind: "cancel",
      environmentId,
      runId,
      workerId: execution.worker_id,
      executionSeq: execution.execution_seq,
      reason: cut,
    };
    return {
      execution,
      message,
      undoing: undoing.runIds.has(runId) ? undoing.lanes : undefined,
      committed: await deps.enqueue(session, message),
    };
  });
  if (cancelled) announce(deps, cancelled);
  return runs.get(environmentId, runId);
}

function announce(deps: CancelDeps, { execution, message, undoing, committed }: Cancelled): void {
  const { environmentId, runId } = message;
  if (undoing) deps.onQueued(undoing);
  else deps.runs.cancelled(environmentId, [runId]);
  if (!undoing && execution.state === "leased" && execution.lane_id !== null) {
    const { function_id: functionId, lane_id: laneId } = execution;
    deps.onQueued([{ environmentId, functionId, laneId, freed: true, queued: false }]);
  }
  deps.log.info("run.cancelled", { runId, environmentId, reason: message.reason });
  deps.controls.notifyHere(message);
  committed();
}
