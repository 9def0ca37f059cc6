import { type Static, Type } from "@sinclair/typebox";
import { type Instant, rfc3339 } from "../../../kit/clock.ts";
import { maybe } from "../../../kit/described.ts";
import { requireDeployment } from "../../../kit/event-names.ts";
import { invalid } from "../../../kit/fault.ts";
import { holderOf } from "../jobs/rules.ts";
import {
  clockOffMsMax,
  definitionHashCharsMax,
  heldJobsMax,
  workerFunctionsMax,
  workerJobsMax,
  workerLabelsMax,
  workerLeaseMsMin,
} from "./limits.ts";
import type { WorkerRecord } from "./rows.ts";
import { workerToken } from "./rules.ts";

/** What a worker asks of its leases; an older one asks for nothing. */
export const leaseFields = {
  lease_ms: Type.Optional(
    Type.Integer({
      minimum: workerLeaseMsMin,
      description:
        "How long a lease lasts that is not renewed, in milliseconds: at most as long as the server says.",
    }),
  ),
  instance: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 100,
      description: "What tells this process from others that have the worker's name.",
    }),
  ),
};

export const heldField = {
  held: Type.Optional(
    Type.Array(Type.String({ maxLength: 200 }), {
      maxItems: heldJobsMax,
      description:
        "All jobs of this instance, while no other request of it may bring one: any other was lost on the way.",
    }),
  ),
};

export const cancelledField = {
  cancelled_jobs: Type.Optional(
    Type.Array(Type.String(), {
      description: "Of the jobs, those whose run was cancelled: nothing of them counts any more.",
    }),
  ),
};

const Asked = Type.Object(leaseFields);

export interface LeaseTerms {
  leaseMs: number;
  /** The mark of the worker's process, if it names one. */
  holder: string | undefined;
  /** How long a living worker leaves a lease without renewing it; undefined when it asked for no time. */
  patienceMs: number | undefined;
}

/** Workers renew four times in a lease: an answer that is late by a fifth of that time is still in time. */
const patienceOf = (leaseMs: number): number => Math.ceil(leaseMs * 0.3);

export function leaseTermsOf({ lease_ms, instance }: Static<typeof Asked>, configuredMs: number): LeaseTerms {
  const leaseMs = Math.min(lease_ms ?? configuredMs, configuredMs);
  return {
    leaseMs,
    holder: instance === undefined ? undefined : holderOf(instance),
    patienceMs: lease_ms === undefined || instance === undefined ? undefined : patienceOf(leaseMs),
  };
}

/** Workers of several generations send fields that this server does not read. */
const lenient = { additionalProperties: true };

/** A registration over REST. */
export const Registration = Type.Object(
  {
    workerId: Type.String({ minLength: 1 }),
    worker_id: Type.Optional(Type.String()),
    hostname: Type.Optional(Type.String({ maxLength: 256 })),
    function_ids: Type.Array(Type.String()),
    max_concurrent_jobs: Type.Optional(Type.Integer()),
    labels: Type.Optional(
      Type.Union([Type.Record(Type.String(), Type.String({ maxLength: 256 })), Type.Null()], {
        description: "What the worker says of itself: at most 50 labels.",
      }),
    ),
    version: Type.Optional(
      Type.Union(
        [
          Type.Object(
            {
              sdk: Type.Optional(Type.String({ maxLength: 100 })),
              runtime: Type.Optional(Type.String({ maxLength: 100 })),
            },
            lenient,
          ),
          Type.Null(),
        ],
        { description: "The worker's SDK and runtime." },
      ),
    ),
    features: Type.Optional(
      Type.Array(Type.String({ maxLength: 100 }), {
        maxItems: 100,
        description: "What the worker understands beyond the common protocol: `compensation`, `poll-end`.",
      }),
    ),
    clock_ms: maybe.count("The worker's clock when it sent this, in milliseconds since 1970."),
    definition_hashes: Type.Optional(
      Type.Record(Type.String(), Type.String(), {
        description: "By function, `definition_hash` as RegisterFunction answered it.",
      }),
    ),
    deployment: Type.Optional(
      Type.Union([Type.String(), Type.Null()], {
        description:
          "Which build of its program the worker is: 1 to 128 letters, digits and `._:/@+-`, the first a letter or digit.",
      }),
    ),
    ...leaseFields,
  },
  lenient,
);

