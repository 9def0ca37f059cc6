import { Fault, missing, tryAgain } from "../../../../kit/fault.ts";
import type { Store } from "../../../../store/store.ts";
import { lastFences } from "../last-fences.ts";
import type { Fence } from "../run.ts";

/** Why the fences of these reports do not hold: compares each with the last fence that its run stored. */
export async function whyRefused(
  store: Store,
  fences: readonly (Fence & { environmentId: string })[],
): Promise<Fault[]> {
  // The other reports of the flush are committed: a failed read here must not fail them.
  const known = await lastFences(store, fences).catch(() => undefined);
  return fences.map((fence) => {
    if (!known) return unread();
    const last = known.get(fence.runId);
    if (!last) return missing("run", fence.runId);
    const held = last.execution_seq === fence.executionSeq && last.lease_hash === fence.leaseHash;
    return held ? runNotRunning() : staleExecution();
  });
}

const unread = (): Fault => tryAgain("unavailable", "the run cannot be read now, send it again");

export const staleExecution = (): Fault =>
  new Fault("aborted", "this execution was recovered or superseded", {
    code: "STALE_EXECUTION",
  });

export const runNotRunning = (): Fault =>
  new Fault("aborted", "the run is not running", { code: "RUN_NOT_RUNNING" });
