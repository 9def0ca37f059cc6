import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { pushCallsEndpointMax, pushCallsMax, pushFunctionsMax, pushHoldMs } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { Breakers, Endpoint } from "../breakers/service.ts";
import type { Assignments } from "../dispatch/assignments.ts";
import type { FunctionDefinition } from "../functions/definition.ts";
import type { Job } from "../jobs/rules.ts";
import type { ReportBody } from "../workers/report-body.ts";
import { type CallEndpoint, TransportFailure } from "./endpoint-call.ts";
import { reportOfAnswer, requestBody } from "./rules.ts";

export interface Push {
  /** The tick of loop `push.look`: serves the functions in push mode that there are now. */
  lookOnce(): Promise<void>;
  /** Takes no further job; resolves once no call is under way. */
  drain(): Promise<void>;
}

export interface PushDeps {
  store: Store;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  /** Names this node's caller as the holder of leases. */
  nodeId: string;
  assignments: Pick<Assignments, "toPush">;
  breakers: Breakers;
  definitionAt: (environmentId: string, functionId: string, version: number) => Promise<FunctionDefinition>;
  call: CallEndpoint;
  /** Jobs that are not to be called now return to the queue. */
  giveBack: (jobs: readonly Job[]) => void;
  /** What the job's run is pinned to cannot be read. */
  onDefinitionUnread: (job: Job, error: unknown) => void;
  signingKey: () => string;
  /** The same way as a worker's report. */
  report: (job: Job, report: ReportBody) => Promise<void>;
  /** Of one whole call; never so long that the lease ends before. */
  timeoutMs: number;
}

/** An endpoint that is spared is looked at again after this. */
const sparedMs = 500;
/** A report that the store could not take is sent again, so often. */
const reportTriesMax = 5;

interface ServedFunction {
  environmentId: string;
  functionId: string;
  /** Of the definition that names the endpoint. */
  version: number;
  endpointUrl: string;
  stop: AbortController;
  /** Ends the poll that is held now. */
  poll: AbortController;
  inFlight: number;
  running: Promise<void>;
}

