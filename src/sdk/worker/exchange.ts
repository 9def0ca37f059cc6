import { SvcError } from "../wire/errors.ts";
import type { Transport } from "../wire/transport.ts";
import type { Assignment, Outcome, Report } from "../wire/wire.ts";
import type { LeaseAsking } from "./lease.ts";

export interface Exchanged {
  /** One per report, in their order. */
  outcomes: Outcome[];
  jobs: Assignment[];
}

/** How reports and jobs travel. Throws SvcError when the request as a whole failed. */
export interface Wire {
  exchange(reports: readonly Report[], available: number): Promise<Exchanged>;
  /** The server holds the request until a job is there, or for as long as it holds a poll. */
  /** `said` are further fields of the request. */
  poll(available: number, signal: AbortSignal, said: string): Promise<Assignment[]>;
}

interface ExchangeAnswer {
  results?: { job_id: string; status?: string | number; error?: string; message?: string }[];
  jobs?: Assignment[];
}

/** The server holds a poll for 5 s by default, and no longer than this where its operator chose more. */
const pollHoldMs = 10_000;
/** A connection that is dead and does not say so is left after this: until then its worker gets no jobs. */
const pollTimeoutMs = 2 * pollHoldMs;
/** The other route is held for as long as the operator chose. */
const plainPollTimeoutMs = 90_000;

const isWord = /^[A-Z][A-Z0-9_]*$/;

function outcomeOf(result: NonNullable<ExchangeAnswer["results"]>[number] | undefined): Outcome {
  if (result === undefined) {
    return new SvcError("bad_answer", "the server says nothing of a report", {
      status: 503,
      retryable: true,
    });
  }
  const { status, error, message = error } = result;
  return error === undefined
    ? undefined
    : errorOfReport(typeof status === "number" ? status : 409, error, message ?? error);
}

/** Why a report was not stored. Without a word of its own an error is its message. */
export function errorOfReport(status: number, error: string, message: string): SvcError {
  const retryable = status >= 500 || status === 429 || status === 408;
  const code = isWord.test(error) ? error : status === 400 ? "invalid_argument" : `http_${status}`;
  return new SvcError(code, message, { status, retryable });
}

/** Reports and the next jobs in one round trip; jobs handed out this way need no ack. */
export function exchangeWire(transport: Transport, workerPath: string, asking: LeaseAsking): Wire {
  const path = `${workerPath}/exchange`;
  const asked = () => `"lease_ms":${asking.lease_ms},"instance":"${asking.instance}"`;
  return {
    async exchange(reports, available) {
      const texts = reports.map((report) => report.text).join(",");
      const text = `{"reports":[${texts}],"available":${available},${asked()}}`;
      const answer = await transport.send<ExchangeAnswer>({ method: "POST", path, text });
      const results = answer?.results ?? [];
      const inOrder = results.length === reports.length;
      const byJob = inOrder ? undefined : new Map(results.map((result) => [result.job_id, result]));
      return {
        outcomes: reports.map((report, at) => outcomeOf(byJob ? byJob.get(report.jobId) : results[at])),
        jobs: answer?.jobs ?? [],
      };
    },
    async poll(available, signal, said) {
      const text = `{"reports":[],"available":${available},"hold_ms":${pollHoldMs},${asked()}${said}}`;
      const request = { method: "POST" as const, path, text, signal, timeoutMs: pollTimeoutMs };
      return (await transport.send<ExchangeAnswer>(request))?.jobs ?? [];
    },
  };
}

/** The routes every server has: one request per report, and an ack per job. */
export function singleWire(transport: Transport, workerPath: string): Wire {
  const jobPath = (jobId: string) => `${workerPath}/jobs/${encodeURIComponent(jobId)}`;

  /** Whether the job is this worker's now; any refusal means that it is not. */
  async function acknowledge(job: Assignment): Promise<boolean> {
    const { run_id, execution_seq, lease_token } = job;
    try {
      await transport.send({
        method: "PUT",
        path: `${jobPath(job.job_id)}/ack`,
        body: { run_id, execution_seq, lease_token },
      });
      return true;
    } catch {
      return false;
    }
  }

  return {
    async exchange(reports) {
      const send = ({ jobId, text }: Report): Promise<Outcome> =>
        transport.send({ method: "PUT", path: jobPath(jobId), text }).then(
          () => undefined,
          (error: SvcError) => error,
        );
      return { outcomes: await Promise.all(reports.map(send)), jobs: [] };
    },
    async poll(available, signal) {
      const path = `${workerPath}/jobs?available=${available}`;
      const answer = await transport.send<{ jobs?: Assignment[] } | undefined>({
        method: "GET",
        path,
        signal,
        timeoutMs: plainPollTimeoutMs,
      });
      const jobs = answer?.jobs ?? [];
      const ours = await Promise.all(jobs.map(acknowledge));
      return jobs.filter((_, at) => ours[at]);
    },
  };
}
