import type { ReportedError } from "./errors.ts";

export type LineLevel = "debug" | "info" | "warn" | "error";

/** What a handler writes: it is kept with its run. */
export interface RunLine {
  level: LineLevel;
  text: string;
  fields?: Record<string, unknown> | undefined;
  /** Name of the step that wrote it. */
  step?: string | undefined;
}

/** A line to be sent. `seen`: lines outside of steps that the handler reached with it; else undefined. */
export interface WrittenLine extends RunLine {
  seen?: number | undefined;
}

/** One attempt of a run. */
export interface RunAttempt {
  /** From 1. Counted on after a resume. */
  number: number;
  /** The last worker that had it. */
  workerId: string;
  /** Which build that worker was, where it said so. */
  deployment?: string;
  startedAt: string;
  /** Undefined while it is under way. */
  endedAt?: string;
  outcome?: "completed" | "failed" | "cancelled";
  error?: ReportedError;
  /** Until the next attempt. */
  retryInMs?: number;
  /** How often the handler was entered. */
  executions: number;
  /** How many of these ended without a report of their worker. */
  lost?: number;
}

/** A try of a step that failed. */
export interface StepTry {
  /** Counted by the step's own `retry`; else 1. */
  number: number;
  /** The run's. */
  attempt: number;
  workerId: string;
  startedAt?: string;
  endedAt: string;
  error: ReportedError;
  /** When the step is tried again by itself. */
  retryAt?: string;
}

/** A line that a handler wrote, to its `log` or, where its worker captures it, to `console`. */
export interface RunLogLine extends RunLine {
  at: string;
  attempt: number;
  workerId: string;
}

export interface RunLogs {
  /** Oldest first: at most 64 KiB a run, 200 lines an attempt and 1 KiB a line. */
  lines: RunLogLine[];
  /** Lines beyond that. */
  leftOut: number;
  /** `after` of the next call: what was written since. */
  cursor: string;
}
