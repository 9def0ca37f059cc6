import { createHmac, timingSafeEqual } from "node:crypto";
import type { Instant } from "../../../kit/clock.ts";
import type { FaultKind } from "../../../kit/fault.ts";
import { auditTextCharsMax } from "../../../kit/limits.ts";
import type { Caller, Operation } from "../../../kit/operation.ts";

/** A call as its end is told; `input` is undefined when it was refused before it was read. */
export interface AuditedCall {
  operation: Operation;
  caller: Caller;
  environmentId: string;
  requestId: string;
  outcome: "ok" | FaultKind;
  /** What a refused caller was told. */
  message?: string | undefined;
  /** `role`, `credential` or a policy's id. */
  refusedBy?: string | undefined;
  input?: unknown;
}

/** One row before it has a place in its org's chain. */
export interface AuditEntry {
  id: string;
  orgId: string;
  at: Instant;
  /** `authz.allowed`, `authz.denied`, or what changed: `roles.create`, `platform.user.created`. */
  eventType: string;
  operation: string;
  action: string;
  reads: boolean;
  environmentId: string;
  resourceType: string;
  /** `*` when the call was about no single thing, or refused before that was known. */
  resourceId: string;
  allowed: boolean;
  /** Which rule denied; empty when none did. */
  rule: string;
  outcome: string;
  callerKind: string;
  callerId: string;
  roles: readonly string[];
  /** The tenant that a platform credential acted in; empty otherwise. */
  impersonatedOrgId: string;
  requestId: string;
  payload: string | null;
  /** Canonical names of the fields that were removed from the payload, sorted, with commas between. */
  removed: string;
}

/** A row of the chain. */
export interface AuditRow extends Omit<AuditEntry, "resourceType" | "resourceId"> {
  sequence: number;
  /** The whole IRN. */
  resource: string;
  keyId: string;
  hash: string;
}

/** Where a chain ends, and after which row it begins. */
export interface AuditHead {
  orgId: string;
  sequence: number;
  hash: string;
  floorSequence: number;
  floorHash: string;
  keyId: string;
  signature: string;
}

/** Written where a head was found that is not what was signed: what stood before it is not proved any more. */
export const mismatchEvent = "audit.head_mismatch";

/** Text as both stores take it, and no longer than needed to know it again. */
export const plain = (text: string): string =>
  text.slice(0, auditTextCharsMax).replaceAll("\0", "\ufffd").toWellFormed();

const macOf = (secret: string, text: string): string =>
  createHmac("sha256", secret).update(text).digest("base64url");

/** Covers the whole row and, by the hash before it, every row before. */
export const rowHash = (
  secret: string,
  before: string,
  row: Omit<AuditRow, "hash" | "roles"> & { roles: string },
): string =>
  macOf(
    secret,
    JSON.stringify([
      "row",
      before,
      row.orgId,
      row.sequence,
      row.id,
      row.at,
      row.eventType,
      row.operation,
      row.action,
      row.reads,
      row.environmentId,
      row.resource,
      row.allowed,
      row.rule,
      row.outcome,
      row.callerKind,
      row.callerId,
      row.roles,
      row.impersonatedOrgId,
      row.requestId,
      row.payload,
      row.removed,
      row.keyId,
    ]),
  );

export const headSignature = (secret: string, head: Omit<AuditHead, "signature">): string =>
  macOf(
    secret,
    JSON.stringify([
      "head",
      head.orgId,
      head.sequence,
      head.hash,
      head.floorSequence,
      head.floorHash,
      head.keyId,
    ]),
  );

/** For the spool: a line that somebody else wrote is not believed. */
export const lineMac = (secret: string, line: string): string => macOf(secret, `line\n${line}`);

export function sameText(one: string, other: string): boolean {
  const a = Buffer.from(one);
  const b = Buffer.from(other);
  return a.length === b.length && timingSafeEqual(a, b);
}

/** Actions of the data plane: who did what is a decision, but the content is the tenant's, and stands elsewhere. */
const dataActions = new Set([
  "events:emit",
  "events:subscribe",
  "functions:invoke",
  "runs:cancel",
  "entities:append",
  "agent:tools:invoke",
]);

export const isChange = ({ action, reads, name }: Operation, kvCapture: boolean): boolean =>
  reads !== true &&
  action !== null &&
  !dataActions.has(action) &&
  !/:(read|list|subscribe)$/.test(action) &&
  (kvCapture || !name.startsWith("kv."));

/** A change that a rule of the product stood against (`cannot delete built-in role`). */
function blockedEvent(operation: Operation, message: string | undefined): string | undefined {
  const verb = /^cannot (delete|update) built-in/.exec(message ?? "")?.[1];
  return verb && `${operation.name.slice(0, operation.name.lastIndexOf("."))}.${verb}_blocked`;
}

/** What a call's row is called. */
export function eventTypeOf(call: AuditedCall, denied: boolean, change: boolean): string {
  if (denied) return "authz.denied";
  const { operation, outcome } = call;
  if (!change) return "authz.allowed";
  if (outcome !== "ok") return blockedEvent(operation, call.message) ?? "authz.allowed";
  return operation.name;
}
