import { type Deferred, deferred } from "../wire/deferred.ts";
import { messageOf, SvcError } from "../wire/errors.ts";
import { consoleLogger } from "../wire/log.ts";
import { pause, reconnectDelayMs } from "../wire/retry.ts";
import { SubscriptionPosition } from "./subscription-position.ts";
import type {
  Delivery,
  OnDelivery,
  Place,
  SubscribeOptions,
  Subscription,
  SubscriptionNotice,
  SubscriptionState,
} from "./subscription-types.ts";
import { type Arrived, isGap, type Way } from "./subscription-ways.ts";

/** Deliveries that have arrived and that the reader has not taken, in their order. */
class UnreadDeliveries {
  readonly #keptMax: number;
  #arrived: Arrived[] = [];
  #takenCount = 0;
  #wake = () => {};

  /** Taken deliveries kept before the list is cut, so that taking one does not move the others each time. */
  constructor(keptMax: number) {
    this.#keptMax = keptMax;
  }

  get count(): number {
    return this.#arrived.length - this.#takenCount;
  }

  add(one: Arrived): void {
    this.#arrived.push(one);
    this.#wake();
  }

  take(): Arrived | undefined {
    if (this.count === 0) return undefined;
    const one = this.#arrived[this.#takenCount++];
    if (this.#takenCount > this.#keptMax) {
      this.#arrived = this.#arrived.slice(this.#takenCount);
      this.#takenCount = 0;
    }
    return one;
  }

  /** Resolves when a delivery is added, or at `wake`. */
  changed(): Promise<void> {
    const more = deferred();
    this.#wake = more.resolve;
    return more.promise;
  }

  wake(): void {
    this.#wake();
  }
}

export interface SubscriptionSource {
  way: Way;
  pattern: string;
}

/** Follows one pattern over one connection after the other. Each goes on where the one before it broke. */
export function openSubscription<One extends Delivery>(
  { way, pattern }: SubscriptionSource,
  options: SubscribeOptions,
  onDelivery?: OnDelivery<One>,
): Subscription<One> {
  const running = new RunningSubscription<One>(way, pattern, options);
  running.ready.promise.catch(() => {});
  // A loop throws what ended it.
  if (onDelivery) running.goesToLog = true;
  else running.done.promise.catch(() => {});
  running.start();
  if (onDelivery) running.deliverTo(onDelivery).catch(() => {});
  return {
    get state() {
      return running.state;
    },
    get place(): Place | undefined {
      return running.position.place;
    },
    ready: running.ready.promise,
    get done() {
      running.goesToLog = false;
      return running.done.promise;
    },
    close: running.close,
    [Symbol.asyncIterator]: () => running.deliveries(),
  };
}

/** A subscription and its attempts to be served, one at a time, until it is closed or cannot go on. */
class RunningSubscription<One extends Delivery> {
  readonly position: SubscriptionPosition;
  readonly ready: Deferred = deferred();
  readonly done: Deferred = deferred();
  state: SubscriptionState = "connecting";
  /** Whether the error that ends the subscription is logged: nobody asked for `done`. */
  goesToLog = false;
  readonly #way: Way;
  readonly #pattern: string;
  readonly #options: SubscribeOptions;
  readonly #onNotice: (notice: SubscriptionNotice) => void;
  readonly #bufferMax: number;
  readonly #unread: UnreadDeliveries;
  readonly #leaving = new AbortController();
  #failure: Error | undefined;
  /** Attempts since the last one that the server confirmed. */
  #attempts = 0;
  #stopAttempt = () => {};
  /** No attempt is under way because the reader is too slow: the next one begins when there is room. */
  #isFull = false;
  #droppedCount = 0;

  constructor(way: Way, pattern: string, options: SubscribeOptions) {
    const { bufferMax = 1_000, onNotice = () => {} } = options;
    this.position = new SubscriptionPosition(pattern, options);
    this.#way = way;
    this.#pattern = pattern;
    this.#options = options;
    this.#onNotice = onNotice;
    this.#bufferMax = bufferMax;
    this.#unread = new UnreadDeliveries(bufferMax / 2);
  }

  start(): void {
    const { signal } = this.#options;
    if (signal?.aborted) this.close();
    else {
      signal?.addEventListener("abort", this.close, { once: true });
      this.#attempt();
    }
  }

  readonly close = (): void => this.#finish(undefined);

