import type { Ask, Asker } from "./subscription-ways.ts";

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
