import { createHmac } from "node:crypto";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import {
  type OutwardCallerDeps,
  openOutwardCaller,
  readJson,
  TransportFailure,
} from "../../../kit/outward-call.ts";
import { traceparentOf } from "../../../kit/trace.ts";
import type { Basics } from "../../../store/store.ts";
import type { Breakers, Endpoint } from "../breakers/service.ts";
import type { FunctionDefinition } from "../functions/definition.ts";
import type { DefinitionAt } from "../functions/definitions.ts";
import type { Job } from "../jobs/rules.ts";
import type { ReportBody } from "../workers/report-body.ts";
import { failureReport, reportOfAnswer, requestBody } from "./rules.ts";

export interface EndpointCall {
  url: string;
  /** JSON text; sent unchanged, because the signature covers its bytes. */
  body: string;
  /** Text of the shared key; undefined sends no signature. */
  signingKey: string | undefined;
  timeoutMs: number;
  /** Header of that name; undefined for a run without a trace. */
  traceparent?: string | undefined;
}

export interface EndpointCallerDeps extends OutwardCallerDeps {
  clock: Clock;
  answerBytesMax: number;
  /** Changes an answer before anything in it is refused. */
  mend?: (answer: unknown) => void;
}

/**
 * Two signatures in one header, the old form first: old verifiers read hex up to the comma, new ones read `t`
 * and `v1`. The new form covers the time: an endpoint can refuse a recorded request that is sent again.
 */
export function signatureOf(key: string, body: string, unixSeconds: number): string {
  const hmac = (text: string) => createHmac("sha256", key).update(text).digest("hex");
  return `sha256=${hmac(body)},t=${unixSeconds},v1=${hmac(`${unixSeconds}.${body}`)}`;
}

/** Posts to endpoints of push functions, whose answer is JSON. */
export function openEndpointCaller({ answerBytesMax, mend, ...deps }: EndpointCallerDeps) {
  const post = openOutwardCaller(deps);

  async function read(response: Response): Promise<unknown> {
    if (response.status !== 200) {
      await response.body?.cancel();
      throw new TransportFailure(`the endpoint answered ${response.status}`);
    }
    return readJson(response, answerBytesMax, mend);
  }

  return function call({ url, body, signingKey, timeoutMs, traceparent }: EndpointCall): Promise<unknown> {
    const seconds = Math.floor(deps.clock.now() / 1_000);
    const headers = {
      ...(signingKey !== undefined && { "X-Svc-Signature": signatureOf(signingKey, body, seconds) }),
      ...(traceparent !== undefined && { traceparent }),
    };
    return post({ url, body, headers, timeoutMs }, read);
  };
}

type CallEndpoint = ReturnType<typeof openEndpointCaller>;

/** How long an endpoint whose breaker is open is left alone before the breaker is asked again. */
export const sparedMs = 500;
/** How often a report is sent that the store could not take. */
const reportTriesMax = 5;

export interface JobCallsDeps extends Basics<"clock" | "log" | "metrics"> {
  breakers: Breakers;
  definitionAt: DefinitionAt;
  call: CallEndpoint;
  /** Jobs that are not to be called now return to the queue. */
  giveBack: (jobs: readonly Job[]) => void;
  /** The version that the job's run is pinned to cannot be read. */
  onDefinitionUnread: (job: Job, error: unknown) => void;
  /** The breaker of a function's endpoint has opened. */
  onOpened: (endpoint: Endpoint) => void;
  signingKey: () => string;
  /** See `WorkersDeps`. */
  takesWaits: () => Promise<boolean>;
  /** Commits the report the same way as a worker's. */
  report: (job: Job, report: ReportBody) => Promise<void>;
  /** Of one whole call; shorter than the lease, so that the run is not assigned twice. */
  timeoutMs: number;
}

/** Calls endpoints with jobs, and reports what they answer. */
export class JobCalls {
  readonly #deps: JobCallsDeps;
  readonly #count: ReturnType<typeof callCounter>;
  readonly #underWay = new Set<Promise<void>>();

