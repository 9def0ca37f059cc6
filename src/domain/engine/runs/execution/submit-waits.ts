import type { Clock } from "../../../../kit/clock.ts";
import type { Store } from "../../../../store/store.ts";
import type { RunObservers } from "../observer.ts";
import type { PendingStep } from "./execution-change.ts";
import { runNotRunning, staleExecution, whyRefused } from "./refusal.ts";
import { type RunReport, toExecutionChange, toRelease } from "./report.ts";
import { refusedWaits, triggersFor } from "./report-reads.ts";
import { yieldWaits } from "./yield-waits.ts";

export interface SubmitWaitsDeps {
  store: Store;
  clock: Pick<Clock, "now">;
  /** Called with the planned wake of an execution. */
  onWakePlanned: (at: number) => void;
  /** Called when runs of the environment began to wait for events. */
  onWaiting: (environmentId: string) => void;
  /** The same of runs that wait for anything else than events, too. */
  onWaitingStates: (environmentId: string) => void;
  /** Called when children are to be started, or parents wait for a run that ended. */
  onChildren: () => void;
  observers: Pick<RunObservers, "queued" | "reported" | "awaited">;
}

/** A run began to wait for an event or a state; null for a function that the commit did not say. */
export interface BegunWait {
  environmentId: string;
  functionId: string | null;
  awaited: Exclude<PendingStep["for"], { functionId: string }>;
}

/** Tells of a wait that was committed. */
export function noteWait(
  { onWaiting, onWaitingStates, observers }: SubmitWaitsDeps,
  { environmentId, functionId, awaited }: BegunWait,
): void {
  onWaiting(environmentId);
  const conditions = "conditions" in awaited ? awaited.conditions : [];
  if (conditions.some((one) => "state" in one)) onWaitingStates(environmentId);
  if (functionId === null) return;
  if (awaited.kind === "event") observers.awaited(environmentId, functionId, awaited.name);
  for (const one of conditions)
    if ("eventName" in one) observers.awaited(environmentId, functionId, one.eventName);
}

/** Takes reports of all that a handler waits for; `submit` takes what came with them. */
export function openSubmitWaits(
  deps: SubmitWaitsDeps,
  submit: (report: RunReport) => Promise<void>,
): (report: RunReport) => Promise<void> {
  const { store, clock, onWakePlanned, observers } = deps;
  /** All that a handler waits for, in a transaction of its own: what came with it is stored before. */
  return async function submitWaits({ waits = [], ...report }: RunReport): Promise<void> {
    const { steps, attributes, undo, logs } = report;
    if (steps.length > 0 || attributes || undo || logs) await submit(report);
    const now = clock.now();
    const own: RunReport = {
      ...{ runId: report.runId, environmentId: report.environmentId, outcome: report.outcome },
      ...{
        executionSeq: report.executionSeq,
        leaseHash: report.leaseHash,
        steps: [],
        stepOffset: undefined,
      },
      ...(report.takesFailedSteps && { takesFailedSteps: true }),
      ...(undo && { undo }),
    };
    const asked = waits.flatMap((wait) => (wait.asked ? { ...own, outcome: wait.asked } : []));
    const [triggers, refusals] = await Promise.all([triggersFor(store, asked), refusedWaits(store, asked)]);
    const planned = waits.map((wait) => ({
      ...wait,
      change: wait.asked
        ? toExecutionChange(
            { ...own, outcome: wait.asked },
            {
              decision: "ends",
              triggerData: triggers?.get(report.runId),
              refused: "conditions" in wait.asked ? refusals?.get(report.runId) : undefined,
            },
          )
        : undefined,
    }));
    // A wait that nothing could end fails the run, as if it were the only one.
    const failing = planned.find(({ change }) => change?.ends != null)?.asked;
    if (failing) return submit({ ...own, outcome: failing });
    const done = await store.write((session) => yieldWaits(session, own, planned, now));
    if (done.outcome !== "done") {
      if (done.outcome === "stale") throw staleExecution();
      if (done.outcome === "not_running") throw runNotRunning();
      const [why] = await whyRefused(store, [own]);
      throw why;
    }
    const { wakeAt, isQueued, functionId, claimedAt, laneId, begun } = done;
    const { environmentId } = report;
    for (const { pending } of begun) {
      const awaited = pending?.for;
      if (awaited && !("functionId" in awaited)) noteWait(deps, { environmentId, functionId, awaited });
    }
    deps.onChildren();
    onWakePlanned(wakeAt);
    const worked = { historyType: null, functionId, ...(claimedAt !== null && { claimedAt }) };
    observers.reported([{ ...toRelease(own, now), ...worked, next: isQueued ? "queued" : "waiting" }], now);
    if (isQueued || laneId !== null)
      observers.queued([
        {
          ...{ environmentId, functionId },
          ...(laneId !== null && { laneId, freed: true, queued: isQueued }),
        },
      ]);
  };
}
