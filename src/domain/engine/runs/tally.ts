import { timeOfId } from "../../../kit/ids.ts";
import { type Counter, longSecondsBuckets, type Metrics } from "../../../kit/metrics.ts";
import type { RunObserver } from "./observer.ts";
import type { TerminalStatus } from "./run.ts";

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
