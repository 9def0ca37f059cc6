import { Fault } from "../../kit/fault.ts";
import { StoreError } from "../../store/store.ts";
import type { RunReport } from "../runs/report.ts";
import { readFence } from "./report.ts";

/** Of a report that says how its job ended, or where it waits: workers send it once, and drop the job whatever is answered. */
const isLast = (status: unknown): boolean =>
  status === "completed" || status === "failed" || status === "yielded";

/**
 * What the run comes to when its last report is refused for what it holds: it fails, with the reason. Undefined when the
 * report may be taken another time, is not the last, or proves nothing.
 */
export function afterRefusal(
  environmentId: string,
  jobId: string,
  body: unknown,
  { kind, message, code }: Fault,
): RunReport | undefined {
  if (kind !== "invalid_argument" && kind !== "payload_too_large") return undefined;
  if (typeof body !== "object" || body === null) return undefined;
  // Without a fence nothing is proven, whatever else is wrong with it.
  if (code === "INCOMPATIBLE_PROTOCOL" || !isLast((body as { status?: unknown }).status)) return undefined;
  const fence = readFence(jobId, body);
  const error = { message: `result refused: ${message}`, code: code ?? "INVALID_REPORT", retryable: false };
  return { ...fence, environmentId, outcome: { kind: "failed", error }, steps: [], stepOffset: undefined };
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
    const again = { headers: { "Retry-After": "1" }, cause: error };
    throw new Fault("unavailable", "the database cannot take this now, send it again", again);
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
