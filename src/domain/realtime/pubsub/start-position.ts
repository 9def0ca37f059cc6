import { Fault } from "../../../kit/fault.ts";
import { type Pattern, refusal } from "./rules.ts";

/** The end of a log, the first position that retention keeps, and the epoch. */
interface StartHead {
  position: number;
  retention_floor: number;
  epoch: number;
}

const field = "startAfterSequence";

/** The header that tells a client that resumes by itself why its position was refused. */
const because = (reason: "epoch_changed" | "position_ahead" | "position_expired") => ({
  "Svc-Error-Reason": reason,
});

/** A position from before a restore of the database may belong to another event after it. */
export function requireEpoch(head: StartHead, epoch: bigint | undefined): void {
  if (epoch === undefined || epoch === BigInt(head.epoch)) return;
  throw new Fault("failed_precondition", `epoch: the log was restored since epoch ${epoch}`, {
    field: "epoch",
    code: "INVALID_ARGUMENT",
    headers: because("epoch_changed"),
  });
}

/**
 * The position that a subscription begins behind. Refuses one above the end of the log, or one that has
 * expired.
 */
export function positionAfter(pattern: Pattern, head: StartHead, startAfter: bigint): number {
  if (startAfter > BigInt(head.position))
    throw refusal(
      "INVALID_ARGUMENT",
      `${field}: ${startAfter} is above the end of the log, ${head.position}`,
      { field, headers: because("position_ahead") },
    );
  // Zero means the first event that is kept. Events of entities do not expire.
  if (startAfter === 0n) return pattern.namespace === "entity" ? 0 : Math.max(0, head.retention_floor - 1);
  if (startAfter < BigInt(head.retention_floor - 1))
    throw new Fault("failed_precondition", `${field}: positions below ${head.retention_floor} have expired`, {
      field,
      code: "INVALID_ARGUMENT",
      headers: because("position_expired"),
    });
  return Number(startAfter);
}
