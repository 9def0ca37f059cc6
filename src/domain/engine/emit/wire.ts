import type { JsonObject } from "@bufbuild/protobuf";
import { Type } from "@sinclair/typebox";
import { rfc3339 } from "../../../kit/clock.ts";
import { CutValueRecord, cutValues } from "../../../kit/cut-values.ts";
import { maybe, shape } from "../../../kit/described.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import { eventFields, keyField } from "../../../kit/stored-event.ts";
import { type DataMessage, dataOf } from "../../../kit/wkt.ts";
import type { LoggedEvent } from "../../log/core/service.ts";
import type { EmitInput } from "./rules.ts";

/** `TriggerRequest`, `TriggerSyncRequest` and `EmitRequest`, as messages. */
interface TriggerMessage extends DataMessage {
  event: string;
  version: number;
  metadata?: JsonObject | undefined;
  idempotencyKey: string;
  delayMs?: bigint | undefined;
  at?: string | undefined;
  tellUnserved?: boolean;
}

export const fromMessage = (m: TriggerMessage): EmitInput => ({
  event: m.event,
  version: m.version,
  idempotencyKey: m.idempotencyKey,
  ...dataOf(m),
  ...(m.metadata !== undefined && { metadata: m.metadata }),
  ...(m.delayMs !== undefined && { delayMs: Number(m.delayMs) }),
  ...(m.at !== undefined && { at: m.at }),
  ...(m.tellUnserved && { tellUnserved: true }),
});

/** The same from plain JSON: payloads never become messages on the hot path. */
export function fromBody(body: Record<string, unknown>): Record<string, unknown> {
  if (!("dataValue" in body || "namespace" in body)) return body;
  const { dataValue, namespace: _namespace, ...rest } = body;
  return dataValue === undefined ? rest : { ...rest, data: dataValue };
}

/** An event as REST shows it. */
export const EventRecord = Type.Object({
  id: shape.text("Id of the event (`evt_…`)."),
  name: shape.text("Name of the event."),
  data: Type.Unknown({ description: "Payload of the event: any JSON." }),
  source: shape.text("Where the event came from: `api`, `cron`, `webhook` and others."),
  version: shape.count("Version of the event's schema."),
  sequence: shape.text("64-bit position in the environment's log"),
  timestamp: Type.String({ format: "date-time" }),
  created_at: Type.String({ format: "date-time" }),
  processed: Type.Boolean(),
  metadata: Type.Optional(Type.Unknown({ description: "What the sender said beside the payload." })),
  idempotency_key: Type.Optional(Type.String()),
  entity_id: Type.Optional(Type.String()),
  entity_type: Type.Optional(Type.String()),
  entity_version: Type.Optional(Type.Integer()),
  run_id: Type.Optional(Type.String()),
  redacted_at: Type.Optional(Type.String({ format: "date-time" })),
  schema_hash: maybe.text("The schema that its data was checked by."),
  schema_breach: maybe.text("The rule that it broke, where the environment only warns."),
  cut_values: Type.Optional(
    Type.Array(CutValueRecord, { description: "What is left out as larger than was asked for." }),
  ),
});

const eventValues = { data: "data", metadata: "metadata" } as const;

/** `bytesMax`: values that are larger are null, and told of in `cut_values`. */
export function eventJson(logged: LoggedEvent, bytesMax: number | undefined) {
  const event = cutValues(logged, eventValues, { bytesMax, instead: "null" });
  return {
    ...eventFields(event),
    data: storedJson(event.data),
    sequence: `${event.position}`,
    created_at: rfc3339(event.at),
    // An emit writes the event and its runs in one transaction: every listed event has been processed.
    processed: true,
    ...(event.metadata !== null && { metadata: storedJson(event.metadata) }),
    ...keyField(event),
    ...(event.entity_id !== null && { entity_id: event.entity_id }),
    ...(event.entity_type !== null && { entity_type: event.entity_type }),
    ...(event.entity_version !== null && { entity_version: event.entity_version }),
    ...(event.run_id !== null && { run_id: event.run_id }),
    ...(event.redacted_at !== null && { redacted_at: rfc3339(event.redacted_at) }),
    ...(event.schema_hash && { schema_hash: event.schema_hash }),
    ...(event.schema_breach && { schema_breach: event.schema_breach }),
    ...(event.cutValues && { cut_values: event.cutValues }),
  };
}
