import type { SvcError } from "../wire/errors.ts";
import { type Stamp, stamp } from "./lease.ts";
import type { StreamSocket } from "./stream-socket.ts";

interface LeaseRefresh {
  jobIds: readonly string[];
  askedAt: Stamp;
  late: ReturnType<typeof setTimeout>;
  resolve(lost: Set<string>): void;
  reject(error: SvcError): void;
}

/** The `leaseRefresh` message of the server: the state of each lease, in the order of the heartbeat. */
export interface LeaseRefreshMessage {
  segments?: { state?: string }[];
  definitionConflicts?: string[];
  openWaits?: boolean;
}

/** What a slow way carries and a busy server stores: cutting such a stream would send all of it again. */
const bytesAMsMin = 64;

/** Heartbeats on a stream that the server has not answered. It answers them in their order. */
export class LeaseRefreshes {
  readonly #unanswered: LeaseRefresh[] = [];

  /**
   * Resolves with the jobs whose leases are lost; `onLate` is called when no answer came in time. A heartbeat
   * goes and is read after the reports before it: `reportedBytes` of them are not answered.
   */
  ask(
    socket: StreamSocket,
    workerId: string,
    jobIds: readonly string[],
    {
      timeoutMs,
      reportedBytes,
      onLate,
    }: { timeoutMs: number; reportedBytes: () => number; onLate: () => void },
  ): Promise<Set<string>> {
    return new Promise((resolve, reject) => {
      const since = performance.now();
      const look = () => {
        const leftMs = timeoutMs + reportedBytes() / bytesAMsMin - (performance.now() - since);
        if (leftMs <= 0) onLate();
        else refresh.late = setTimeout(look, leftMs);
      };
      const refresh = { jobIds, askedAt: stamp(), late: setTimeout(look, timeoutMs), resolve, reject };
      this.#unanswered.push(refresh);
      const jobs = jobIds.map((jobId) => ({ jobId }));
      socket.send({ heartbeat: { workerId, activeJobs: jobs.length, jobs } });
    });
  }

  /**
   * Settles the oldest heartbeat, and gives the time when it was sent. A job of `reportedJobIds` does not
   * count as lost: the server may have taken its last report already, and the answer to that is on its way.
   */
  answered({ segments = [] }: LeaseRefreshMessage, reportedJobIds: ReadonlySet<string>): Stamp | undefined {
    const refresh = this.#unanswered.shift();
    if (!refresh) return undefined;
    const isLost = (jobId: string, at: number) =>
      segments[at]?.state !== "LEASE_STATE_REFRESHED" && !reportedJobIds.has(jobId);
    clearTimeout(refresh.late);
    refresh.resolve(new Set(refresh.jobIds.filter(isLost)));
    return refresh.askedAt;
  }

  /** The stream is gone: none of them will be answered. */
  rejectAll(error: SvcError): void {
    for (const refresh of this.#unanswered.splice(0)) {
      clearTimeout(refresh.late);
      refresh.reject(error);
    }
  }
}
