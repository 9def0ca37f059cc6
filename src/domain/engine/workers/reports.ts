import { Fault } from "../../../kit/fault.ts";
import type { Log } from "../../../kit/log.ts";
import type { Basics } from "../../../store/store.ts";
import { runOfJob } from "../jobs/rules.ts";
import type { DeviatingStep } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import { deviationsToldMax } from "./limits.ts";
import type { AckInput, ExchangeResult } from "./port.ts";
import { lastRefused, sendable, type UnreadReport, unlessLost } from "./refused-report.ts";
import { checkReport, type ReportBody, readDeviations, readFence, readReport } from "./report-body.ts";
import type { Rights } from "./rights.ts";
import type { WorkerRecord } from "./rows.ts";
import { knowsFailedSteps } from "./rules.ts";

type Told = Parameters<Runs["noteDeviations"]>[0];

/** Notes on runs how their handlers deviated; the log gets one line for each version of a function. */
function openDeviations({ runs, log }: { runs: Pick<Runs, "noteDeviations">; log: Log }) {
  const told = new Set<string>();
  return async (reported: Told): Promise<void> => {
    const noted = await runs.noteDeviations(reported);
    if (!noted) return;
    const { environmentId, runId, steps } = reported;
    const key = `${environmentId}\n${noted.functionId}\n${noted.functionVersion}`;
    if (told.has(key)) return;
    if (told.size >= deviationsToldMax) told.clear();
    told.add(key);
    log.warn("run.nondeterminism", { environmentId, runId, ...noted, steps: steps.map(namesOf) });
  };
}

const namesOf = ({ name, kind }: DeviatingStep): string => `${name}: ${kind}`;

/** Nodes of an earlier version would lose all but the first thing that a handler waits for. */
const withoutWaits = ({ yields: _, ...plain }: ReportBody): ReportBody => plain;

export interface WorkerReportsDeps extends Basics<"clock" | "log"> {
  runs: Pick<Runs, "report" | "ack" | "noteRefusal" | "noteDeviations">;
  leaseMs: number;
  /** Without capacity admission there is no status `progress`. */
  admission: boolean;
  takesWaits: () => Promise<boolean>;
}

/** What workers send back of their jobs, from the body as it arrived to the run that it changes. */
export class WorkerReports {
  readonly #deps: WorkerReportsDeps;
  readonly #noteDeviations: ReturnType<typeof openDeviations>;

  constructor(deps: WorkerReportsDeps) {
    this.#deps = deps;
    this.#noteDeviations = openDeviations(deps);
  }

  /** A report over REST. `rights` may turn it into a failure of the run. */
  async report(
    worker: WorkerRecord,
    jobId: string,
    sent: ReportBody,
    rights: Rights | undefined,
    leaseMs?: number,
  ): Promise<void> {
    const counts = rights?.reported(sent) ?? sent;
    const body = counts instanceof Promise ? await counts : counts;
    if (body.status === "progress" && !this.#deps.admission)
      throw new Fault("not_found", "progress reports need capacity admission, which is off");
    await this.submit(worker, jobId, body, { leaseMs });
  }

  /**
   * Commits a report whose form was not checked. A last report that can never be stored fails its run:
   * otherwise the next attempt would send the same report, without end.
   */
  async submit(
    { environmentId, sdk }: Pick<WorkerRecord, "environmentId" | "sdk">,
    jobId: string,
    body: unknown,
    {
      leaseMs = this.#deps.leaseMs,
      mayCorrect = true,
    }: { leaseMs?: number | undefined; mayCorrect?: boolean } = {},
  ): Promise<void> {
    const { clock, runs } = this.#deps;
    try {
      const given = checkReport(body);
      const sent = given.yields && !(await this.#deps.takesWaits()) ? withoutWaits(given) : given;
      const report = readReport(sent, { environmentId, jobId, now: clock.now(), leaseMs });
      const steps = readDeviations(sent);
      if (steps?.length) await sendable(this.#noteDeviations({ ...report, steps }));
      await sendable(runs.report({ ...report, takesFailedSteps: knowsFailedSteps(sdk) }));
    } catch (error) {
      if (error instanceof Fault) await this.#endRefused(environmentId, jobId, body, error, mayCorrect);
      throw error;
    }
  }

  /** `mayCorrect`: the sender learns of the refusal and may send another report instead. */
  async #endRefused(
    environmentId: string,
    jobId: string,
    body: unknown,
    fault: Fault,
    mayCorrect: boolean,
  ): Promise<void> {
    const { runs } = this.#deps;
    const refused = lastRefused(jobId, body, fault);
    if (!refused) return;
    const { fence, error } = refused;
    if (refused.isCorrectable && mayCorrect) {
      const { leaseHash } = fence;
      await sendable(runs.noteRefusal({ ...fence, environmentId, ...error, holder: { leaseHash } }));
      return;
    }
    const outcome = { kind: "failed" as const, error };
    const report = { ...fence, environmentId, outcome, steps: [], stepOffset: undefined };
    await unlessLost(sendable(runs.report(report)));
  }

  /** See `Workers.reportUnread`. */
  async endUnread(
    environmentId: string,
    { workerId, jobId, lease }: UnreadReport,
    { message }: Fault,
  ): Promise<void> {
    const { runs } = this.#deps;
    const job = runOfJob(jobId);
    if (!job) return;
    const error = { message, code: "REPORT_TOO_LARGE" };
    await runs.noteRefusal({ ...job, environmentId, ...error, holder: { workerId } });
    if (lease === undefined) return;
    const fence = readFence(jobId, { execution_seq: job.executionSeq, lease_token: lease });
    const outcome = { kind: "failed" as const, error: { ...error, retryable: false } };
    const report = { ...fence, environmentId, outcome, steps: [], stepOffset: undefined };
    await unlessLost(sendable(runs.report(report)));
  }

  /** The worker has received its assignment. */
  async ack(environmentId: string, sent: AckInput): Promise<void> {
    const { runs, leaseMs } = this.#deps;
    const lasting = Math.min(sent.lease_ms ?? leaseMs, leaseMs);
    await sendable(runs.ack({ ...readFence(sent.job_id, sent), environmentId }, lasting));
  }

  /**
   * The result of one report or ack of an exchange. Never rejects: the others and the jobs must reach the
   * worker.
   */
  async resultOf(jobId: string, work: Promise<void>): Promise<ExchangeResult> {
    try {
      await work;
      return { jobId, fault: undefined };
    } catch (error) {
      if (error instanceof Fault) return { jobId, fault: error };
      this.#deps.log.error("worker.report_failed", { jobId, error });
      return { jobId, fault: new Fault("internal", "internal error") };
    }
  }
}
