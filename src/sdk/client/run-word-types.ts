export interface RunSignal {
  /** Counts the run's signals from 1. */
  number: number;
  name: string;
  state: "taken" | "kept";
  /** Of one that is kept, if it has at most 4,096 characters: the step that takes it has it as its output. */
  data?: unknown;
  sentBy: string;
  sentAt: string;
  takenAt?: string;
  /** The step that took it. */
  stepId?: string;
}

export interface RunSignals {
  signals: RunSignal[];
  /** How many of the run's signals no step has taken. */
  kept: number;
  hasMore: boolean;
}

/** What runs are told, by name. */
export interface RunWordCalls {
  /**
   * Tells a run something by a name: `taken` by a step that waits for it (`step.waitForSignal`), else
   * `kept` for the next one. A second call with the same key sends no second signal.
   */
  signal(
    runId: string,
    name: string,
    data?: unknown,
    options?: { idempotencyKey?: string },
  ): Promise<"taken" | "kept">;
  /** What was sent to a run, newest first; `before` is the last `number` of the page before. */
  signals(runId: string, options?: { limit?: number; before?: number }): Promise<RunSignals>;
}
