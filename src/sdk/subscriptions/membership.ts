import { type Deferred, deferred } from "../wire/deferred.ts";
import { isFinal, messageOf, SvcError } from "../wire/errors.ts";
import { consoleLogger } from "../wire/log.ts";
import { pause, reconnectDelayMs } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { Logger } from "../wire/types.ts";
import { arrivedOf, readStream } from "./subscription-stream.ts";
import type {
  GroupCalls,
  GroupDelivery,
  JoinOptions,
  Membership,
  MembershipNotice,
  SubscriptionState,
} from "./subscription-types.ts";

export interface MemberWorkOptions {
  concurrency: number;
  /** Hands one delivery to the handler and settles it. */
  handle: (delivery: GroupDelivery) => Promise<void>;
  /** Whether a delivery that waits may still be begun. */
  mayBegin: () => boolean;
}

/** The deliveries of a member that wait, and its handlers that run, `concurrency` at most. */
class MemberWork {
  readonly #options: MemberWorkOptions;
  readonly #running = new Set<Promise<void>>();
  #waiting: GroupDelivery[] = [];
  #makeRoom = () => {};

  constructor(options: MemberWorkOptions) {
    this.#options = options;
  }

  add(delivery: GroupDelivery): void {
    this.#waiting.push(delivery);
    this.#beginNext();
  }

  /** A promise while as many deliveries wait as there are handlers: until it resolves nothing is read. */
  room(): Promise<void> | undefined {
    if (this.#waiting.length <= this.#options.concurrency) return undefined;
    return new Promise((resolve) => {
      this.#makeRoom = resolve;
    });
  }

  /** Resolves the promise of `room` whether there is room or not. */
  endRoom(): void {
    this.#makeRoom();
  }

  /** Drops what was not begun. */
  clear(): void {
    this.#waiting = [];
  }

  async finished(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  #beginNext(): void {
    const { concurrency, handle, mayBegin } = this.#options;
    while (this.#running.size < concurrency && this.#waiting.length > 0 && mayBegin()) {
      const work = handle(this.#waiting.shift()!).then(() => {
        this.#running.delete(work);
        this.#beginNext();
      });
      this.#running.add(work);
    }
    if (this.#waiting.length <= concurrency) this.#makeRoom();
  }
}

export interface MembershipSource {
  transport: Transport;
  groups: Pick<GroupCalls, "get">;
  name: string;
}

type DeliveryHandler = (delivery: GroupDelivery) => unknown;

const asError = (thrown: unknown): Error => (thrown instanceof Error ? thrown : new Error(messageOf(thrown)));

/** Takes part in a group over one connection after the other. */
export function openMembership(
  source: MembershipSource,
  options: JoinOptions,
  handler: DeliveryHandler,
): Membership {
  const running = new RunningMembership(source, options, handler);
  void running.run();
  return {
    consumerId: running.consumerId,
    get state() {
      return running.state;
    },
    ready: running.ready.promise,
    done: running.done.promise,
    leave() {
      running.end();
      return running.done.promise;
    },
  };
}

/** A member of a group and its attempts to be served, one at a time, until it leaves or cannot continue. */
class RunningMembership {
  readonly consumerId: string;
  readonly ready: Deferred = deferred();
  readonly done: Deferred = deferred();
  state: SubscriptionState = "connecting";
  readonly #source: MembershipSource;
  readonly #handler: DeliveryHandler;
  readonly #namespace: string;
  readonly #signal: AbortSignal | undefined;
  readonly #onNotice: ((notice: MembershipNotice) => void) | undefined;
  readonly #log: Logger;
  readonly #work: MemberWork;
  readonly #leaving = new AbortController();
  #failure: Error | undefined;
  /** Whether the group redelivers until an acknowledgement. Read before each attempt, as it can change. */
  #isManual = false;
  /** Attempts since the last one that the server confirmed. */
  #attempts = 0;

