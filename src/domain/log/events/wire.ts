import type { JsonObject } from "@bufbuild/protobuf";
import { type DataMessage, dataOf, withNumbers } from "../../../kit/wkt.ts";
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
export function fromBody(
  body: Record<string, unknown>,
  numbers: readonly string[] = ["version", "delayMs"],
): Record<string, unknown> {
  const read = withNumbers(body, numbers);
  if (!("dataValue" in read || "namespace" in read)) return read;
  const { dataValue, namespace: _namespace, ...rest } = read;
  return dataValue === undefined ? rest : { ...rest, data: dataValue };
}
