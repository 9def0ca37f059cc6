import type { SvcError } from "../wire/errors.ts";

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

/** The subscription that makes an attempt; not called any more once the attempt has ended or stopped. */
export interface Asker {
  /** The server has confirmed the attempt, and may say where in the log it begins. */
  started(start: { sequence?: bigint; epoch?: bigint }): void;
  arrived(one: Arrived): void;
  /** All that matches has arrived up to here. */
  passed(sequence: bigint): void;
  ended(error: SvcError | undefined): void;
}

/** One attempt to subscribe; returns a function that stops it. Never throws, and never calls back at once. */
export type Way = (ask: Ask, to: Asker) => () => void;

/** Whether the log no longer has the position from which a subscription wants to continue. */
export const isGap = ({ code }: SvcError): boolean =>
  code === "position_expired" || code === "position_ahead" || code === "epoch_changed";

export const digits = (value: unknown): bigint | undefined =>
  typeof value === "string" && /^\d+$/.test(value)
    ? BigInt(value)
    : Number.isSafeInteger(value)
      ? BigInt(value as number)
      : undefined;

/** One subscription on a socket. */
export interface LineSubscription {
  ask: Ask;
  to: Asker;
  /** Once the server has confirmed it. */
  id?: string;
  isStopped: boolean;
}

/**
 * Subscriptions that the server has not answered. Its answers name the pattern and nothing else, so that of
 * two subscriptions with the same pattern the second one is sent when the first one has been answered.
 */
export class AskedPatterns {
  readonly #queues = new Map<string, LineSubscription[]>();

  /** The subscriptions whose answers are awaited. */
  *sent(): Iterable<LineSubscription> {
    for (const [first] of this.#queues.values()) if (first) yield first;
  }

  /** True when it is to be sent now. */
  add(subscription: LineSubscription): boolean {
    const { pattern } = subscription.ask;
    const queue = this.#queues.get(pattern);
    if (queue) queue.push(subscription);
    else this.#queues.set(pattern, [subscription]);
    return queue === undefined;
  }

  /** The subscription that an answer is for, and the one that is to be sent next. */
  answered(pattern: string): { subscription?: LineSubscription; next?: LineSubscription } {
    const queue = this.#queues.get(pattern);
    const subscription = queue?.shift();
    if (!queue || !subscription) return {};
    while (queue[0]?.isStopped) queue.shift();
    const [next] = queue;
    if (!next) this.#queues.delete(pattern);
    return { subscription, ...(next && { next }) };
  }
}
