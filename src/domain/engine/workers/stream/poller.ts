import { pollJobsMax } from "../../../../kit/limits.ts";
import type { Basics } from "../../../../store/store.ts";
import type { Dispatcher } from "../../dispatch/dispatcher.ts";
import type { PollRequest } from "../../dispatch/queues.ts";
import type { Job } from "../../jobs/rules.ts";
import type { LeaseTerms } from "../registration.ts";
import type { WorkerRecord } from "../rows.ts";
import { streamFullMs } from "./limits.ts";

export interface StreamPollerOptions extends Basics<"clock" | "log"> {
  dispatcher: Pick<Dispatcher, "poll">;
  worker: WorkerRecord;
  rights: PollRequest["rights"];
  terms: LeaseTerms;
  signal: AbortSignal;
  /** Slots without a job, including those that a held poll already asks for. */
  free: () => number;
  onJobs: (jobs: readonly Job[]) => void;
}

/** Holds polls in the name of the worker of one stream, and polls again as slots become free. */
export type StreamPoller = ReturnType<typeof openStreamPoller>;

/** The second poll asks for slots that became free while the first was held. */
const pollsMax = 2;
const holdMs = 30_000;

export function openStreamPoller(options: StreamPollerOptions) {
  const { clock, log, dispatcher, worker, rights, signal, free, onJobs } = options;
  const { leaseMs, holder } = options.terms;
  let polls = 0;
  let requested = 0;
  let pollAgainAt = 0;

  const pause = (ms: number) => {
    pollAgainAt = Math.max(pollAgainAt, clock.elapsed() + ms);
  };

  async function pollOnce(available: number): Promise<void> {
    const polledAt = clock.elapsed();
    const { environmentId, id: workerId, functionIds, compensates, deployment } = worker;
    const request = {
      ...{ environmentId, workerId, functionIds, available, holdMs },
      ...{ reports: true, signal, rights, compensates, leaseMs, holder },
      deployment: deployment ?? undefined,
    };
    let jobs: readonly Job[] = [];
    try {
      jobs = await dispatcher.poll(request);
    } catch (error) {
      // The store or the definitions are unavailable. The stream's next look polls again.
      log.warn("worker.ask_failed", { environmentId, workerId, error });
    } finally {
      polls--;
      requested -= available;
    }
    if (jobs.length > 0) onJobs(jobs);
    // Answered early with nothing: the dispatcher distrusts this worker or drains. Polling at once would be a
    // busy loop.
    else if (clock.elapsed() - polledAt < holdMs / 2) pause(streamFullMs);
    poll();
  }

  function poll(): void {
    if (polls >= pollsMax || clock.elapsed() < pollAgainAt) return;
    const available = Math.min(free() - requested, pollJobsMax);
    if (available <= 0) return;
    polls++;
    requested += available;
    void pollOnce(available);
  }

  return { poll /** No poll for `ms`; the next `look` of the stream polls again. */, pause };
}
