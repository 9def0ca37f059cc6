import type { ReportedError } from "../wire/errors.ts";
import type { StepDeviation } from "../wire/types.ts";
import type { AskedWait, Yield } from "../wire/wire.ts";

export interface FailedEnd {
  status: "failed";
  /** `exhausted`: its step was tried as often as it may be. */
  error: ReportedError & { step_id?: string; exhausted?: boolean };
  /** Of a run that was undone: compensations that failed for good. */
  compensationsFailed?: number;
}

/** How an execution ended. It means nothing when the job was lost meanwhile. */
export type ExecutionEnd = {
  /** Stored steps that the handler did not come to as before; absent for none. */
  deviations?: StepDeviation[];
} & (
  | { status: "completed"; outputText: string }
  /** `yields`: all that it waits for, where that may be more than one thing. */
  | { status: "yielded"; yield: Yield; yields?: readonly AskedWait[] }
  | FailedEnd
);
