import { Type } from "@sinclair/typebox";
import { AuditService } from "../../../gen/svc/v1/audit_pb.ts";
import { actsForPlatform } from "../../../kit/caller.ts";
import { inSnakeCase, recordJson, stated } from "../../../kit/cases.ts";
import { parseRfc3339 } from "../../../kit/clock.ts";
import { described, shape } from "../../../kit/described.ts";
import { invalid, missing } from "../../../kit/fault.ts";
import { type Call, type Operation, rpc, unary } from "../../../kit/operation.ts";
import { asGiven } from "../../../kit/request.ts";
import { trailOperation } from "./rules.ts";
import type { AuditPage, AuthAudit, Verified } from "./service.ts";
import { auditEventJson, auditEventMessage, authTrailRpcJson } from "./wire.ts";

const text = Type.String({ maxLength: 2_000 });
const optional = Type.Optional(text);
const limit = Type.Optional(Type.Integer());

const Page = { from: optional, to: optional, limit, cursor: optional };

interface Bounds {
  from?: string;
  to?: string;
  limit?: number;
  cursor?: string;
}

function instantOf(field: "from" | "to", given: string | undefined): number | undefined {
  if (given === undefined || given === "") return undefined;
  const at = parseRfc3339(given);
  if (at === undefined) throw invalid(field, "must be an RFC 3339 time");
  return at;
}

function boundsOf(bounds: Bounds) {
  const from = instantOf("from", bounds.from);
  const to = instantOf("to", bounds.to);
  return {
    ...stated({ from, to, limit: bounds.limit }),
    ...(bounds.cursor && { cursor: bounds.cursor }),
  };
}

/**
 * Tenants see their own org; the platform the one it names, else its own. Another's looks like one that is
 * not there.
 */
function orgOf(call: Call, named: string | undefined): string {
  const own = call.caller.orgId;
  if (!named || named === own || actsForPlatform(call.caller)) return named || own;
  throw missing("org", named);
}

const row = Type.Integer();
export const VerifiedShape = Type.Object({
  org_id: text,
  valid: shape.flag("Whether every row that was checked is what was written."),
  checked: described(row, "How many rows were checked, at most 200,000."),
  floor_sequence: described(row, "The chain begins after this row: retention deleted the rows before."),
  head_sequence: described(row, "Sequence of the last row of the chain."),
  head_hash: described(text, "Hash of that row, in hex: note it, to compare it later."),
  broken: Type.Union(
    [
      Type.Object({
        sequence: described(row, "Sequence of the row."),
        reason: described(text, "What is wrong with it."),
      }),
      Type.Null(),
    ],
    { description: "The first row that is not what was written; null without one." },
  ),
  next_sequence: Type.Union([row, Type.Null()], {
    description: "`from_sequence` to go on with; null when all is checked.",
  }),
});

const anyFields = Type.Record(Type.String(), Type.Unknown());
const cursor = described(text, "`cursor` of the page that follows; empty on the last one.");
const count = described(row, "How many rows match, counted among the newest 10,000 that an index finds.");

/** One client reads the snake_case names, another the camelCase ones and `entries`. */
const AuthTrailShape = Type.Object({
  events: Type.Array(
    Type.Object({
      id: described(text, "Id of the row (`aud_…`)."),
      run_id: described(text, "Empty, because the row is about a call and not about a run."),
      function_id: described(text, "Empty, because the row is about a call and not about a function."),
      event_type: described(text, "What happened, such as `authz.denied`."),
      payload: described(
        anyFields,
        "The call and its decision; fields that are set to be redacted are absent.",
      ),
      metadata: Type.Record(Type.String(), Type.String(), {
        description: "Sequence and hash of the row, and the id of the request.",
      }),
      environment_id: described(text, "Id of the environment; empty for what happened outside any."),
      created_at: shape.time("When the call was made, RFC 3339."),
      scope: described(text, "Whose row it is: `tenant` or `platform`."),
      platform_key_id: text,
      platform_user_id: text,
      impersonated_org_id: text,
    }),
    { description: "Rows, newest first." },
  ),
  next_cursor: cursor,
  total_count: count,
  nextCursor: described(cursor, "The same as `next_cursor`."),
  totalCount: described(count, "The same as `total_count`."),
  total_count_capped: shape.flag("There may be more than were counted."),
  truncated: shape.flag(
    "The page ended because so many rows had been looked at: its cursor goes on behind them.",
  ),
  scanned: described(row, "How many rows were looked at, where truncated."),
  entries: Type.Array(
    Type.Object({
      id: described(text, "Id of the row (`aud_…`)."),
      type: described(text, "The row's `event_type`."),
      timestamp: Type.String({ format: "date-time" }),
      data: described(anyFields, "The row's `payload`."),
    }),
    { description: "The rows of `events` in a shorter form." },
  ),
});

const verifiedJson = (orgId: string, verified: Verified) => ({
  org_id: orgId,
  ...recordJson(verified, "valid checked floorSequence headSequence headHash"),
  ...{ broken: verified.broken, next_sequence: verified.nextSequence },
});