/** A registration, over REST or a stream. */
export interface RegisterWorkerInput {
  workerId: string;
  hostname?: string | undefined;
  functionIds: readonly string[];
  maxConcurrentJobs?: number | undefined;
  labels?: Record<string, string> | null | undefined;
  version?: { sdk?: string; runtime?: string } | null | undefined;
  /** What it understands beyond the common protocol: `compensation`, `poll-end`. Other words are ignored. */
  features?: readonly string[] | undefined;
  /** What tells its process from others that have its name. */
  instance?: string | undefined;
  /** Its clock when it sent this, in milliseconds since 1970. */
  clockMs?: number | undefined;
  /** By function: `definition_hash` as RegisterFunction answered it. */
  definitionHashes?: Record<string, string> | undefined;
  /** Which build of its program it is. */
  deployment?: string | null | undefined;
}

/** Both ways send the same words. */
export const registrationOf = (
  workerId: string,
  sent: Omit<Static<typeof Registration>, "workerId" | "worker_id">,
): RegisterWorkerInput => ({
  ...{ workerId, functionIds: sent.function_ids, maxConcurrentJobs: sent.max_concurrent_jobs },
  ...{ hostname: sent.hostname, labels: sent.labels, version: sent.version, features: sent.features },
  ...{ instance: sent.instance, clockMs: sent.clock_ms, definitionHashes: sent.definition_hashes },
  deployment: sent.deployment,
});

/** Throws the fault that names the first invalid field. */
export function readRegistration(
  input: RegisterWorkerInput,
  transport: WorkerRecord["transport"],
  now: Instant,
): Omit<WorkerRecord, "environmentId" | "registeredAt" | "lastHeartbeatAt"> {
  if (input.functionIds.length === 0) throw invalid("function_ids", "must name at least one function");
  if (input.functionIds.length > workerFunctionsMax)
    throw invalid("function_ids", `at most ${workerFunctionsMax} functions`);
  for (const [at, id] of input.functionIds.entries()) workerToken(`function_ids[${at}]`, id);
  const labels = Object.entries(input.labels ?? {});
  if (labels.length > workerLabelsMax) throw invalid("labels", `at most ${workerLabelsMax} labels`);
  const maxConcurrent = input.maxConcurrentJobs ?? 10;
  if (maxConcurrent < 1 || maxConcurrent > workerJobsMax)
    throw invalid("max_concurrent_jobs", `must be from 1 to ${workerJobsMax}`);
  return {
    id: workerToken("worker_id", input.workerId),
    hostname: input.hostname ?? "",
    functionIds: [...new Set(input.functionIds)],
    labels: Object.fromEntries(labels),
    sdk: input.version?.sdk ?? "",
    runtime: input.version?.runtime ?? "",
    transport,
    maxConcurrent,
    activeJobs: 0,
    compensates: input.features?.includes("compensation") ?? false,
    clockOffMs: clockOff(input.clockMs, now),
    definitionHashes: readHashes(input),
    holder: input.instance === undefined ? null : holderOf(input.instance),
    pollEnd: input.features?.includes("poll-end") ?? false,
    deployment: input.deployment == null ? null : requireDeployment(input.deployment),
  };
}

function readHashes({
  definitionHashes = {},
  functionIds,
}: RegisterWorkerInput): WorkerRecord["definitionHashes"] {
  const hashes = Object.entries(definitionHashes);
  if (hashes.length === 0) return null;
  const served = new Set(functionIds);
  for (const [id, hash] of hashes) {
    if (!served.has(id)) throw invalid("definition_hashes", "must name functions of function_ids");
    if (!/^\w+$/.test(hash) || hash.length > definitionHashCharsMax)
      throw invalid(
        `definition_hashes[${JSON.stringify(id)}]`,
        `must be from 1 to ${definitionHashCharsMax} letters and digits`,
      );
  }
  return Object.fromEntries(hashes);
}

/** By how much a worker's clock is ahead of the server's; null while it is right, or not known. */
function clockOff(clockMs: number | undefined, now: Instant): number | null {
  const offMs = clockMs === undefined ? 0 : Math.round(clockMs - now);
  return Math.abs(offMs) > clockOffMsMax ? offMs : null;
}

/** A worker as `GET /workers` shows it; `conflicts`: functions that others serve with another definition. */
export const workerJson = (worker: WorkerRecord, conflicts: readonly string[]) => ({
  id: worker.id,
  hostname: worker.hostname,
  function_ids: worker.functionIds,
  labels: worker.labels,
  version: { sdk: worker.sdk, runtime: worker.runtime },
  ...(worker.deployment !== null && { deployment: worker.deployment }),
  transport: worker.transport,
  active_jobs: worker.activeJobs,
  max_concurrent: worker.maxConcurrent,
  registered_at: rfc3339(worker.registeredAt),
  last_heartbeat: rfc3339(worker.lastHeartbeatAt),
  ...(worker.clockOffMs !== null && { clock_off_ms: worker.clockOffMs }),
  ...(conflicts.length > 0 && { definition_conflicts: conflicts }),
});
