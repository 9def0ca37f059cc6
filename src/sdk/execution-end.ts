import type { ReportedError } from "./errors.ts";
import type { Yield } from "./wire.ts";

/** How an execution ended. It means nothing when the job was lost meanwhile. */
export type ExecutionEnd =
  | { status: "completed"; outputText: string }
  | { status: "yielded"; yield: Yield }
  | {
      status: "failed";
      error: ReportedError & { step_id?: string };
      /** Of a run that was undone: compensations that failed for good. */
      compensationsFailed?: number;
    };