/** Runs of functions in push mode: this node takes their jobs as a worker would, and calls their endpoints. */
export function openPush(deps: PushDeps): Push {
  const { store, clock, log, assignments, breakers, definitionAt, call } = deps;
  const calls = deps.metrics.counter({
    name: "svc_push_calls_total",
    help: "Calls to endpoints of push functions, by outcome.",
    labels: ["outcome"],
  });
  const served = new Map<string, ServedFunction>();
  const underWay = new Set<Promise<void>>();
  let inFlight = 0;
  let draining = false;
  const waiting = new Set<() => void>();

  const freed = () => {
    for (const go of waiting) go();
    waiting.clear();
  };
  const roomAt = (one: ServedFunction) =>
    Math.min(pushCallsEndpointMax - one.inFlight, pushCallsMax - inFlight);

  async function serve(one: ServedFunction): Promise<void> {
    const { environmentId, functionId } = one;
    const { signal } = one.stop;
    while (!signal.aborted) {
      try {
        const room = roomAt(one);
        if (room <= 0) {
          await new Promise<void>((resolve) => waiting.add(resolve));
          continue;
        }
        const admitted = await breakers.admits(one);
        if (admitted === "open") {
          await clock.sleep(sparedMs, signal);
          continue;
        }
        const isTrial = admitted === "trial";
        one.poll = new AbortController();
        const jobs = await assignments.toPush({
          environmentId,
          workerId: `push-${deps.nodeId}`,
          functionIds: [functionId],
          available: isTrial ? 1 : room,
          holdMs: isTrial ? 0 : pushHoldMs,
          reports: false,
          signal: AbortSignal.any([signal, one.poll.signal]),
        });
        // Opened while the poll was held: nothing is called, and no attempt is spent.
        if (!isTrial && jobs.length > 0 && breakers.isOpen(one)) {
          deps.giveBack(jobs);
          continue;
        }
        if (isTrial && jobs.length === 0) {
          await breakers.untried(one);
          await clock.sleep(sparedMs, signal);
        }
        const begun = jobs.map((job) => begin(one, job));
        if (isTrial) await Promise.all(begun);
      } catch (error) {
        log.warn("push.failed", { functionId, error: String(error) });
        await clock.sleep(sparedMs, signal);
      }
    }
  }

  function begin(one: ServedFunction, job: Job): Promise<void> {
    one.inFlight++;
    inFlight++;
    const handled = handle(one, job)
      .catch((error) => log.warn("push.unreported", { runId: job.runId, error: String(error) }))
      .finally(() => {
        one.inFlight--;
        inFlight--;
        underWay.delete(handled);
        freed();
      });
    underWay.add(handled);
    return handled;
  }

  async function handle(one: ServedFunction, job: Job): Promise<void> {
    const { environmentId, functionId } = job;
    let definition: FunctionDefinition;
    try {
      definition = await definitionAt(environmentId, functionId, job.functionVersion);
    } catch (error) {
      return deps.onDefinitionUnread(job, error);
    }
    // Pinned to a version that workers pulled: it knows no endpoint, and no worker is asked any more.
    const { endpointUrl = one.endpointUrl } = definition;
    const endpoint: Endpoint = { environmentId, functionId, endpointUrl };
    // Another version's endpoint has a breaker of its own. The job waits here for a moment, so that it does not come right back.
    if (endpointUrl !== one.endpointUrl && (await breakers.admits(endpoint)) === "open") {
      await clock.sleep(sparedMs, one.stop.signal);
      deps.giveBack([job]);
      return;
    }
    const begunAt = clock.now();
    let report: Record<string, unknown> | undefined;
    try {
      const answer = await call({
        url: endpointUrl,
        body: requestBody(job),
        signingKey: deps.signingKey(),
        timeoutMs: deps.timeoutMs,
      });
      report = reportOfAnswer(answer, job);
      if (!report)
        throw new TransportFailure("the endpoint's answer says neither completed, yielded nor failed");
      calls("answered").add(1);
      await noted(breakers.succeeded(endpoint, begunAt), endpoint);
    } catch (error) {
      if (!(error instanceof TransportFailure)) throw error;
      calls("failed").add(1);
      await noted(breakers.failed(endpoint), endpoint);
      if (breakers.isOpen(endpoint)) served.get(`${environmentId}\n${functionId}`)?.poll.abort();
      report = failure(job, { message: error.message, code: "PUSH_TRANSPORT", retryable: true });
    }
    await send(job, report as ReportBody);
  }

  /** What the breaker cannot note costs the next calls their caution, and this job nothing: its report must be sent. */
  const noted = (note: Promise<void>, { environmentId, functionId }: Endpoint): Promise<void> =>
    note.catch((error) => log.warn("push.breaker_unnoted", { environmentId, functionId, error }));

  async function send(job: Job, report: ReportBody): Promise<void> {
    for (let tries = 1; ; tries++) {
      try {
        return await deps.report(job, report);
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
        // The run went on without us, or has failed for what the endpoint answered.
        if (error.kind === "aborted" || error.kind === "not_found" || error.kind === "invalid_argument")
          return;
        if (tries === reportTriesMax) throw error;
        await clock.sleep(200 * tries);
      }
    }
  }

  const failure = (job: Job, error: Record<string, unknown>): Record<string, unknown> => ({
    status: "failed",
    execution_seq: job.executionSeq,
    lease_token: job.leaseToken,
    error,
  });

  return {
    async lookOnce() {
      if (draining) return;
      const rows = await store.all<{ environment_id: string; id: string; version: number }>(
        // The first of every environment before the second of any: none is left out because another has so many.
        sql`SELECT environment_id, id, version FROM (SELECT environment_id, id, version,
              row_number() OVER (PARTITION BY environment_id ORDER BY id) AS nth
            FROM functions WHERE mode = 'push' AND status = 'active'
              AND EXISTS (SELECT 1 FROM heads h WHERE h.environment_id = functions.environment_id)) f
          ORDER BY nth, environment_id, id LIMIT ${pushFunctionsMax}`,
      );
      const wanted = new Map(rows.map((row) => [`${row.environment_id}\n${row.id}`, row]));
      // Definitions are read and parsed when they are new, not every second.
      const endpointOf = ({ environment_id, id, version }: (typeof rows)[number]) =>
        definitionAt(environment_id, id, version).then(
          ({ endpointUrl = "" }) => endpointUrl,
          // Deleted since it was listed: the next look does not see it.
          (error) => void log.warn("push.unread", { functionId: id, error: String(error) }),
        );
      for (const [key, one] of served) {
        const row = wanted.get(key);
        if (row && (row.version === one.version || (await endpointOf(row)) === one.endpointUrl)) {
          one.version = row.version;
          continue;
        }
        one.stop.abort();
        served.delete(key);
        freed();
      }
      for (const [key, row] of wanted) {
        if (served.has(key)) continue;
        const endpointUrl = await endpointOf(row);
        if (draining) return;
        if (endpointUrl === undefined) continue;
        const one: ServedFunction = {
          environmentId: row.environment_id,
          functionId: row.id,
          version: row.version,
          endpointUrl,
          stop: new AbortController(),
          poll: new AbortController(),
          inFlight: 0,
          running: Promise.resolve(),
        };
        served.set(key, one);
        one.running = serve(one);
      }
    },

    async drain() {
      draining = true;
      const all = [...served.values()];
      for (const one of all) one.stop.abort();
      served.clear();
      freed();
      await Promise.all([...all.map((one) => one.running), ...underWay]);
    },
  };
}
