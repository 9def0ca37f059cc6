import { deferred } from "./deferred.ts";
import { SvcError } from "./errors.ts";
import { delayAfter, pause } from "./retry.ts";
import type {
  Delivery,
  OnDelivery,
  Place,
  SubscribeOptions,
  Subscription,
  SubscriptionState,
} from "./subscription-types.ts";
import { type Arrived, type Ask, digits, isGap, type Way } from "./subscription-ways.ts";

const firstDelayMs = 250;
const delayMsMax = 30_000;

export interface SubscriptionSource {
  way: Way;
  pattern: string;
}

function placeOf(after: NonNullable<SubscribeOptions["after"]>): { sequence: bigint; epoch?: bigint } {
  const { sequence, epoch } = typeof after === "object" ? after : { sequence: after, epoch: undefined };
  const read = typeof sequence === "bigint" ? sequence : digits(sequence);
  const log = digits(epoch);
  if (read === undefined || read < 0n || (epoch !== undefined && log === undefined))
    throw new TypeError("after: must be a place of a subscription, or a sequence");
  return { sequence: read, ...(log !== undefined && { epoch: log }) };
}

/** The run that a pattern is about, when it is about one: its history is kept as a log is. */
const isOfOneRun = (pattern: string): boolean => /^system\.run\.[^.*>]+\./.test(pattern);

const hasLog = (pattern: string): boolean => !pattern.startsWith("system.") || isOfOneRun(pattern);

