import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import type { AuditEventSchema } from "../../../gen/svc/v1/audit_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { timestampOf } from "../../../kit/wkt.ts";
import type { AuditRow } from "./rules.ts";
import type { AuditPage } from "./service.ts";

const scopeOf = (row: AuditRow): string => (row.callerKind === "platform" ? "platform" : "tenant");

const isPlatformUser = (row: AuditRow) => row.callerKind === "platform" && row.callerId.startsWith("puser_");

function payloadOf(row: AuditRow): JsonObject {
  return {
    operation: row.operation,
    action: row.action,
    resource: row.resource,
    decision: row.allowed ? "allowed" : "denied",
    ...(row.rule !== "" && { rule: row.rule }),
    outcome: row.outcome,
    caller_kind: row.callerKind,
    api_key_id: row.callerId,
    roles: [...row.roles],
    ...(row.payload !== null && { input: JSON.parse(row.payload) as JsonObject }),
  };
}

const metadataOf = (row: AuditRow): Record<string, string> => ({
  sequence: String(row.sequence),
  hash: row.hash,
  request_id: row.requestId,
  ...(row.removed !== "" && { audit_redacted_fields: row.removed }),
});

const platformOf = (row: AuditRow) => ({
  platformKeyId: row.callerKind === "platform" && !isPlatformUser(row) ? row.callerId : "",
  platformUserId: isPlatformUser(row) ? row.callerId : "",
  impersonatedOrgId: row.impersonatedOrgId,
});

export const auditEventJson = (row: AuditRow) => {
  const { platformKeyId, platformUserId, impersonatedOrgId } = platformOf(row);
  return {
    id: row.id,
    run_id: "",
    function_id: "",
    event_type: row.eventType,
    payload: payloadOf(row),
    metadata: metadataOf(row),
    environment_id: row.environmentId,
    created_at: rfc3339(row.at),
    scope: scopeOf(row),
    platform_key_id: platformKeyId,
    platform_user_id: platformUserId,
    impersonated_org_id: impersonatedOrgId,
  };
};

export const auditEventMessage = (row: AuditRow): MessageInitShape<typeof AuditEventSchema> => ({
  id: row.id,
  eventType: row.eventType,
  payload: payloadOf(row),
  metadata: metadataOf(row),
  createdAt: timestampOf(row.at),
  environmentId: row.environmentId,
  scope: scopeOf(row),
  ...platformOf(row),
});

/** The same body over RPC, in both spellings and with the entries that one client reads instead. */
export const authTrailRpcJson = (page: AuditPage) => ({
  events: page.events.map(auditEventJson),
  next_cursor: page.nextCursor ?? "",
  total_count: page.totalCount,
  nextCursor: page.nextCursor ?? "",
  totalCount: page.totalCount,
  ...{ truncated: page.scanned > 0, scanned: page.scanned, total_count_capped: page.isTotalCut },
  entries: page.events.map((row) => ({
    id: row.id,
    type: row.eventType,
    timestamp: rfc3339(row.at),
    data: payloadOf(row),
  })),
});