  async *deliveries(): AsyncGenerator<One, void, void> {
    const { includeMetadata = true } = this.#options;
    try {
      for (;;) {
        for (let one = this.#unread.take(); one; one = this.#unread.take()) {
          yield deliveryOf<One>(one, includeMetadata);
          if (this.position.isLogged && one.sequence !== undefined) this.position.taken(one.sequence);
          this.#goOn();
        }
        if (this.#failure) throw this.#failure;
        if (this.state === "over") return;
        await this.#unread.changed();
      }
    } finally {
      this.close();
    }
  }

  /** Rejects with what ended the subscription, as `done` does. */
  async deliverTo(onDelivery: OnDelivery<One>): Promise<void> {
    for await (const one of this.deliveries()) {
      try {
        await onDelivery(one);
      } catch (error) {
        // Before the loop is left: that closes the subscription, and `done` would resolve.
        this.#finish(error instanceof Error ? error : new Error(messageOf(error)));
        return;
      }
    }
  }

  #finish(error: Error | undefined): void {
    if (this.state === "over") return;
    this.state = "over";
    this.#failure = error;
    this.#stopAttempt();
    this.#leaving.abort();
    this.#options.signal?.removeEventListener("abort", this.close);
    this.ready.reject(error ?? new SvcError("aborted_by_caller", "the subscription was closed"));
    if (error && this.goesToLog) this.#log(error);
    if (error) this.done.reject(error);
    else this.done.resolve();
    this.#unread.wake();
  }

  /** An unhandled rejection would end the process. */
  #log({ message, stack }: Error): void {
    this.done.promise.catch(() => {});
    const about = { pattern: this.#pattern, reason: message, stack };
    consoleLogger().error("a subscription has ended", about);
  }

  #attempt(): void {
    let isMine = true;
    const stop = this.#way(this.position.ask(), {
      started: (start) => isMine && this.#confirmed(start),
      arrived: (one) => isMine && this.#arrived(one),
      passed: (sequence) => isMine && this.position.passed(sequence),
      ended: (error) => {
        if (!isMine) return;
        isMine = false;
        this.#ended(error);
      },
    });
    this.#stopAttempt = () => {
      if (!isMine) return;
      isMine = false;
      stop();
    };
  }

  #confirmed(start: { sequence?: bigint; epoch?: bigint }): void {
    this.#attempts = 0;
    this.state = "live";
    this.position.confirmed(start);
    this.ready.resolve();
    this.#onNotice({ type: "live" });
  }

  #arrived(one: Arrived): void {
    // What has no place in a log cannot be asked for again: it is dropped while the reader is too slow.
    const isKept = this.position.isLogged && one.sequence !== undefined;
    if (isKept && !this.position.arrived(one.sequence!)) return;
    if (!isKept && this.#unread.count >= this.#bufferMax) {
      this.#droppedCount++;
      return;
    }
    this.#unread.add(one);
    if (isKept && this.#unread.count >= this.#bufferMax) {
      this.#isFull = true;
      this.#stopAttempt();
    }
  }

  #ended(error: SvcError | undefined): void {
    const delayMs = this.#delayBehind(error);
    if (delayMs === undefined) {
      this.#finish(error);
      return;
    }
    this.state = "waiting";
    if (delayMs > 0) this.#onNotice({ type: "waiting", delayMs, error });
    void pause(delayMs, this.#leaving.signal).then(() => {
      if (this.state !== "over") this.#attempt();
    });
  }

  /** How long to wait before the next attempt; undefined when there is none. */
  #delayBehind(error: SvcError | undefined): number | undefined {
    const { onGap = "fail" } = this.#options;
    if (error && isGap(error)) {
      this.#onNotice({ type: "gap", error });
      if (onGap === "fail") return undefined;
      this.position.beginAnew(onGap);
      return 0;
    }
    if (error && !error.retryable) return undefined;
    return reconnectDelayMs(++this.#attempts, error);
  }

  /** The reader has made room. */
  #goOn(): void {
    const { count } = this.#unread;
    if (this.#droppedCount > 0 && count < this.#bufferMax) {
      this.#onNotice({ type: "dropped", count: this.#droppedCount });
      this.#droppedCount = 0;
    }
    if (!this.#isFull || count > this.#bufferMax / 2 || this.state === "over") return;
    this.#isFull = false;
    this.#attempt();
  }
}

/** A delivery as its reader sees it. */
function deliveryOf<One>(one: Arrived, includeMetadata: boolean): One {
  const { sequence, timestamp, metadata, ...rest } = one;
  return {
    ...rest,
    ...(sequence !== undefined && { sequence: Number(sequence) }),
    ...(includeMetadata && {
      ...(timestamp !== undefined && { timestamp }),
      ...(metadata !== undefined && { metadata }),
    }),
  } as One;
}
