import { Fault } from "../../../kit/fault.ts";
import { jsonText } from "../../../kit/payload-json.ts";
import { textAt, type WebhookContent } from "./content.ts";
import type { VerifyConfig } from "./presets.ts";
import * as rules from "./rules.ts";

/** The name of the event that a request becomes: by the configured path, else by the body's own `type`. */
export function nameIn(
  { event_prefix, config }: { event_prefix: string; config: VerifyConfig | undefined },
  { headers }: Pick<WebhookContent, "headers">,
  data: unknown,
): string {
  const path = config?.eventNamePath ?? "";
  const type = textAt(path === "" ? "body:type" : path, { headers, data });
  if (type) return rules.eventNameOf(event_prefix, type);
  if (path === "") return rules.eventNameOf(event_prefix, rules.namelessType);
  throw new Fault("invalid_argument", `event name: there is nothing at ${path}`, { field: "event name" });
}

/** What is emitted for a delivery; its metadata says who sent it. Only the server says `source: webhook`. */
export function eventDraft(
  sourceId: string,
  ids: { deliveryId: string; externalId: string; redeliveredFrom?: string },
  name: string,
  value: unknown,
) {
  const { deliveryId, externalId, redeliveredFrom } = ids;
  const metadataValue = {
    webhook: {
      ...{ source_id: sourceId, delivery_id: deliveryId },
      ...(externalId !== "" && { external_id: externalId }),
      ...(redeliveredFrom !== undefined && { redelivered_from: redeliveredFrom }),
    },
  };
  const isKeyed = externalId !== "" && redeliveredFrom === undefined;
  return {
    name,
    version: 1,
    value,
    data: jsonText("body", value),
    metadata: JSON.stringify(metadataValue),
    metadataValue,
    idempotencyKey: isKeyed ? rules.dedupKey(sourceId, externalId) : null,
    ...(isKeyed && { ownKey: true as const }),
  };
}
