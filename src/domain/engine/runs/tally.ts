import type { Instant } from "../../../kit/clock.ts";
import { timeOfId } from "../../../kit/ids.ts";
import { type Counter, longSecondsBuckets, type Metrics } from "../../../kit/metrics.ts";
import type { ExecutionChange } from "./execution/execution-change.ts";
import type { TerminalStatus } from "./run.ts";

interface CountedRun {
  runId: string;
  environmentId: string;
}

/** A run that is over, and how it ended. */
export interface EndedRun extends CountedRun {
  ends: TerminalStatus;
}

/** Metrics of ended runs and steps, counted after the commit of each flush. */
export interface Tally {
  reported(changes: readonly ExecutionChange[], now: Instant): void;
  ended(status: TerminalStatus, runs: readonly CountedRun[], now: Instant): void;
}

export function openTally(metrics: Metrics): Tally | undefined {
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

  const ended = (status: TerminalStatus, runs: readonly CountedRun[], now: Instant) => {
    endsBy[status].add(runs.length);
    for (const { runId } of runs) {
      // The id holds the time of creation: no row must be read for it.
      const createdAt = timeOfId(runId);
      if (createdAt !== undefined) runSeconds.observe(Math.max(0, now - createdAt) / 1000);
    }
  };
  return {
    ended,
    reported(changes, now) {
      const by: Record<TerminalStatus, ExecutionChange[]> = { completed: [], failed: [], cancelled: [] };
      for (const change of changes) {
        const { ends, steps } = change;
        if (ends !== null) by[ends].push(change);
        for (const { durationMs } of steps) if (durationMs !== null) stepSeconds.observe(durationMs / 1000);
      }
      for (const status of ["completed", "failed", "cancelled"] as const)
        if (by[status].length > 0) ended(status, by[status], now);
    },
  };
}
