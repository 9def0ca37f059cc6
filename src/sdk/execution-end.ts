import type { ReportedError } from "./errors.ts";
import type { StepDeviation } from "./types.ts";
import type { Yield } from "./wire.ts";

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
} & ({ status: "completed"; outputText: string } | { status: "yielded"; yield: Yield } | FailedEnd);
