import type { Clock } from "../../../../kit/clock.ts";
import { pollJobsMax, streamFullMs } from "../../../../kit/limits.ts";
import type { Log } from "../../../../kit/log.ts";
import type { Dispatcher } from "../../dispatch/dispatcher.ts";
import type { PollRequest } from "../../dispatch/queues.ts";
import type { Job } from "../../jobs/rules.ts";
import type { WorkerRecord } from "../rows.ts";

export interface StreamPollerOptions {
  clock: Clock;
  log: Log;
  dispatcher: Pick<Dispatcher, "poll">;
  worker: WorkerRecord;
  mayHave: PollRequest["mayHave"];
  signal: AbortSignal;
  /** Slots without a job, those that are asked for included. */
  free: () => number;
  onJobs: (jobs: readonly Job[]) => void;
}

/** One stream's held questions for jobs, asked again as slots become free. */
export interface StreamPoller {
  poll(): void;
  /** Nothing is asked for so long; the next look of the stream asks again. */
  pause(ms: number): void;
}

/** With the second question a stream asks for slots that became free during the first. */
const pollsMax = 2;
const holdMs = 30_000;

export function openStreamPoller(options: StreamPollerOptions): StreamPoller {
  const { clock, log, dispatcher, worker, mayHave, signal, free, onJobs } = options;
  let polls = 0;
  let requested = 0;
  let pollAgainAt = 0;

  const pause = (ms: number) => {
    pollAgainAt = Math.max(pollAgainAt, clock.elapsed() + ms);
  };

  async function pollOnce(available: number): Promise<void> {
    const polledAt = clock.elapsed();
    const { environmentId, id: workerId, functionIds } = worker;
    const request = {
      ...{ environmentId, workerId, functionIds, available, holdMs },
      ...{ reports: true, signal, mayHave },
    };
    let jobs: readonly Job[] = [];
    try {
      jobs = await dispatcher.poll(request);
    } catch (error) {
      // What a question cannot be answered without (definitions, the store) is away; the stream's next look
      // asks again.
      log.warn("worker.ask_failed", { environmentId, workerId, error });
    } finally {
      polls--;
      requested -= available;
    }
    if (jobs.length > 0) onJobs(jobs);
    // Nothing so early: the dispatcher wants to hear of this worker first, or takes no more questions.
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

  return { poll, pause };
}
