import type { DescMessage } from "@bufbuild/protobuf";

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
