import { BusError } from "../../../bus/bus.ts";
import { outboxErrorCharsMax } from "./limits.ts";
import type { OutboxMeters } from "./meters.ts";
import type { OutboxRow } from "./rows.ts";
import type { EntryKind } from "./rules.ts";

/**
 * Sends an entry out. Rejects with a BusError: `disconnected`, `timeout` or `no_responders` when nothing can
 * be sent right now, which spends no attempt; anything else refuses this entry and spends one.
 */
export type Send = (entry: OutboxRow) => Promise<void>;

const passing: ReadonlySet<BusError["trouble"]> = new Set(["disconnected", "timeout", "no_responders"]);
const isPassing = (error: unknown): boolean => error instanceof BusError && passing.has(error.trouble);

export const textOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).slice(0, outboxErrorCharsMax);

export const tooLarge = (payload: string, bytesMax: number): BusError | undefined => {
  const bytes = Buffer.byteLength(payload);
  return bytes > bytesMax
    ? new BusError("refused", `the message has ${bytes} bytes, SVC_BUS_PAYLOAD_MAX allows ${bytesMax}`)
    : undefined;
};

/** What one try came to: sent, refused by the bus, or the bus could not be reached. */
export type SendOutcome = "sent" | { refused: unknown } | { passing: unknown };

export type TryOnce = (entry: OutboxRow) => Promise<SendOutcome>;

/** Tries to send one entry by its kind's sender; never rejects. */
export function openSender(deps: {
  senders: Record<EntryKind, Send>;
  meters: OutboxMeters;
  payloadBytesMax: number;
}): TryOnce {
  const { senders, meters, payloadBytesMax } = deps;
  return async (entry) => {
    const kind = entry.kind as EntryKind;
    try {
      const refusal = tooLarge(entry.payload, payloadBytesMax);
      if (refusal) throw refusal;
      await senders[kind](entry);
      meters.sent(kind).add();
      return "sent";
    } catch (error) {
      if (isPassing(error)) return { passing: error };
      meters.refused(kind).add();
      return { refused: error };
    }
  };
}