/** Follows one pattern over whatever connections it takes, from place to place. */
export function openSubscription<One extends Delivery>(
  { way, pattern }: SubscriptionSource,
  options: SubscribeOptions,
  onDelivery?: OnDelivery<One>,
): Subscription<One> {
  const { bufferMax = 1_000, replay, signal, onGap = "fail", onNotice = () => {} } = options;
  if (options.after !== undefined && replay) throw new TypeError("after and replay: choose one");
  const isLogged = hasLog(pattern);
  const ofOneRun = isOfOneRun(pattern);
  const begin = options.after === undefined ? undefined : placeOf(options.after);

  let state: SubscriptionState = "connecting";
  /** Everything up to here has arrived. */
  let cursor = begin?.sequence;
  let epoch = begin?.epoch;
  let attempts = 0;
  let everLive = false;
  let stopAttempt = () => {};
  /** The reader is too slow: the server is asked again when there is room. */
  let isFull = false;
  let dropped = 0;
  let failure: SvcError | Error | undefined;
  let waiting: Arrived[] = [];
  let read = 0;
  let place: bigint | undefined = cursor;
  let wake = () => {};
  const leaving = new AbortController();
  const ready = deferred();
  const done = deferred();
  ready.promise.catch(() => {});
  if (!onDelivery) done.promise.catch(() => {});

  const left = () => waiting.length - read;

  function finish(error: Error | undefined): void {
    if (state === "over") return;
    state = "over";
    failure = error;
    stopAttempt();
    leaving.abort();
    signal?.removeEventListener("abort", close);
    ready.reject(error ?? new SvcError("aborted_by_caller", "the subscription was closed"));
    if (error) done.reject(error);
    else done.resolve();
    wake();
  }
  const close = () => finish(undefined);

  function ask(): Ask {
    const from = cursor ?? (ofOneRun && everLive && !replay ? 0n : undefined);
    return {
      pattern,
      ...(options.filter !== undefined && { filter: options.filter }),
      ...(options.topicOnly && { topicOnly: true }),
      ...(isLogged && from !== undefined
        ? { startAfter: from, ...(epoch !== undefined && { epoch }) }
        : replay && { replay }),
    };
  }

  function started(start: { sequence?: bigint; epoch?: bigint }): void {
    attempts = 0;
    everLive = true;
    state = "live";
    if (isLogged && !ofOneRun) {
      // With a replay the past is still to come: until its first delivery it would be asked for again.
      if (!replay) cursor ??= start.sequence;
      epoch ??= start.epoch;
      place ??= cursor;
    }
    ready.resolve();
    onNotice({ type: "live" });
  }

  function arrived(one: Arrived): void {
    if (isLogged && one.sequence !== undefined) {
      // The frame that was under way when a connection broke may come again.
      if (cursor !== undefined && one.sequence <= cursor) return;
      cursor = one.sequence;
    } else if (left() >= bufferMax) {
      dropped++;
      return;
    }
    waiting.push(one);
    wake();
    if (isLogged && one.sequence !== undefined && left() >= bufferMax) {
      isFull = true;
      stopAttempt();
    }
  }

  /** What the end of an attempt means; answers whether and when there is another. */
  function delayBehind(error: SvcError | undefined): number | undefined {
    if (error && isGap(error)) {
      onNotice({ type: "gap", error });
      if (onGap === "fail") return undefined;
      cursor = onGap === "earliest" ? 0n : undefined;
      epoch = undefined;
      place = undefined;
      return 0;
    }
    if (error && !error.retryable) return undefined;
    const delay = delayAfter(++attempts, firstDelayMs, delayMsMax);
    // Many clients lose one server at the same moment.
    return Math.max(delay / 2 + (Math.random() * delay) / 2, error?.retryAfterMs ?? 0);
  }

  function attempt(): void {
    let isMine = true;
    const stop = way(ask(), {
      started: (start) => isMine && started(start),
      arrived: (one) => isMine && arrived(one),
      ended(error) {
        if (!isMine) return;
        isMine = false;
        const delayMs = delayBehind(error);
        if (delayMs === undefined) return finish(error);
        state = "waiting";
        if (delayMs > 0) onNotice({ type: "waiting", delayMs, error });
        void pause(delayMs, leaving.signal).then(() => {
          if (state !== "over") attempt();
        });
      },
    });
    stopAttempt = () => {
      if (!isMine) return;
      isMine = false;
      stop();
    };
  }

  /** The reader has made room. */
  function goOn(): void {
    if (dropped > 0 && left() < bufferMax) {
      onNotice({ type: "dropped", count: dropped });
      dropped = 0;
    }
    if (!isFull || left() > bufferMax / 2 || state === "over") return;
    isFull = false;
    attempt();
  }

  function deliveryOf(one: Arrived): One {
    const { sequence, timestamp, metadata, ...rest } = one;
    return {
      ...rest,
      ...(sequence !== undefined && { sequence: Number(sequence) }),
      ...(options.includeMetadata !== false && {
        ...(timestamp !== undefined && { timestamp }),
        ...(metadata !== undefined && { metadata }),
      }),
    } as One;
  }

  async function* deliveries(): AsyncGenerator<One, void, void> {
    try {
      for (;;) {
        while (read < waiting.length) {
          const one = waiting[read++]!;
          if (read > bufferMax / 2) {
            waiting = waiting.slice(read);
            read = 0;
          }
          yield deliveryOf(one);
          if (isLogged && one.sequence !== undefined) place = one.sequence;
          goOn();
        }
        if (failure) throw failure;
        if (state === "over") return;
        const more = deferred();
        wake = more.resolve;
        await more.promise;
      }
    } finally {
      close();
    }
  }

  if (signal?.aborted) close();
  else {
    signal?.addEventListener("abort", close, { once: true });
    attempt();
  }
  const subscription: Subscription<One> = {
    get state() {
      return state;
    },
    get place(): Place | undefined {
      if (place === undefined) return undefined;
      return { sequence: `${place}`, ...(epoch !== undefined && { epoch: `${epoch}` }) };
    },
    ready: ready.promise,
    done: done.promise,
    close,
    [Symbol.asyncIterator]: deliveries,
  };
  if (onDelivery) {
    (async () => {
      for await (const one of subscription) {
        try {
          await onDelivery(one);
        } catch (error) {
          return finish(error instanceof Error ? error : new Error(String(error)));
        }
      }
      // What ended it, `done` tells.
    })().catch(() => {});
  }
  return subscription;
}
