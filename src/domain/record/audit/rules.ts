import { createHmac, timingSafeEqual } from "node:crypto";
import type { Caller } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { FaultKind } from "../../../kit/fault.ts";
import type { Operation } from "../../../kit/operation.ts";
import { auditTextCharsMax } from "./limits.ts";

/** A call when it ends; `input` is undefined when the call was refused before its input was read. */
export interface AuditedCall {
  operation: Operation;
  caller: Caller;
  environmentId: string;
  requestId: string;
  outcome: "ok" | FaultKind;
  /** The message that a refused caller got. */
  message?: string | undefined;
  /** `role`, `credential` or a policy's id. */
  refusedBy?: string | undefined;
  input?: unknown;
}

/** The operation that answers the rows of an org. */
export const trailOperation = "audit.authTrail";

/** A row before it has a position in its org's chain. */
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
  /** `*` when the call named no single resource, or was refused before that was known. */
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

/** The end of a chain, and the row after which it begins. */
export interface AuditHead {
  orgId: string;
  sequence: number;
  hash: string;
  floorSequence: number;
  floorHash: string;
  keyId: string;
  signature: string;
}

/** The event of a head that is not what was signed: rows before it are no longer proved. */
export const mismatchEvent = "audit.head_mismatch";

/** Text that both stores accept, cut to a length that still identifies it. */
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

/** For the spool: a line without this signature is ignored. */
export const lineMac = (secret: string, line: string): string => macOf(secret, `line\n${line}`);

export function sameText(one: string, other: string): boolean {
  const a = Buffer.from(one);
  const b = Buffer.from(other);
  return a.length === b.length && timingSafeEqual(a, b);
}

/** Actions of the data plane: their calls are recorded, but never their content, which other tables hold. */
const dataActions = new Set([
  "events:emit",
  "events:subscribe",
  "functions:invoke",
  "runs:cancel",
  "runs:signal",
  "entities:append",
  "agent:tools:invoke",
]);

export const isOfKeys = ({ name }: Operation): boolean => name.startsWith("kv.");

export const isChange = (operation: Operation, kvCapture: boolean): boolean =>
  operation.reads !== true &&
  operation.action !== null &&
  (operation.special?.isAudited || !dataActions.has(operation.action)) &&
  !/:(read|list|subscribe)$/.test(operation.action) &&
  (kvCapture || !isOfKeys(operation));

/** A change that a rule of the product refused, such as `cannot delete built-in role`. */
function blockedEvent(operation: Operation, message: string | undefined): string | undefined {
  const verb = /^cannot (delete|update) built-in/.exec(message ?? "")?.[1];
  return verb && `${operation.name.slice(0, operation.name.lastIndexOf("."))}.${verb}_blocked`;
}

/** The event type of a call's row. */
export function eventTypeOf(call: AuditedCall, denied: boolean, change: boolean): string {
  if (denied) return "authz.denied";
  const { operation, outcome } = call;
  if (!change) return "authz.allowed";
  if (outcome !== "ok") return blockedEvent(operation, call.message) ?? "authz.allowed";
  return operation.name;
}
