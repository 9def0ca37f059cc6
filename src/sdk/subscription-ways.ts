import type { SvcError } from "./errors.ts";

/** What a subscription asks for on one connection. */
export interface Ask {
  pattern: string;
  replay?: number;
  filter?: string;
  topicOnly?: boolean;
  startAfter?: bigint;
  epoch?: bigint;
}

/** A delivery as it came. */
export interface Arrived {
  topic: string;
  data: unknown;
  eventId?: string;
  sequence?: bigint;
  timestamp?: string;
  metadata?: Record<string, unknown>;
}

/** Who asked; hears nothing more once it has ended, or was stopped. */
export interface Asker {
  /** Where it begins, when the server says so. */
  started(start: { sequence?: bigint; epoch?: bigint }): void;
  arrived(one: Arrived): void;
  ended(error: SvcError | undefined): void;
}

/** One attempt to subscribe; answers what gives it up. Never throws, and calls back later, never at once. */
export type Way = (ask: Ask, to: Asker) => () => void;

/** Words of a server whose log no longer has the place to go on from. */
export const isGap = ({ code }: SvcError): boolean =>
  code === "position_expired" || code === "position_ahead" || code === "epoch_changed";

export const digits = (value: unknown): bigint | undefined =>
  typeof value === "string" && /^\d+$/.test(value)
    ? BigInt(value)
    : Number.isSafeInteger(value)
      ? BigInt(value as number)
      : undefined;
