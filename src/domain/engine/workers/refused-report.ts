import { Fault, tryAgain } from "../../../kit/fault.ts";
import { StoreError } from "../../../store/store.ts";
import type { Fence, RunError } from "../runs/run.ts";
import { readFence } from "./report-body.ts";

export interface RefusedReport {
  fence: Fence;
  error: RunError & { code: string };
  /** What a job waits for may be said otherwise, or the job be reported as failed; how it ended is said once. */
  isCorrectable: boolean;
}

/**
 * The last report of a job, refused for what it holds: workers send it once, and drop the job whatever is answered. Undefined
 * when the report may be taken another time, is not the last, or proves nothing.
 */
export function lastRefused(
  jobId: string,
  body: unknown,
  { kind, message, code }: Fault,
): RefusedReport | undefined {
  if (kind !== "invalid_argument" && kind !== "payload_too_large") return undefined;
  // Without a fence nothing is proven, whatever else is wrong with it.
  if (typeof body !== "object" || body === null || code === "INCOMPATIBLE_PROTOCOL") return undefined;
  const { status } = body as { status?: unknown };
  if (status !== "completed" && status !== "failed" && status !== "yielded") return undefined;
  return {
    fence: readFence(jobId, body),
    error: { message: `result refused: ${message}`, code: code ?? "INVALID_REPORT", retryable: false },
    isCorrectable: status === "yielded",
  };
}

/**
 * What the store could not take now is to be sent again. It must not look like a lost fence (409), after which a worker
 * drops the run, nor fail the exchange whose other reports are stored and whose jobs are handed out.
 */
export async function sendable(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    if (error.trouble === "refused")
      throw new Fault("invalid_argument", "the database does not take a value of this report", {
        cause: error,
      });
    throw tryAgain("unavailable", "the database cannot take this now, send it again", { cause: error });
  }
}

/** For what only matters while the fence holds. */
export async function unlessLost(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof Fault) || (error.kind !== "aborted" && error.kind !== "not_found")) throw error;
  }
}
