import { type Static, Type } from "@sinclair/typebox";
import { holderOf } from "../jobs/rules.ts";
import { heldJobsMax, workerLeaseMsMin } from "./limits.ts";

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
