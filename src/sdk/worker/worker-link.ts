import { SvcError } from "../wire/errors.ts";
import type { Logger } from "../wire/types.ts";
import { isOlderServer, sdkVersion } from "../wire/version.ts";
import type { Assignment } from "../wire/wire.ts";
import type { Courier, CourierOptions } from "./courier.ts";
import { heartbeatJobsMax } from "./lease-thread.ts";
import { RestCourier } from "./rest-courier.ts";
import { StreamCourier } from "./stream-courier.ts";
import { type ActiveJob, leaseLost } from "./worker-jobs.ts";

/** How a worker talks to the server: over the REST routes, or over one stream. What fails throws SvcError. */
export interface WorkerLink {
  readonly courier: Courier;
  /** Makes the worker known to the server. */
  register(): Promise<void>;
  /** Throws when the job is no longer this worker's. */
  confirm(job: Assignment): Promise<void>;
  /** Renews the leases of these jobs, and gives the ids of those that the server calls lost. */
  heartbeat(jobs: readonly ActiveJob[], timeoutMs: number): Promise<ReadonlySet<string>>;
  /** Says goodbye; older servers do not know it, and one that is away does not get it. */
  leave(): Promise<void>;
}

/** What a worker says of itself when it registers. */
export interface WorkerIdentity {
  id: string;
  hostname: string | undefined;
  functionIds: string[];
  maxConcurrentJobs: number;
  labels: Record<string, string>;
  version: { sdk: string; runtime: string };
  /** By function, as the server answered its registration; filled before the worker registers. */
  definitionHashes: Readonly<Record<string, string>>;
  /** Which build of its program it is. */
  deployment: () => Promise<string>;
}

export interface WorkerLinkOptions extends CourierOptions {
  identity: WorkerIdentity;
  /** Called once the worker is registered. `leaseMs`: how long its leases last, if the server says it. */
  onLease: (leaseMs: number | undefined) => void;
  /** That answer, and each to a heartbeat: whether the server takes all that a handler waits for. */
  onTakesWaits: (takes: boolean) => void;
  /** A stream was opened: it sends the server which jobs this worker has. */
  onReopened: () => void;
  /** Runs wait until each of their steps is stored. */
  isStrict: boolean;
  /** The server has none of these functions, as after the loss of its database: registers them. */
  onUnknown: (functionIds: readonly string[]) => Promise<void>;
  /** Repeats what failed for a passing reason. */
  insist: (work: () => Promise<void>) => Promise<void>;
  /** The server ended a run that this worker works on. */
  onCancel: (jobId: string, reason: SvcError) => void;
}

/** In the answers to registrations and heartbeats. */
interface ToldAnew {
  definition_conflicts?: string[];
  open_waits?: boolean;
}

interface HeartbeatAnswer extends ToldAnew {
  cancelled_jobs?: string[];
}

interface RegisteredAnswer extends ToldAnew {
  clock_off_ms?: number;
  lease_ms?: number;
  server_version?: string;
  unknown_functions?: string[];
}

/** What this SDK's workers understand beyond the common protocol. */
const workerFeatures = ["compensation", "poll-end"];

/** Logs once that the server's clock is another one. */
function clockTeller(log: Logger): (offMs: number | undefined) => void {
  let isTold = false;
  return (offMs) => {
    if (!offMs || isTold) return;
    isTold = true;
    log.warn(
      "this machine's clock differs from the server's, by which sleeps and timeouts go; set it by NTP (svc doctor)",
      { clockOffMs: offMs },
    );
  };
}

/** Logs once that the server is older than this SDK. */
function versionTeller(log: Logger): (version: string | undefined) => void {
  let isTold = false;
  return (server = "") => {
    if (isTold || !isOlderServer(server)) return;
    isTold = true;
    log.warn(
      "the server is older than this SDK, and may not know all of it; upgrade servers first (svc server info)",
      { sdk: sdkVersion, server },
    );
  };
}

/** Logs once for each function that another worker serves another definition of it. */
function conflictTeller(log: Logger): (functionIds: readonly string[] | undefined) => void {
  const told = new Set<string>();
  return (functionIds = []) => {
    for (const functionId of functionIds) {
      if (told.has(functionId)) continue;
      told.add(functionId);
      log.warn(
        "another connected worker serves another definition of this function, or other code; runs get either (svc worker list)",
        { functionId },
      );
    }
  };
}

/** Only its workers can tell a server which functions it lost with its database. */
function registerAgain(
  { onUnknown, log }: Pick<WorkerLinkOptions, "onUnknown" | "log">,
  functionIds: readonly string[],
): Promise<void> {
  log.warn("the server does not know functions of this worker; registering them again", { functionIds });
  return onUnknown(functionIds);
}