export const AuditSettingsShape = Type.Object({
  capture_scope: described(text, "What is written down: `denials and writes`, or reads as well."),
  authz_successful_reads: shape.flag("Whether reads that were allowed are written down."),
  authz_excluded_actions: Type.Array(text, { description: "Actions that are not written down." }),
  kv_capture: shape.flag("Whether values of keys are written down."),
  payload_redaction_enabled: shape.flag("Whether fields of payloads are left out."),
  payload_redaction_fields: Type.Array(text, { description: "Names of the fields that are left out." }),
  retention_days: shape.count("Days that rows are kept; 0: without end."),
  function_recording: described(text, "Where recordings of runs stand."),
  changes_require_restart: shape.flag("Whether these settings change only with a restart."),
  delivery_guarantee: described(text, "What is promised of a row, in words."),
  delivery_healthy: shape.flag("Whether rows reach the store."),
  delivery_failure_count: shape.count(
    "How often rows did not reach the store at once, since the node began.",
  ),
});

const read = {
  action: "orgs:read",
  scope: "none",
  platformAction: "platform:audit:read",
  reads: true,
} as const;

export const auditOperations = (audit: AuthAudit): Operation[] => [
  unary({
    name: trailOperation,
    ...read,
    summary: "What callers of the org were allowed, refused and changed: newest first.",
    input: Type.Object({ org_id: optional, api_key_id: optional, action: optional, ...Page }),
    rpc: rpc(
      AuditService.method.getAuthAuditTrail,
      ({ fromTimestamp: from, toTimestamp: to, ...m }) => inSnakeCase(asGiven({ ...m, from, to })),
      (page: AuditPage) => ({
        events: page.events.map(auditEventMessage),
        totalCount: page.totalCount,
        nextCursor: page.nextCursor ?? "",
        ...{ totalCountCapped: page.isTotalCut, truncated: page.scanned > 0, scanned: page.scanned },
      }),
      { encode: authTrailRpcJson, answer: AuthTrailShape },
    ),
    handle: ({ org_id, api_key_id, action, ...bounds }, call) =>
      audit.list({
        orgId: orgOf(call, org_id),
        ...(api_key_id && { callerId: api_key_id }),
        ...(action && { action }),
        ...boundsOf(bounds),
      }),
  }),
  unary({
    name: "audit.settings",
    ...read,
    summary: "What is audited, for how long it is kept, and whether it gets there.",
    input: Type.Object({}),
    output: AuditSettingsShape,
    rest: "GET /api/v1/audit/settings",
    handle() {
      const { settings } = audit;
      const { healthy, failures } = audit.delivery();
      return {
        capture_scope: settings.successfulReads ? "denials, writes and reads" : "denials and writes",
        authz_successful_reads: settings.successfulReads,
        authz_excluded_actions: [...settings.excludedActions].sort(),
        kv_capture: settings.kvCapture,
        payload_redaction_enabled: settings.redactedFields.size > 0,
        payload_redaction_fields: [...settings.redactedFields].sort(),
        retention_days: settings.retentionDays,
        function_recording: "run_history",
        changes_require_restart: true,
        delivery_guarantee: "spooled before the answer, written at least once, kept once",
        delivery_healthy: healthy,
        delivery_failure_count: failures,
      };
    },
  }),
  unary({
    name: "audit.verify",
    ...read,
    summary: "Checks the org's chain of audit rows and names the first that is not what was written.",
    input: Type.Object({
      org_id: optional,
      from_sequence: Type.Optional(
        Type.Integer({
          minimum: 1,
          description:
            "The first row that is checked, by its sequence; the oldest that is kept when left out.",
        }),
      ),
      noted_sequence: Type.Optional(
        Type.Integer({ minimum: 1, description: "Sequence of a row whose hash the caller noted before." }),
      ),
      noted_hash: described(
        optional,
        "The hash that the caller noted, in hex; compared with that of the row.",
      ),
    }),
    output: VerifiedShape,
    rest: "GET /api/v1/audit/verify",
    async handle({ org_id, from_sequence, noted_sequence, noted_hash }, call) {
      if ((noted_sequence === undefined) !== (noted_hash === undefined))
        throw invalid("noted_hash", "must be given together with noted_sequence");
      const orgId = orgOf(call, org_id);
      const noted =
        noted_sequence === undefined ? undefined : { sequence: noted_sequence, hash: noted_hash ?? "" };
      return verifiedJson(orgId, await audit.verify(orgId, from_sequence, noted));
    },
  }),
];

interface CallQuery extends Bounds {
  action?: string;
  api_key_id?: string;
  event_type?: string;
}

/** What callers did in one environment, in the form of `GET /api/v1/audit`. */
export async function callTrailOf(audit: AuthAudit, environmentId: string, orgId: string, query: CallQuery) {
  const { action, api_key_id, event_type, ...bounds } = query;
  const page = await audit.list({
    orgId,
    environmentId,
    ...(api_key_id && { callerId: api_key_id }),
    ...(action && { action }),
    ...(event_type && { eventTypes: [event_type] }),
    ...boundsOf(bounds),
  });
  return {
    ...page,
    events: page.events.map((row) => {
      const { payload, metadata, scope, platform_key_id, platform_user_id, impersonated_org_id } =
        auditEventJson(row);
      return {
        id: row.id,
        runId: "",
        functionId: "",
        type: row.eventType,
        stepId: null,
        at: row.at,
        payload,
        environmentId: row.environmentId,
        more: { metadata, scope, platform_key_id, platform_user_id, impersonated_org_id },
      };
    }),
  };
}
