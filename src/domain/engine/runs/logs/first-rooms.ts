import type { LogChunk } from "../../logs/rules.ts";
import type { RunReport } from "../execution/report.ts";
import type { RunObserver } from "../observer.ts";
import type { WritingRun } from "./log-rows.ts";

export type WritingReport = RunReport & { logs: LogChunk };

/** Runs that are remembered; of those before, the store is asked. */
const runsMax = 4_096;

/**
 * Runs that this node handed out for the first time. The first report that brings lines of such a run finds
 * all room free, so that the store need not be asked before its flush.
 */
export class FirstRooms implements Partial<RunObserver> {
  readonly #runs = new Map<string, WritingRun & { environmentId: string }>();

  claimed(runs: Parameters<RunObserver["claimed"]>[0]): void {
    for (const run of runs) {
      if (run.execution_seq !== 1) continue;
      this.#runs.set(run.run_id, {
        environmentId: run.environment_id,
        ...{ functionId: run.function_id, functionVersion: run.function_version },
        ...{ attemptLines: 0, runBytes: 0 },
      });
      if (this.#runs.size > runsMax) this.#runs.delete(this.#runs.keys().next().value!);
    }
  }

  /** What brought lines may bring them again, with more: the store knows how many there are. */
  reported(changes: Parameters<RunObserver["reported"]>[0]): void {
    for (const { runId, logs } of changes) if (logs) this.#runs.delete(runId);
  }

  ended(runs: Parameters<RunObserver["ended"]>[0]): void {
    for (const { runId } of runs) this.#runs.delete(runId);
  }

  /** Undefined where lines may be stored already, or the store must be asked. */
  of({ environmentId, runId, executionSeq, logs }: WritingReport): WritingRun | undefined {
    if (executionSeq !== 1 || logs.offset !== 0) return undefined;
    const run = this.#runs.get(runId);
    return run?.environmentId === environmentId ? run : undefined;
  }
}
