import { Fault } from "../../../kit/fault.ts";
import { type Pattern, refusal } from "./rules.ts";

/** Where a log ends, what of it is kept, and which log it is. */
interface StartHead {
  position: number;
  retention_floor: number;
  epoch: number;
}

const field = "startAfterSequence";

/** For clients that go on by themselves: what a refused place means for them. */
const because = (reason: "epoch_changed" | "position_ahead" | "position_expired") => ({
  "Svc-Error-Reason": reason,
});

/** Positions of before a restore are not those of after it. */
export function requireEpoch(head: StartHead, epoch: bigint | undefined): void {
  if (epoch === undefined || epoch === BigInt(head.epoch)) return;
  throw new Fault("failed_precondition", `epoch: the log was restored since epoch ${epoch}`, {
    field: "epoch",
    code: "INVALID_ARGUMENT",
    headers: because("epoch_changed"),
  });
}

/** The place in the log that a subscription begins behind; refuses what is above its end or has expired. */
export function positionAfter(pattern: Pattern, head: StartHead, startAfter: bigint): number {
  if (startAfter > BigInt(head.position))
    throw refusal(
      "INVALID_ARGUMENT",
      `${field}: ${startAfter} is above the end of the log, ${head.position}`,
      { field, headers: because("position_ahead") },
    );
  // Zero means the beginning of what is there; events of streams do not expire.
  if (startAfter === 0n) return pattern.namespace === "entity" ? 0 : Math.max(0, head.retention_floor - 1);
  if (startAfter < BigInt(head.retention_floor - 1))
    throw new Fault("failed_precondition", `${field}: positions below ${head.retention_floor} have expired`, {
      field,
      code: "INVALID_ARGUMENT",
      headers: because("position_expired"),
    });
  return Number(startAfter);
}
