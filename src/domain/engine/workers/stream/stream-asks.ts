import type { Clock } from "../../../../kit/clock.ts";
import { pollJobsMax, streamFullMs } from "../../../../kit/limits.ts";
import type { Log } from "../../../../kit/log.ts";
import type { Dispatcher } from "../../dispatch/dispatcher.ts";
import type { Asking } from "../../dispatch/lanes.ts";
import type { Job } from "../../jobs/rules.ts";
import type { WorkerRecord } from "../rows.ts";

export interface AsksOptions {
  clock: Clock;
  log: Log;
  dispatcher: Pick<Dispatcher, "take">;
  worker: WorkerRecord;
  mayHave: Asking["mayHave"];
  signal: AbortSignal;
  /** Slots without a job, those that are asked for included. */
  free: () => number;
  onJobs: (jobs: readonly Job[]) => void;
}

/** One stream's held questions for jobs, asked again as slots become free. */
export interface Asks {
  ask(): void;
  /** Nothing is asked for so long; the next look of the stream asks again. */
  pause(ms: number): void;
}

/** With the second question a stream asks for slots that became free during the first. */
const asksMax = 2;
const holdMs = 30_000;

export function openAsks(options: AsksOptions): Asks {
  const { clock, log, dispatcher, worker, mayHave, signal, free, onJobs } = options;
  let asks = 0;
  let asked = 0;
  let askAgainAt = 0;

  const pause = (ms: number) => {
    askAgainAt = Math.max(askAgainAt, clock.elapsed() + ms);
  };

  async function takeOnce(available: number): Promise<void> {
    const askedAt = clock.elapsed();
    const { environmentId, id: workerId, functionIds } = worker;
    const asking = {
      ...{ environmentId, workerId, functionIds, available, holdMs },
      ...{ reports: true, signal, mayHave },
    };
    let jobs: readonly Job[] = [];
    try {
      jobs = await dispatcher.take(asking);
    } catch (error) {
      // What a question cannot be answered without (definitions, the store) is away; the stream's next look asks again.
      log.warn("worker.ask_failed", { environmentId, workerId, error });
    } finally {
      asks--;
      asked -= available;
    }
    if (jobs.length > 0) onJobs(jobs);
    // Nothing so early: the dispatcher wants to hear of this worker first, or takes no more questions.
    else if (clock.elapsed() - askedAt < holdMs / 2) pause(streamFullMs);
    ask();
  }

  function ask(): void {
    if (asks >= asksMax || clock.elapsed() < askAgainAt) return;
    const available = Math.min(free() - asked, pollJobsMax);
    if (available <= 0) return;
    asks++;
    asked += available;
    void takeOnce(available);
  }

  return { ask, pause };
}
