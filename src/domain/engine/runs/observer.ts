import type { Instant } from "../../../kit/clock.ts";
import { timeOfId } from "../../../kit/ids.ts";
import { type Counter, longSecondsBuckets, type Metrics } from "../../../kit/metrics.ts";
import type { ClaimedRow } from "./execution/claim.ts";
import type { ExecutionChange } from "./execution/execution-change.ts";
import type { NewRun, QueueHint, TerminalStatus } from "./run.ts";

/** A run that is over, and how it ended. */
export interface EndedRun {
  runId: string;
  environmentId: string;
  ends: TerminalStatus;
  /** Where what ended it knows it. */
  functionId?: string;
}

/** What observers of runs at this node get, after the commit that changed the runs. */
export interface RunObserver {
  /** Queues that got work, or room. */
  queued(queues: readonly QueueHint[]): void;
  created(runs: readonly NewRun[], at: Instant): void;
  claimed(runs: readonly ClaimedRow[]): void;
  /** All changes of a flush of reports. */
  reported(changes: readonly ExecutionChange[], now: Instant): void;
  /** The same, when not all of them are ends. */
  moved(changes: readonly ExecutionChange[]): void;
  ended(runs: readonly EndedRun[], now: Instant): void;
  /** A run of the function began to wait for the event. */
  awaited(environmentId: string, functionId: string, eventName: string): void;
  /** A worker's lease ended without a report. */
  silent(worker: { environmentId: string; workerId: string }): void;
}

/** Notifies all observers. It is made before the runs; a part adds itself as an observer once it is open. */
export class RunObservers implements RunObserver {
  readonly #all: Partial<RunObserver>[] = [];

  add(observer: Partial<RunObserver>): void {
    this.#all.push(observer);
  }

  readonly queued: RunObserver["queued"] = (queues) => {
    for (const one of this.#all) one.queued?.(queues);
  };

  readonly created: RunObserver["created"] = (runs, at) => {
    for (const one of this.#all) one.created?.(runs, at);
  };

  readonly claimed: RunObserver["claimed"] = (runs) => {
    for (const one of this.#all) one.claimed?.(runs);
  };

  /** Reports ends and moves, too. */
  readonly reported: RunObserver["reported"] = (changes, now) => {
    const over = changes.filter((change): change is ExecutionChange & EndedRun => change.ends !== null);
    this.ended(over, now);
    if (over.length < changes.length) this.moved(changes);
    for (const one of this.#all) one.reported?.(changes, now);
  };

  readonly moved: RunObserver["moved"] = (changes) => {
    for (const one of this.#all) one.moved?.(changes);
  };

  readonly ended: RunObserver["ended"] = (runs, now) => {
    if (runs.length > 0) for (const one of this.#all) one.ended?.(runs, now);
  };

  readonly awaited: RunObserver["awaited"] = (environmentId, functionId, eventName) => {
    for (const one of this.#all) one.awaited?.(environmentId, functionId, eventName);
  };

  readonly silent: RunObserver["silent"] = (worker) => {
    for (const one of this.#all) one.silent?.(worker);
  };
}

/** Metrics of ended runs and steps. */
export function openTally(metrics: Metrics): Pick<RunObserver, "reported" | "ended"> | undefined {
  if (!metrics.on) return undefined;
  const ends = metrics.counter({
    name: "svc_runs_total",
    help: "Runs that ended on this node, by how.",
    labels: ["status"],
  });
  const endsBy: Record<TerminalStatus, Counter> = {
    completed: ends("completed"),
    failed: ends("failed"),
    cancelled: ends("cancelled"),
  };
  const runSeconds = metrics.histogram({
    name: "svc_run_duration_seconds",
    help: "From a run's creation to its end.",
    buckets: longSecondsBuckets,
  })();
  const stepSeconds = metrics.histogram({
    name: "svc_step_duration_seconds",
    help: "How long steps took, as their workers say.",
    buckets: longSecondsBuckets,
  })();

  return {
    ended(runs, now) {
      for (const { runId, ends: status } of runs) {
        endsBy[status].add(1);
        // The id holds the time of creation: no row must be read for it.
        const createdAt = timeOfId(runId);
        if (createdAt !== undefined) runSeconds.observe(Math.max(0, now - createdAt) / 1000);
      }
    },
    reported(changes) {
      for (const { steps } of changes)
        for (const { durationMs } of steps) if (durationMs !== null) stepSeconds.observe(durationMs / 1000);
    },
  };
}
