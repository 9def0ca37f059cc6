import { Fault } from "../../../kit/fault.ts";
import { StoreError } from "../../../store/store.ts";
import type { Fence, RunError } from "../runs/run.ts";
import { readFence } from "./report-body.ts";

export interface RefusedReport {
  fence: Fence;
  error: RunError & { code: string };
  /** True for a yield: the worker may send another one, or report the job as failed. */
  isCorrectable: boolean;
}

/**
 * The last report of a job, when its content is refused: workers send it once, and drop the job whatever the
 * answer is. Undefined for a report that may be sent again, is not the last one, or has no fence.
 */
export function lastRefused(
  jobId: string,
  body: unknown,
  { kind, message, code }: Fault,
): RefusedReport | undefined {
  if (kind !== "invalid_argument" && kind !== "payload_too_large") return undefined;
  // Without a fence anybody could have sent the report, so it must not end the run.
  if (typeof body !== "object" || body === null || code === "INCOMPATIBLE_PROTOCOL") return undefined;
  const { status } = body as { status?: unknown };
  if (status !== "completed" && status !== "failed" && status !== "yielded") return undefined;
  return {
    fence: readFence(jobId, body),
    error: { message: `result refused: ${message}`, code: code ?? "INVALID_REPORT", retryable: false },
    isCorrectable: status === "yielded",
  };
}

/** A report of which no more was read than where it was sent, and how it began. */
export interface UnreadReport {
  workerId: string;
  jobId: string;
  /** The token that it carries; undefined where none was found, and for a report that is not the last one. */
  lease: string | undefined;
}

/** The lease's token among the first fields of a last report, or in a header. */
export function leaseIn(head: string, headers: Pick<Headers, "get">): string | undefined {
  if (/"status"\s*:\s*"progress"/.test(head)) return undefined;
  return headers.get("x-svc-lease-token") ?? /"lease_token"\s*:\s*"([^"\\]{1,400})"/.exec(head)?.[1];
}

/**
 * Turns errors of the store into faults: `unavailable` when the worker should send the report again,
 * `invalid_argument` when the database refuses a value. Anything else would fail the whole exchange, whose
 * other reports are stored and whose jobs are leased; a 409 would look like a lost fence, and the worker
 * would drop the run.
 */
export async function sendable(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    if (error.trouble === "refused")
      throw new Fault("invalid_argument", "the database refuses a value of this report", {
        cause: error,
      });
    const again = { headers: { "Retry-After": "1" }, cause: error };
    throw new Fault("unavailable", "the database is unavailable, send the report again", again);
  }
}

/** Ignores a lost fence: the work matters only while the fence holds. */
export async function unlessLost(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof Fault) || (error.kind !== "aborted" && error.kind !== "not_found")) throw error;
  }
}