  constructor(deps: JobCallsDeps) {
    this.#deps = deps;
    this.#count = callCounter(deps.metrics);
  }

  /** Resolves, and calls `onEnd`, when the job is reported or has returned to the queue. Never rejects. */
  begin(job: Job, currentUrl: string, stopped: AbortSignal, onEnd: () => void): Promise<void> {
    const handled = this.#handle(job, currentUrl, stopped)
      .catch((error) => this.#deps.log.warn("push.unreported", { runId: job.runId, error }))
      .finally(() => {
        this.#underWay.delete(handled);
        onEnd();
      });
    this.#underWay.add(handled);
    return handled;
  }

  /** The calls that are under way now are over. */
  async settled(): Promise<void> {
    await Promise.all(this.#underWay);
  }

  async #handle(job: Job, currentUrl: string, stopped: AbortSignal): Promise<void> {
    const { clock, breakers, definitionAt, giveBack, onDefinitionUnread } = this.#deps;
    const { environmentId, functionId } = job;
    let definition: FunctionDefinition;
    try {
      definition = await definitionAt(environmentId, functionId, job.functionVersion);
    } catch (error) {
      return onDefinitionUnread(job, error);
    }
    // A run that is pinned to a version in pull mode has no endpoint of its own, and workers no longer poll
    // for it.
    const { endpointUrl = currentUrl } = definition;
    const endpoint: Endpoint = { environmentId, functionId, endpointUrl };
    // The endpoint of an older version has its own breaker. Without the pause the job would come back at
    // once.
    if (endpointUrl !== currentUrl && (await breakers.admits(endpoint)) === "open") {
      await clock.sleep(sparedMs, stopped);
      giveBack([job]);
      return;
    }
    await this.#send(job, await this.#reportOfCall(job, endpoint, definition.compensateOn !== undefined));
  }

  async #reportOfCall(job: Job, endpoint: Endpoint, compensates: boolean): Promise<ReportBody> {
    const { clock, breakers, call, onOpened, signingKey, takesWaits, timeoutMs } = this.#deps;
    const begunAt = clock.now();
    const { endpointUrl: url } = endpoint;
    try {
      const answer = await call({
        url,
        body: requestBody(job, { compensates, openWaits: await takesWaits() }),
        signingKey: signingKey(),
        traceparent: job.trace && traceparentOf(job.trace),
        timeoutMs,
      });
      const report = reportOfAnswer(answer, job);
      if (!report)
        throw new TransportFailure(
          "the endpoint's answer has no valid status (one of completed, yielded, failed) or is malformed",
        );
      this.#count("answered").add(1);
      await this.#noted(breakers.succeeded(endpoint, begunAt), endpoint);
      return report as ReportBody;
    } catch (error) {
      if (!(error instanceof TransportFailure)) throw error;
      this.#count("failed").add(1);
      await this.#noted(breakers.failed(endpoint), endpoint);
      if (breakers.isOpen(endpoint)) onOpened(endpoint);
      return failureReport(job, { message: error.message, code: "PUSH_TRANSPORT", retryable: true });
    }
  }

  /** The job is reported even if the breaker cannot store the outcome of its call. */
  #noted(note: Promise<void>, { environmentId, functionId }: Endpoint): Promise<void> {
    const { log } = this.#deps;
    return note.catch((error) => log.warn("push.breaker_unnoted", { environmentId, functionId, error }));
  }

  async #send(job: Job, report: ReportBody): Promise<void> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.#deps.report(job, report);
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
        // The lease was lost, or the report has failed the run: sending it again changes nothing.
        if (error.kind === "aborted" || error.kind === "not_found" || error.kind === "invalid_argument")
          return;
        if (tries === reportTriesMax) throw error;
        await this.#deps.clock.sleep(200 * tries);
      }
    }
  }
}

const callCounter = (metrics: Metrics) =>
  metrics.counter({
    name: "svc_push_calls_total",
    help: "Calls to endpoints of push functions, by outcome.",
    labels: ["outcome"],
  });
