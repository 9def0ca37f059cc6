import { redactPayload } from "../domain/record/audit/redaction.ts";
import { auditSettingsOf } from "../domain/record/audit/service.ts";
import { requestsOperations } from "../domain/record/requests/operations.ts";
import { type CapturedRequests, openCapturedRequests } from "../domain/record/requests/service.ts";
import { statusOfKind } from "../edge/fault-encoding.ts";
import type { FaultKind } from "../kit/fault.ts";
import type { Host, Part } from "./part.ts";

export interface DebugPart extends Part, Pick<CapturedRequests, "observe" | "clear"> {}

/** Requests as they came, to find a client's mistake in them. */
export function openDebugPart({ config, bus, clock, log, nodeId }: Host): DebugPart {
  const { redactedFields } = auditSettingsOf(config);
  const captured = openCapturedRequests({
    ...{ bus, clock, log, nodeId },
    redact: (input, hidden) => redactPayload(input, redactedFields, hidden),
    statusOf: (outcome) => (outcome === "ok" ? 200 : statusOfKind(outcome as FaultKind)),
  });
  return { operations: requestsOperations(captured), ...captured };
}
