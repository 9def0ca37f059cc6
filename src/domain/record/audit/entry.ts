import { subjectOf } from "../../../gate/subject.ts";
import type { Instant } from "../../../kit/clock.ts";
import { redactPayload } from "./redaction.ts";
import type { AuditEntry, AuditedCall } from "./rules.ts";
import * as rules from "./rules.ts";

/** What is recorded. */
export interface AuditPolicy {
  /** Reads that were allowed, too. */
  successfulReads: boolean;
  /** Actions whose allowed calls leave no row; denied ones always do. */
  excludedActions: ReadonlySet<string>;
  /** What changes keys of the key-value store, with its input. */
  kvCapture: boolean;
  /** Canonical names of payload fields that are removed, besides every secret. */
  redactedFields: ReadonlySet<string>;
}

export const isDenied = ({ outcome }: AuditedCall): boolean => outcome === "permission_denied";

/**
 * Whether the call leaves a row. Denials always do, and so do calls by which the platform's users impersonate
 * an org: no setting of the installation may hide these from the tenant. Data that flows all the time does
 * not: rows with the states of projections would bury what people changed. A call without an org has no chain
 * to be written to.
 */
export function isRecorded(policy: AuditPolicy, call: AuditedCall): boolean {
  const { operation, caller } = call;
  if (caller.orgId === "") return false;
  if (isDenied(call) || caller.impersonates === true) return true;
  if (operation.special?.isAudited) return true;
  if (operation.isRoutine && !(policy.kvCapture && rules.isOfKeys(operation))) return false;
  if (policy.excludedActions.has(operation.action ?? "")) return false;
  return operation.reads !== true || policy.successfulReads;
}

/** The row of a call. Only a change that was made keeps its payload, without secrets. */
export function entryOf(
  policy: AuditPolicy,
  call: AuditedCall,
  { id, at }: { id: string; at: Instant },
): AuditEntry {
  const { operation, caller, outcome, input } = call;
  const denied = isDenied(call);
  const change = rules.isChange(operation, policy.kvCapture);
  const subject = subjectOf(operation);
  const about = input === undefined ? [] : subject.idsOf(input);
  const { payload, removed } =
    change && outcome === "ok"
      ? redactPayload(input, policy.redactedFields, operation.hides)
      : { payload: undefined, removed: [] };
  return {
    id,
    orgId: caller.orgId,
    at,
    eventType: rules.eventTypeOf(call, denied, change),
    operation: operation.name,
    action: operation.action ?? "",
    reads: operation.reads === true,
    environmentId: call.environmentId,
    resourceType: subject.type,
    resourceId: rules.plain(about.length === 1 ? about[0]! : "*"),
    allowed: !denied,
    rule: denied ? (call.refusedBy ?? "operation") : "",
    outcome,
    callerKind: caller.kind,
    callerId: rules.plain(caller.id),
    roles: caller.roles,
    impersonatedOrgId: caller.impersonates ? caller.orgId : "",
    requestId: rules.plain(call.requestId),
    payload: payload ?? null,
    removed: removed.join(","),
  };
}
