import type { ReportedAttributes } from "../wire/attributes.ts";
import type { StepCallOptions } from "../wire/transport.ts";
import type { WrittenLine } from "../wire/types.ts";
import type { CompletedStep, TraceparentOf } from "../wire/wire.ts";
import type { Scope } from "./scope.ts";
import type { RetryRule } from "./step-retry.ts";
import type { StepContext } from "./steps.ts";

/** What an execution needs of the place where it runs: a worker's job, a request to an endpoint, a test. */
export interface ExecutionHost {
  /** Throws when the execution may not continue: another worker's run, a cancelled one, or a refused step. */
  requireHeld(): void;
  memo(stepId: string): CompletedStep | undefined;
  /** Everything that `memo` has, in the order in which it was stored. */
  stored(): readonly Pick<CompletedStep, "step_id" | "name">[];
  /** Undefined while the lease is held for sure; else resolves when confirmed, and throws when lost. */
  sure(): Promise<void> | undefined;
  /** Takes the JSON of a finished step. Resolves at once, or when it is stored where that is asked for. */
  record(stepText: string): Promise<void> | undefined;
  /** Takes what the run is found by; it travels with the next report. */
  set(attributes: ReportedAttributes): void;
  /** Takes what the handler writes; it travels with a report. */
  write(line: WrittenLine): unknown;
  /** Takes a chunk of an output; resolves once it is stored. Absent where nobody can read along. */
  output?(name: string, source: OutputSource, chunk: unknown): Promise<void>;
  /** What the handler writes to `console` is kept with its run. */
  readonly keepsConsole?: boolean;
  signal(): AbortSignal;
  /** Milliseconds since 1970. */
  now(): number;
  /** A unary RPC for the run; one that may be repeated unless `options` say otherwise. Throws SvcError. */
  call<Answer>(method: string, message: unknown, options?: StepCallOptions): Promise<Answer>;
  /**
   * Takes how many compensations the run has; resolves once the server knows that there are some and has the
   * steps before, undefined when it does (`isKnown`). Absent where the server does not hand out runs to be
   * undone: then the execution that fails undoes what it can.
   */
  undoes?(count: number, isKnown: boolean): Promise<void> | undefined;
  /** Absent where nothing is traced, as in tests. */
  traceparent?: TraceparentOf;
  /** Waits until a step is tried again; ends early when the execution may not continue. */
  pause(ms: number): Promise<void>;
  /** The longest wait of the execution for a step's next try: beyond, the server hands the run out again. */
  readonly pauseMsMax: number;
  /** The type of a sleep that is over while something computes; endpoints may report none of their own. */
  readonly sleptType: "sleep" | "invoke";
  /** Tests put other code in the place of a step's. */
  substitute?(name: string, work: StepWork): StepWork;
}

/** Who writes to an output: a try of a step, counted in its execution, or the handler outside of steps. */
export interface OutputSource {
  /** Empty outside of steps. */
  stepId: string;
  entry: number;
}

/** A worker waits itself for the next try of a step up to this time, in milliseconds. */
export const retryPauseMsMax = 5_000;

export type StepWork = (context: StepContext) => unknown;

/** The next use of a name in its scope. */
export interface StepUse {
  readonly name: string;
  readonly stepId: string;
  readonly scope: Scope;
}

export interface PerformOptions {
  timeoutMs?: number | undefined;
  /** Left out, the step is tried once in each attempt of the run. */
  retry?: RetryRule | undefined;
  /** Makes it a compensation of that step. */
  compensationFor?: string;
  /** It has a compensation. */
  isUndone?: boolean;
  /** A sleep that is over while something computes; since when it slept. */
  sleptSinceMs?: number;
}
