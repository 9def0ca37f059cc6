import type { Instant } from "../../../../kit/clock.ts";
import type { AttributeChange } from "../../attributes/rules.ts";
import type { NewErrorGroup } from "../../errors/rules.ts";
import type { NewLines } from "../../logs/rules.ts";
import { type Match, nameOfState, type StateCondition, type StoredMatch } from "../../waits/rules.ts";
import type { ExecutionState, Fence, RunError, StepStatus, StepType, TerminalStatus } from "../run.ts";

/**
 * What a report changes of a run and its execution (`toExecutionChange`). A flush holds at most one of each
 * run.
 */
export interface ExecutionChange extends Fence {
  environmentId: string;
  /** The run ends in this status; null keeps its execution. */
  ends: TerminalStatus | null;
  /** State of the execution that stays; `leased` for progress. */
  next: ExecutionState;
  /** Next wake of the execution that stays; null keeps what it has. */
  wakeAt: Instant | null;
  /** JSON texts. */
  output: string | null;
  error: string | null;
  /** Null writes no history row (a heartbeat without steps). */
  historyType: string | null;
  historyDetail: string;
  steps: readonly NewStep[];
  /** Sequence of the last step + 1. */
  stepsTop: number;
  waitingStepId: string | null;
  /** The event or the child that the run waits for; null when it waits only for `wakeAt`. */
  pending: PendingStep | null;
  /** Null from workers that tell of no compensations. */
  undo: UndoChange | null;
  /** What the run is found by from here on; null keeps what there is. */
  attributes: readonly AttributeChange[] | null;
  /** Of a run that fails. */
  errorGroup: NewErrorGroup | null;
  /** What its handler wrote; null for nothing. */
  logs: NewLines | null;
  /** Set by the commit: the function of the run, and since when its worker has had it. */
  functionId?: string;
  claimedAt?: Instant;
}

/** What a report changes of the undoing of its run. */
export interface UndoChange {
  /** Compensations that the run has now; null keeps the number. */
  count: number | null;
  /** JSON of the `RunEnding` of a run that is compensating from here on; null keeps what there is. */
  ending: string | null;
  /** When the run is compensating no longer, whatever is left. */
  until: Instant | null;
  /** Of a run that ends: why it was cancelled, and how many compensations failed for good. */
  cause: string | null;
  failed: number | null;
  /** The queue that the run returns to. */
  functionId: string | null;
}

export interface NewStep {
  stepId: string;
  name: string;
  type: StepType;
  /**
   * Index in the run. A negative one appends: `-1` takes the first free index, `-2` the second, and so on.
   */
  sequence: number;
  status: StepStatus;
  output: string | null;
  error: string | null;
  startedAt: Instant | null;
  endedAt: Instant | null;
  durationMs: number | null;
  compensationFor: string | null;
  sleepUntil: Instant | null;
}

/** One of several things that a step waits for. */
export type StoredCondition = { name: string } & (
  | { eventName: string; match: StoredMatch }
  | { state: StateCondition }
);

export const nameOfCondition = (condition: StoredCondition): string =>
  "state" in condition ? nameOfState(condition.state) : condition.eventName;

/** A yielded step that an event, a state or a child run resolves. */
export interface PendingStep {
  stepId: string;
  name: string;
  sequence: number;
  startedAt: Instant;
  /** When it fails unresolved. */
  timeoutAt: Instant;
  /** JSON text. */
  input: string | null;
  /** What the handler makes of a wait that is over; null fails the run. */
  onTimeout: "null" | "throw" | null;
  /** The worker understands a failed step among the completed ones. */
  takesFailedSteps: boolean;
  for:
    | { kind: "event"; name: string; match: StoredMatch }
    /** `states` when none of the conditions is an event. */
    | { kind: "events" | "states"; mode: "any" | "all"; conditions: readonly StoredCondition[] }
    | { kind: "invoke" | "invoke_async"; functionId: string; anyFunction: boolean };
}

export type ReportOutcome =
  /** The run goes on: steps are stored, and `leaseUntil` renews the lease. */
  | { kind: "progress"; leaseUntil: Instant | null }
  | { kind: "completed"; output: string }
  | { kind: "failed"; error: RunError }
  | (Yielded & { kind: "sleep"; until: Instant })
  /** The step failed, and is tried again by then: the run's attempt goes on. */
  | (Yielded & { kind: "retry_step"; until: Instant })
  | (Yielded & {
      kind: "wait";
      eventName: string;
      match: Match;
      timeoutAt: Instant;
      input: string | null;
      onTimeout?: "null" | "throw";
    })
  | (Yielded & {
      kind: "wait_many";
      /** The first one ends the wait, or all of them together. */
      mode: "any" | "all";
      conditions: readonly WaitCondition[];
      timeoutAt: Instant;
      onTimeout: "null" | "throw";
    })
  | (Yielded & {
      kind: "invoke";
      functionId: string;
      /** JSON text. */
      input: string | null;
      timeoutAt: Instant;
      /** The run goes on as soon as the child is started. */
      isAsync: boolean;
      /** Functions with event triggers may be invoked, too. */
      anyFunction: boolean;
    });

/** One of the things that a step waits for, by the name that its handler gave it. */
export type WaitCondition = { name: string } & (
  | { eventName: string; match: Match }
  | { state: StateCondition }
);

/** The step at which the handler yielded. */
export interface Yielded {
  stepId: string;
  name: string;
  at: Instant;
}

/** A wait among those of a handler. */
export interface AwaitedStep {
  stepId: string;
  /** The step whose result its branch was handed last; null for none. */
  after: string | null;
  /** Null of a wait that the server knows. */
  asked: Extract<ReportOutcome, Yielded> | null;
}
