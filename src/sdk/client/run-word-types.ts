import type { Run } from "../wire/types.ts";
import type { RunErasureCalls } from "./run-erasure.ts";

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

/** What a handler wrote to an output, and where it stands. */
export interface OutputChunk<Data = unknown> {
  index: number;
  /** Of the run. */
  attempt: number;
  data: Data;
  /** It was tried again since, and counts no more: only with `superseded: true`. */
  superseded?: true;
}

export interface OutputOptions {
  /** Index of the first chunk; default 0. */
  from?: number;
  /** Also what was tried again; default false. */
  superseded?: boolean;
  /** What was read of it is tried again: chunks from `from` to before `until` count no more. */
  onSuperseded?: (gone: { from: number; until: number }) => void;
  signal?: AbortSignal;
}

export interface RunOutput {
  name: string;
  /** With those that are superseded. */
  chunks: number;
  bytes: number;
  /** The end of what counts, as text. */
  tail: string;
}

/** What runs are told, by name, and what they tell while they go on. */
export interface RunWordCalls extends RunErasureCalls {
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
  /**
   * What a handler writes to `run.output(name)`, from the beginning and then as it is written, to the end of
   * the run. It reads on by itself where a connection ends. Throws SvcError for a run that is not there.
   */
  output<Data = unknown>(
    runId: string,
    name: string,
    options?: OutputOptions,
  ): AsyncGenerator<OutputChunk<Data>, void, void>;
  /** Gives a pinned run to another deployment: the newest that serves its function, or the named one. */
  move(runId: string, options?: { deployment?: string }): Promise<Run>;
  /** The outputs of a run. */
  outputs(runId: string): Promise<RunOutput[]>;
}
