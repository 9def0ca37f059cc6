import type { Static } from "@sinclair/typebox";
import { type Clock, type Instant, parseRfc3339 } from "../../../../kit/clock.ts";
import { Fault } from "../../../../kit/fault.ts";
import { progressStepsMax, stepGatherMs } from "../../../../kit/limits.ts";
import type { Log } from "../../../../kit/log.ts";
import type { ReportBody, StepShape } from "../report-body.ts";
import { refusedResult } from "../rules.ts";

export type SentStep = Static<typeof StepShape>;

export interface JobReportsOptions {
  jobId: string;
  fence: { execution_seq: number; lease_token: string };
  /** Sequence of the first step this execution brings; undefined when the assignment was another stream's. */
  stepBase: number | undefined;
  clock: Clock;
  log: Log;
  /** Commits a report; rejects with the Faults of proto/README.md 'Refused reports'. */
  submit: (report: ReportBody) => Promise<void>;
  /** Nobody waits for it any more: what the store cannot take is not tried again. */
  signal: AbortSignal;
  onStored: (stepId: string, fault: Fault | undefined) => void;
  /** The fence holds no longer: what else comes of this job is not looked at. */
  onLost: (fault: unknown) => void;
  /** A step less waits to be stored, or the last report. */
  onRemoved: (removed: readonly object[]) => void;
}

/** The reports of one job that arrive in pieces, on their way to the store: in order, many steps at a time. */
export interface JobReports {
  add(step: SentStep): void;
  /** The last report; takes along the steps that are not stored yet. */
  end(report: ReportBody): void;
  readonly over: boolean;
  /** Resolves once nothing of it is on its way. */
  settled(): Promise<void>;
}

const retryMsMin = 100;
const retryMsMax = 5_000;

export function openJobReports(options: JobReportsOptions): JobReports {
  const { jobId, fence, clock, log, submit, signal } = options;
  const unsent: SentStep[] = [];
  let storedCount = options.stepBase;
  let last: ReportBody | undefined;
  let over = false;
  let sending: Promise<void> | undefined;

  /** What is no list is left for the reader of reports to refuse. */
  const withSteps = (report: ReportBody, steps: SentStep[]): ReportBody => ({
    ...report,
    ...fence,
    ...(Array.isArray(report.steps ?? []) && { steps: [...steps, ...(report.steps ?? [])] }),
    ...(storedCount !== undefined && { step_offset: storedCount }),
  });

  /** Sent until the store has taken it or says that it never will. */
  async function persist(report: ReportBody): Promise<void> {
    for (let waitMs = retryMsMin; ; waitMs = Math.min(retryMsMax, waitMs * 2)) {
      try {
        return await submit(report);
      } catch (error) {
        const again =
          error instanceof Fault && (error.kind === "unavailable" || error.kind === "resource_exhausted");
        if (!again || signal.aborted) throw error;
        await clock.sleep(waitMs, signal);
      }
    }
  }

  const refusal = ({ message, code }: Fault): ReportBody => ({
    ...fence,
    status: "failed",
    error: refusedResult(message, code),
  });

  async function sendOnce(): Promise<boolean> {
    const count = Math.min(unsent.length, progressStepsMax);
    const ending = last !== undefined && count === unsent.length;
    if (!ending && count === 0) return false;
    const steps = unsent.slice(0, count);
    const report: ReportBody = ending ? last! : { ...fence, status: "progress" };
    await persist(withSteps(report, steps));
    const sent = unsent.splice(0, count);
    if (storedCount !== undefined) storedCount += count;
    options.onRemoved(sent);
    for (const step of steps) options.onStored(step.id, undefined);
    return !ending;
  }

  async function send(): Promise<void> {
    try {
      if (!last) await clock.sleep(stepGatherMs);
      while (await sendOnce());
    } catch (error) {
      const fault = error instanceof Fault ? error : new Fault("unavailable", "the step was not stored");
      for (const step of unsent) options.onStored(step.id, fault);
      if (error instanceof Fault && error.kind === "invalid_argument") {
        log.warn("worker.report_refused", { jobId, reason: error.message });
        await persist(refusal(error)).catch(() => {});
        options.onLost(error);
      } else options.onLost(error);
      over = true;
      options.onRemoved(unsent.splice(0));
    } finally {
      if (last) {
        over = true;
        options.onRemoved([last]);
      }
      sending = undefined;
    }
    if (!over && (unsent.length > 0 || last)) start();
  }

  function start(): void {
    sending ??= send();
  }

  return {
    get over() {
      return over || last !== undefined;
    },
    add(step) {
      if (over || last) return options.onRemoved([step]);
      unsent.push(step);
      start();
    },
    end(report) {
      if (over || last) return options.onRemoved([report]);
      last = report;
      start();
    },
    settled: async () => {
      while (sending) await sending;
    },
  };
}

/** On a stream a wait names the instant it ends at; the routes, and so the reader of reports, the time that is left. */
export function withTimeLeft(report: ReportBody, now: Instant): ReportBody {
  const asked = report.yield as { event_filter?: { timeout_at?: string } } | null | undefined;
  const text: unknown = asked?.event_filter?.timeout_at;
  const at = typeof text === "string" ? parseRfc3339(text) : undefined;
  if (at === undefined) return report;
  const filter = { ...asked?.event_filter, timeout: Math.max(1, at - now) };
  return {
    ...report,
    yield: { ...report.yield, event_filter: filter } as unknown as NonNullable<ReportBody["yield"]>,
  };
}
