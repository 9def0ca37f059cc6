import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";

/** Answers whose JSON carries each name in camelCase and in snake_case: clients of either kind read them. */
export const inBothSpellings: ReadonlySet<string> = new Set([
  "svc.v1.GetPausedStateResponse",
  "svc.v1.InjectStepOutputResponse",
  "svc.v1.WebhookSource",
  "svc.v1.ListWebhookSourcesResponse",
  "svc.v1.WebhookDelivery",
  "svc.v1.ListWebhookDeliveriesResponse",
  "svc.v1.TestWebhookVerifyConfigResponse",
]);

/** The JSON of a message, while its fields are still being read or written. */
export type JsonObject = Record<string, unknown>;

/** Adds the other spelling of every field, in place. */
export function spellBoth(message: DescMessage, json: JsonObject): void {
  for (const field of message.fields) {
    const value = json[field.jsonName];
    if (value === undefined) continue;
    const inner = field.message?.typeName.startsWith("google.protobuf.") ? undefined : field.message;
    if (inner)
      for (const item of Array.isArray(value) ? value : [value])
        if (typeof item === "object" && item !== null) spellBoth(inner, item as JsonObject);
    json[field.name] = value;
  }
}

/**
 * Fields that answers carry even when zero: clients validate them as required, or compare them, while the
 * protobuf mapping leaves zeros out. Protobuf's names, by message.
 */
export const alwaysPresent: Record<string, readonly string[]> = {
  "svc.v1.Run": [
    "id",
    "function_id",
    "event_id",
    "status",
    "attempt",
    "max_attempts",
    "created_at",
    "updated_at",
  ],
  "svc.v1.Error": ["message"],
  "svc.v1.RunResult": ["run_id", "function_id", "status", "duration_ms"],
  "svc.v1.EmitResponse": ["event_id"],
  "svc.v1.TriggerResponse": ["event_id"],
  "svc.v1.TriggerSyncResponse": ["event_id"],
  "svc.v1.InvokeFunctionResponse": ["run_id", "event_id"],
  "svc.v1.ConsumerGroup": ["id", "namespace", "name", "pattern"],
  "svc.v1.TimeTravelTimelineEvent": ["id", "event_type", "summary", "significant", "timestamp"],
  "svc.v1.TimeTravelStepSnapshot": ["step_id", "name", "type", "sequence", "status", "injected", "patched"],
  "svc.v1.GetStepOutputAtResponse": ["patched"],
  "svc.v1.RegisterProjectionResponse": ["status", "last_event_seq"],
  "svc.v1.ProjectionInfo": ["name", "mode", "status", "last_event_seq"],
  "svc.v1.GetProjectionStatusResponse": ["name", "status", "mode", "last_event_seq", "lag"],
  "svc.v1.RebuildJob": [
    "job_id",
    "projection_name",
    "status",
    "events_processed",
    "total_events",
    "progress",
  ],
  "svc.v1.WaitProjectionCatchupResponse": [
    "caught_up",
    "timed_out",
    "current_seq",
    "target_seq",
    "behind_by_events",
  ],
  "svc.v1.WebhookSource": [
    "id",
    "name",
    "event_prefix",
    "source_type",
    "verify_secret_set",
    "verify_secret_prev_set",
  ],
  "svc.v1.ListWebhookSourcesResponse": ["sources", "total_count"],
  "svc.v1.WebhookDelivery": [
    "id",
    "source_id",
    "external_id",
    "status",
    "event_id",
    "error",
    "signature_key",
  ],
  "svc.v1.ListWebhookDeliveriesResponse": ["deliveries", "total_count"],
  "svc.v1.TestWebhookVerifyConfigResponse": ["verified", "presented_signatures", "error"],
  "svc.v1.Step": ["id", "run_id", "step_id", "status", "step_type", "sequence", "attempt"],
};

type Fill = (json: JsonObject) => void;

function zeroOf(field: DescField): unknown {
  switch (field.fieldKind) {
    case "list":
      return [];
    case "map":
      return {};
    case "enum":
      return field.enum.values.find((value) => value.number === 0)?.name;
    case "scalar":
      break;
    default:
      return undefined;
  }
  switch (field.scalar) {
    case ScalarType.BOOL:
      return false;
    case ScalarType.STRING:
    case ScalarType.BYTES:
      return "";
    case ScalarType.INT64:
    case ScalarType.UINT64:
    case ScalarType.SINT64:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return "0";
    default:
      return 0;
  }
}

function messageOf(field: DescField): DescMessage | undefined {
  if (field.fieldKind === "message") return field.message;
  if (
    (field.fieldKind === "list" && field.listKind === "message") ||
    (field.fieldKind === "map" && field.mapKind === "message")
  )
    return field.message;
  return undefined;
}

/** Whether any message that can stand inside this one is in the table. */
function concerns(message: DescMessage, seen = new Set<string>()): boolean {
  if (message.typeName in alwaysPresent) return true;
  if (seen.has(message.typeName)) return false;
  seen.add(message.typeName);
  return message.fields.some((field) => {
    const inner = messageOf(field);
    return inner !== undefined && concerns(inner, seen);
  });
}

const fills = new Map<string, Fill | undefined>();

/**
 * Adds what the table demands to a message's JSON, in place; undefined when there is nothing to add anywhere
 * in it.
 */
export function fillOf(message: DescMessage): Fill | undefined {
  const { typeName } = message;
  if (fills.has(typeName)) return fills.get(typeName);
  if (!concerns(message)) {
    fills.set(typeName, undefined);
    return undefined;
  }
  const zeros: [string, unknown][] = [];
  const inner: [string, DescField["fieldKind"], Fill][] = [];
  const fill: Fill = (json) => {
    for (const [name, zero] of zeros) if (json[name] === undefined) json[name] = zero;
    for (const [name, kind, fillInner] of inner) {
      const value = json[name];
      if (value === undefined || value === null) continue;
      if (kind === "message") fillInner(value as JsonObject);
      else for (const item of Object.values(value)) fillInner(item as JsonObject);
    }
  };
  // Known before its fields are looked at: messages may hold themselves.
  fills.set(typeName, fill);
  for (const name of alwaysPresent[typeName] ?? []) {
    const field = message.fields.find((candidate) => candidate.name === name);
    const zero = field && zeroOf(field);
    if (field && zero !== undefined) zeros.push([field.jsonName, zero]);
  }
  for (const field of message.fields) {
    const held = messageOf(field);
    const fillInner = held && fillOf(held);
    if (fillInner) inner.push([field.jsonName, field.fieldKind, fillInner]);
  }
  return fill;
}