  constructor(source: MembershipSource, options: JoinOptions, handler: DeliveryHandler) {
    const { namespace = "", concurrency = 1, signal, onNotice, log = consoleLogger() } = options;
    this.consumerId = options.consumerId ?? `consumer-${Math.random().toString(36).slice(2, 14)}`;
    this.#source = source;
    this.#handler = handler;
    this.#namespace = namespace;
    this.#signal = signal;
    this.#onNotice = onNotice;
    this.#log = log;
    this.#work = new MemberWork({
      concurrency,
      handle: (delivery) => this.#handle(delivery),
      // In an `auto` group the server is done with what it sent: a member that leaves still handles that.
      mayBegin: () => !this.#leaving.signal.aborted || (!this.#isManual && !this.#failure),
    });
    // An unhandled rejection would end the process. The log has the reason.
    this.ready.promise.catch(() => {});
    this.done.promise.catch(() => {});
  }

  /** Takes part until the membership ends; never rejects. */
  async run(): Promise<void> {
    const onAbort = () => this.end();
    if (this.#signal?.aborted) this.end();
    this.#signal?.addEventListener("abort", onAbort, { once: true });
    await this.#takePart();
    this.#signal?.removeEventListener("abort", onAbort);
    this.state = "over";
    this.ready.reject(this.#failure ?? new SvcError("aborted_by_caller", "the group was left"));
    if (!this.#failure) return this.done.resolve();
    const { message, stack } = this.#failure;
    this.#log.error("a membership of a group has ended", {
      group: this.#source.name,
      reason: message,
      stack,
    });
    this.done.reject(this.#failure);
  }

  /** What `onNotice` throws is a mistake of its own, and concerns no delivery. */
  #tell(notice: MembershipNotice): void {
    try {
      this.#onNotice?.(notice);
    } catch (error) {
      this.#log.error("onNotice of a membership threw", {
        group: this.#source.name,
        reason: messageOf(error),
      });
    }
  }

  end(error?: Error): void {
    this.#failure ??= error;
    this.#leaving.abort();
    this.#work.endRoom();
  }

  async #takePart(): Promise<void> {
    const { signal: leaving } = this.#leaving;
    // The stream stays open until the handlers end: when it closes, their deliveries go to other members.
    const stop = new AbortController();
    const asked = new Promise<void>((resolve) => {
      if (leaving.aborted) resolve();
      leaving.addEventListener("abort", () => resolve(), { once: true });
    });
    const left = asked.then(() => this.#work.finished()).then(() => stop.abort());
    while (!leaving.aborted) {
      const error = await this.#follow(stop.signal).then(
        () => undefined,
        (thrown) => (thrown instanceof SvcError ? thrown : new SvcError("bad_answer", String(thrown))),
      );
      // The server gives again what was not begun, to this member or to another.
      if (this.#isManual) this.#work.clear();
      if (leaving.aborted) break;
      if (error && !error.retryable) {
        this.end(error);
        break;
      }
      const delayMs = reconnectDelayMs(++this.#attempts, error);
      this.state = "waiting";
      this.#tell({ type: "waiting", delayMs, error });
      await pause(delayMs, leaving);
    }
    await left;
  }

  /** Reads one stream to its end. Throws SvcError. */
  async #follow(stop: AbortSignal): Promise<void> {
    const { transport, groups, name } = this.#source;
    const namespace = this.#namespace;
    const group = await groups.get(name, namespace === "" ? {} : { namespace });
    this.#isManual = group.ackMode === "manual";
    const message = { namespace, groupName: name, consumerId: this.consumerId, withStart: true };
    const room = () => (this.#leaving.signal.aborted ? undefined : this.#work.room());
    const request = { method: "PubSubService/JoinConsumerGroup", message, signal: stop, room };
    await readStream(transport, request, (received) => this.#receive(received));
  }

  #receive(message: Record<string, unknown>): void {
    if (this.#leaving.signal.aborted) return;
    if (this.state !== "live") this.#live();
    if (!message.topic) return;
    const { sequence, ...arrived } = arrivedOf(message);
    this.#work.add({
      ...arrived,
      ...(sequence !== undefined && { sequence: Number(sequence) }),
      attempt: Number(message.deliveryAttempt ?? 1),
    });
  }

  #live(): void {
    this.#attempts = 0;
    this.state = "live";
    this.ready.resolve();
    this.#tell({ type: "live" });
  }

  async #handle(delivery: GroupDelivery): Promise<void> {
    try {
      await this.#handler(delivery);
    } catch (error) {
      if (!this.#isManual) {
        this.end(asError(error));
        return;
      }
      this.#tell({ type: "failed", delivery, error });
      return this.#settle(delivery, isFinal(error) ? "TERM" : "NAK");
    }
    if (this.#isManual) await this.#settle(delivery, "ACK");
  }

  /** Reports to the server what became of a delivery; an unreported one comes again. */
  async #settle(delivery: GroupDelivery, verdict: "ACK" | "NAK" | "TERM"): Promise<void> {
    const message = {
      namespace: this.#namespace,
      groupName: this.#source.name,
      consumerId: this.consumerId,
      eventId: delivery.eventId,
      ackType: `ACK_TYPE_${verdict}`,
    };
    try {
      await this.#source.transport.rpc("PubSubService/AckEvent", message, { repeatable: true });
    } catch (error) {
      this.#tell({ type: "lost", delivery, error: error as SvcError });
    }
  }
}