const cancelledError = () => new SvcError("RUN_NOT_RUNNING", "the run was cancelled", { status: 409 });
const noneLost: ReadonlySet<string> = new Set();

export function restLink({
  identity,
  insist,
  onLease,
  onTakesWaits,
  ...travel
}: WorkerLinkOptions): WorkerLink {
  const { transport, asking } = travel;
  const { id, hostname, functionIds, maxConcurrentJobs, labels, version, definitionHashes } = identity;
  const workerPath = `/api/v1/workers/${encodeURIComponent(id)}`;
  const tellClock = clockTeller(travel.log);
  const tellVersion = versionTeller(travel.log);
  const tellConflicts = conflictTeller(travel.log);

  let isGone = false;
  async function register(): Promise<void> {
    // The server may answer that it does not know this worker to a report that it gets after the goodbye.
    if (isGone) return;
    const answer = await transport.send<RegisteredAnswer | undefined>({
      method: "POST",
      path: `${workerPath}/register`,
      body: {
        worker_id: id,
        ...(hostname && { hostname }),
        function_ids: functionIds,
        max_concurrent_jobs: maxConcurrentJobs,
        labels,
        version,
        features: workerFeatures,
        clock_ms: Date.now(),
        ...asking,
        deployment: await identity.deployment(),
        ...(Object.keys(definitionHashes).length > 0 && { definition_hashes: definitionHashes }),
      },
    });
    onLease(answer?.lease_ms);
    onTakesWaits(answer?.open_waits === true);
    tellClock(answer?.clock_off_ms);
    tellVersion(answer?.server_version);
    tellConflicts(answer?.definition_conflicts);
    if (answer?.unknown_functions) await registerAgain(travel, answer.unknown_functions);
  }

  return {
    courier: new RestCourier({
      ...travel,
      workerPath,
      jobsMax: maxConcurrentJobs,
      register: () => insist(register),
    }),
    register,
    async confirm({ job_id, run_id, execution_seq, lease_token }) {
      const path = `${workerPath}/jobs/${encodeURIComponent(job_id)}/ack`;
      await transport.send({ method: "PUT", path, body: { run_id, execution_seq, lease_token, ...asking } });
    },
    async heartbeat(jobs, timeoutMs) {
      // One without jobs says that the worker is there.
      for (let done = 0; done === 0 || done < jobs.length; done += heartbeatJobsMax) {
        const slice = jobs.slice(done, done + heartbeatJobsMax);
        const body = { worker_id: id, active_jobs: jobs.length, jobs: slice, ...asking };
        const request = { method: "POST", path: `${workerPath}/heartbeat`, body, timeoutMs } as const;
        const answer = await transport.send<HeartbeatAnswer | undefined>(request);
        tellConflicts(answer?.definition_conflicts);
        onTakesWaits(answer?.open_waits === true);
        for (const jobId of answer?.cancelled_jobs ?? []) travel.onCancel(jobId, cancelledError());
      }
      return noneLost;
    },
    async leave() {
      isGone = true;
      const query = new URLSearchParams({ ...asking, lease_ms: String(asking.lease_ms) });
      const request = { method: "DELETE", path: `${workerPath}?${query}`, timeoutMs: leaveMsMax } as const;
      await transport.send(request).catch(() => {});
    },
  };
}

/** The process ends: it no longer waits for an answer to its goodbye. */
const leaveMsMax = 2_000;

/** A stream whose server does not answer a heartbeat for this long is cut, and another one is opened. */
const streamAnswerMsMax = 10_000;

export function streamLink({ identity, insist: _, ...travel }: WorkerLinkOptions): WorkerLink {
  const { id, hostname, deployment, ...described } = identity;
  const registration = async () => ({
    ...(hostname && { hostname }),
    ...{ ...described, features: workerFeatures, deployment: await deployment() },
  });
  const courier = new StreamCourier({
    ...{ ...travel, workerId: id, registration },
    onUnknown: (functionId) => registerAgain(travel, [functionId]),
    tellClock: clockTeller(travel.log),
    tellVersion: versionTeller(travel.log),
    tellConflicts: conflictTeller(travel.log),
  });
  return {
    courier,
    register: () => courier.open(),
    async confirm({ job_id }) {
      const lost = await courier.heartbeat([job_id], streamAnswerMsMax);
      if (lost.has(job_id)) throw leaseLost();
    },
    heartbeat: (jobs, timeoutMs) =>
      courier.heartbeat(
        jobs.map(({ job_id }) => job_id),
        Math.min(timeoutMs, streamAnswerMsMax),
      ),
    // Its stream ends.
    leave: async () => {},
  };
}
