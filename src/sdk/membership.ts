import { deferred } from "./deferred.ts";
import { SvcError } from "./errors.ts";
import type { GroupCalls, GroupDelivery, JoinOptions, Membership } from "./group-types.ts";
import { delayAfter, pause } from "./retry.ts";
import { arrivedOf, readStream } from "./subscription-stream.ts";
import type { SubscriptionState } from "./subscription-types.ts";
import type { Transport } from "./transport.ts";

const firstDelayMs = 250;
const delayMsMax = 30_000;

export interface MembershipSource {
  transport: Transport;
  groups: Pick<GroupCalls, "get">;
  name: string;
}

type Handler = (delivery: GroupDelivery) => unknown;

const asError = (thrown: unknown): Error => (thrown instanceof Error ? thrown : new Error(String(thrown)));

/** Takes part in a group over whatever connections it takes. */
export function openMembership(
  { transport, groups, name }: MembershipSource,
  options: JoinOptions,
  handler: Handler,
): Membership {
  const { namespace = "", concurrency = 1, signal, onNotice = () => {} } = options;
  const consumerId = options.consumerId ?? `consumer-${Math.random().toString(36).slice(2, 14)}`;
  let state: SubscriptionState = "connecting";
  let isManual = false;
  let failure: Error | undefined;
  const leaving = new AbortController();
  const ready = deferred();
  const done = deferred();
  ready.promise.catch(() => {});

  const running = new Set<Promise<void>>();
  let waiting: GroupDelivery[] = [];
  /** Called when there is room for more. */
  let makeRoom = () => {};

  const end = (error?: Error) => {
    failure ??= error;
    leaving.abort();
    makeRoom();
  };

  /** Says what became of a delivery, again and again: what is not said comes again. */
  async function settle(delivery: GroupDelivery, verdict: "ACK" | "NAK" | "TERM"): Promise<void> {
    const message = {
      namespace,
      groupName: name,
      consumerId,
      eventId: delivery.eventId,
      ackType: `ACK_TYPE_${verdict}`,
    };
    try {
      await transport.rpc("PubSubService/AckEvent", message, { repeatable: true });
    } catch (error) {
      const why = error as SvcError;
      onNotice({ type: "lost", delivery, error: why });
    }
  }

  async function handle(delivery: GroupDelivery): Promise<void> {
    try {
      await handler(delivery);
    } catch (error) {
      if (!isManual) return end(asError(error));
      onNotice({ type: "failed", delivery, error });
      const isFinal = error instanceof Error && error.name === "NonRetryableError";
      return settle(delivery, isFinal ? "TERM" : "NAK");
    }
    if (isManual) await settle(delivery, "ACK");
  }

  /** Where to be sent is to be done, what has come is handled also by who leaves. */
  const goesOn = () => !leaving.signal.aborted || (!isManual && !failure);

  function startNext(): void {
    while (running.size < concurrency && waiting.length > 0 && goesOn()) {
      const work = handle(waiting.shift()!).then(() => {
        running.delete(work);
        startNext();
      });
      running.add(work);
    }
    if (waiting.length <= concurrency) makeRoom();
  }

  /** What is read from the stream waits for handlers: to be sent is to be done in a group that acknowledges by itself. */
  function room(): Promise<void> | undefined {
    if (waiting.length <= concurrency || leaving.signal.aborted) return undefined;
    return new Promise((resolve) => {
      makeRoom = resolve;
    });
  }

  function take(message: Record<string, unknown>): void {
    if (leaving.signal.aborted) return;
    if (state !== "live") live();
    if (!message.topic) return;
    const { sequence, ...arrived } = arrivedOf(message);
    waiting.push({
      ...arrived,
      ...(sequence !== undefined && { sequence: Number(sequence) }),
      attempt: Number(message.deliveryAttempt ?? 1),
    });
    startNext();
  }

  function live(): void {
    attempts = 0;
    state = "live";
    ready.resolve();
    onNotice({ type: "live" });
  }

  let attempts = 0;
  async function follow(stop: AbortSignal): Promise<void> {
    const message = { namespace, groupName: name, consumerId, withStart: true };
    const request = { method: "PubSubService/JoinConsumerGroup", message, signal: stop, room };
    isManual = (await groups.get(name, namespace === "" ? {} : { namespace })).ackMode === "manual";
    await readStream(transport, request, take);
  }

  async function takePart(): Promise<void> {
    // Ends after the handlers have: what they were given is theirs until the stream does.
    const stop = new AbortController();
    const asked = new Promise<void>((resolve) => {
      if (leaving.signal.aborted) resolve();
      leaving.signal.addEventListener("abort", () => resolve(), { once: true });
    });
    const left = (async () => {
      await asked;
      while (running.size > 0) await Promise.all(running);
      stop.abort();
    })();
    while (!leaving.signal.aborted) {
      const error = await follow(stop.signal).then(
        () => undefined,
        (thrown) => (thrown instanceof SvcError ? thrown : new SvcError("bad_answer", String(thrown))),
      );
      // What was not begun comes again, to whichever member.
      if (isManual) waiting = [];
      if (leaving.signal.aborted) break;
      if (error && !error.retryable) {
        end(error);
        break;
      }
      const delay = delayAfter(++attempts, firstDelayMs, delayMsMax);
      const delayMs = Math.max(delay / 2 + (Math.random() * delay) / 2, error?.retryAfterMs ?? 0);
      state = "waiting";
      onNotice({ type: "waiting", delayMs, error });
      await pause(delayMs, leaving.signal);
    }
    await left;
  }

  const leave = () => {
    end();
    return done.promise;
  };
  const onAbort = () => end();
  if (signal?.aborted) end();
  signal?.addEventListener("abort", onAbort, { once: true });
  takePart().then(() => {
    signal?.removeEventListener("abort", onAbort);
    state = "over";
    ready.reject(failure ?? new SvcError("aborted_by_caller", "the group was left"));
    if (failure) done.reject(failure);
    else done.resolve();
  });
  return {
    consumerId,
    get state() {
      return state;
    },
    ready: ready.promise,
    done: done.promise,
    leave,
  };
}
