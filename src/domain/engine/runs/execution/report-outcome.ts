import type { Instant } from "../../../../kit/clock.ts";
import type { Match, StateCondition } from "../../waits/rules.ts";
import type { RunError } from "../run.ts";

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
