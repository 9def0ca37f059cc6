import type { Static } from "@sinclair/typebox";
import { type Instant, parseRfc3339 } from "../../../../kit/clock.ts";
import { Fault } from "../../../../kit/fault.ts";
import type { Basics } from "../../../../store/store.ts";
import { progressStepsMax } from "../limits.ts";
import type { ReportBody, StepShape } from "../report-body.ts";
import { refusedResult } from "../rules.ts";
import { stepGatherMs } from "./limits.ts";

export type SentStep = Static<typeof StepShape>;

export interface JobReportsOptions extends Basics<"clock" | "log"> {
  jobId: string;
  fence: { execution_seq: number; lease_token: string };
  /** The sequence of the execution's first step; undefined when an earlier stream got the assignment. */
  stepBase: number | undefined;
  /**
   * Commits a report. Rejects with `aborted` when the fence is lost, `unavailable` when it may be sent again.
   */
  submit: (report: ReportBody) => Promise<void>;
  /** Aborted when the stream has ended: a report that the store cannot take now is not tried again. */
  signal: AbortSignal;
  onStored: (stepId: string, fault: Fault | undefined) => void;
  /** A report cannot be stored: later reports of this job are ignored. */
  onLost: (fault: unknown) => void;
  /** These steps or this last report no longer wait to be stored. */
  onRemoved: (removed: readonly object[]) => void;
}

/** Commits the steps and the last report of one job in order, many steps in one transaction. */
export type JobReports = ReturnType<typeof openJobReports>;

const retryMsMin = 100;
const retryMsMax = 5_000;

export function openJobReports(options: JobReportsOptions) {
  const { jobId, fence, clock, log, submit, signal } = options;
  const unsent: SentStep[] = [];
  let storedCount = options.stepBase;
  let last: ReportBody | undefined;
  let over = false;
  let sending: Promise<void> | undefined;

  /** If `steps` is not a list, it stays as it is and `checkReport` refuses it. */
  const withSteps = (report: ReportBody, steps: SentStep[]): ReportBody => ({
    ...report,
    ...fence,
    ...(Array.isArray(report.steps ?? []) && { steps: [...steps, ...(report.steps ?? [])] }),
    ...(storedCount !== undefined && { step_offset: storedCount }),
  });

  /** Tries until the report is stored or refused for good. */
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
        log.warn("worker.report_refused", { jobId, error });
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
    add(step: SentStep) {
      if (over || last) return options.onRemoved([step]);
      unsent.push(step);
      start();
    },
    /** The last report; commits the steps that are not stored yet with it. */
    end(report: ReportBody) {
      if (over || last) return options.onRemoved([report]);
      last = report;
      start();
    },
    /** Resolves once nothing waits to be stored. */
    settled: async () => {
      while (sending) await sending;
    },
  };
}

/** A wait on a stream has an end time (`timeout_at`); reports have the time that is left (`timeout`). */
export function withTimeLeft(report: ReportBody, now: Instant): ReportBody {
  const sent = report.yield as { event_filter?: { timeout_at?: string } } | null | undefined;
  const text: unknown = sent?.event_filter?.timeout_at;
  const at = typeof text === "string" ? parseRfc3339(text) : undefined;
  if (at === undefined) return report;
  const filter = { ...sent?.event_filter, timeout: Math.max(1, at - now) };
  return {
    ...report,
    yield: { ...report.yield, event_filter: filter } as unknown as NonNullable<ReportBody["yield"]>,
  };
}
