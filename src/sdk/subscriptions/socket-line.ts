import { shownUrl } from "../wire/addresses.ts";
import { SvcError } from "../wire/errors.ts";
import type { Transport } from "../wire/transport.ts";
import {
  arrivedOfFrame,
  probeFrame,
  refusal,
  type SocketMessage,
  type SubscribeResult,
  socketAddress,
  subscribeFrame,
  unsubscribeFrame,
} from "./socket-frames.ts";
import { AskedPatterns, digits, type LineSubscription, type Way } from "./subscription-ways.ts";

interface SilenceWatchOptions {
  silenceMs: number;
  /** Asks the server for a sign of life. */
  probe: () => void;
  onSilent: () => void;
}

/** Finds dead sockets: after `silenceMs` without a frame it asks, and after as long again it gives up. */
class SilenceWatch {
  readonly #options: SilenceWatchOptions;
  readonly #timer: ReturnType<typeof setInterval>;
  /** Undefined until the socket is open. */
  #heardAt: number | undefined;
  #probedAt = 0;

  constructor(options: SilenceWatchOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.#look(), options.silenceMs / 4);
    (this.#timer as { unref?: () => void }).unref?.();
  }

  /** The socket has opened, or a frame has come. */
  heard(): void {
    this.#heardAt = Date.now();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #look(): void {
    const { silenceMs, probe, onSilent } = this.#options;
    const now = Date.now();
    if (this.#heardAt === undefined || now - this.#heardAt < silenceMs) return;
    if (this.#probedAt <= this.#heardAt) {
      this.#probedAt = now;
      probe();
    } else if (now - this.#probedAt >= silenceMs) onSilent();
  }
}

const connectMs = 10_000;
/** How long a socket without subscriptions stays open for the next one. */
const lingerMs = 500;

/** One WebSocket and the subscriptions on it. It is over for good when the socket has closed. */
class SocketLine {
  readonly #transport: Transport;
  readonly #subscriptions = new Set<LineSubscription>();
  readonly #byId = new Map<string, LineSubscription>();
  readonly #asked = new AskedPatterns();
  readonly #silence: SilenceWatch;
  readonly #connecting: ReturnType<typeof setTimeout>;
  #linger: ReturnType<typeof setTimeout> | undefined;
  #socket: WebSocket | undefined;
  /** Where it was opened; until then, where it would be. */
  #url: string;
  #isOpen = false;
  #isOver = false;

  constructor(transport: Transport, silenceMs: number) {
    this.#transport = transport;
    this.#url = transport.url;
    this.#connecting = setTimeout(() => this.#close("did not open in time"), connectMs);
    this.#silence = new SilenceWatch({
      silenceMs,
      probe: () => this.#say(probeFrame),
      onSilent: () => this.#close("silent"),
    });
    this.#open().catch((error) => this.#close(error instanceof Error ? error.message : String(error)));
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  get count(): number {
    return this.#subscriptions.size;
  }

  add(subscription: LineSubscription): void {
    clearTimeout(this.#linger);
    this.#subscriptions.add(subscription);
    if (this.#asked.add(subscription)) this.#say(subscribeFrame(subscription.ask));
  }

  stop(subscription: LineSubscription): void {
    if (subscription.isStopped) return;
    subscription.isStopped = true;
    if (subscription.id !== undefined) this.#say(unsubscribeFrame(subscription.id));
    if (this.#subscriptions.has(subscription)) this.#end(subscription, undefined);
  }

  async #open(): Promise<void> {
    const headers = await this.#transport.headers();
    if (this.#isOver) return;
    this.#url = this.#transport.url;
    const { url, protocols } = socketAddress(this.#url, headers);
    const socket = new WebSocket(url, protocols);
    this.#socket = socket;
    socket.onopen = () => {
      this.#isOpen = true;
      this.#silence.heard();
      clearTimeout(this.#connecting);
      for (const { ask } of this.#asked.sent()) this.#say(subscribeFrame(ask));
    };
    socket.onmessage = ({ data }) => {
      this.#silence.heard();
      if (this.#isOver) return;
      try {
        this.#onFrame(JSON.parse(String(data)) as SocketMessage);
      } catch {
        this.#close("a frame that is none");
      }
    };
    // The close that follows tells what happened.
    socket.onerror = () => {};
    socket.onclose = ({ code, reason }) => this.#close(`closed with ${code}${reason && ` (${reason})`}`);
  }

  #say(text: string): void {
    if (this.#isOpen) this.#socket?.send(text);
  }

  #onFrame(frame: SocketMessage): void {
    if (frame.type === "event") {
      this.#byId.get(String(frame.subscriptionId))?.to.arrived(arrivedOfFrame(frame));
    } else if (frame.type === "position") {
      this.#byId.get(String(frame.subscriptionId))?.to.passed(digits(frame.sequence) ?? 0n);
    } else if (frame.type === "subscription_result") {
      for (const result of frame.results as SubscribeResult[]) this.#onResult(result);
    } else if (frame.type === "subscription_error" && frame.retrying !== true) {
      const subscription = this.#byId.get(String(frame.subscriptionId));
      if (subscription) this.#end(subscription, refusal(frame as Partial<SubscribeResult>));
    }
  }

  #onResult(result: SubscribeResult): void {
    const { subscription, next } = this.#asked.answered(result.pattern);
    if (next) this.#say(subscribeFrame(next.ask));
    if (!subscription) return;
    const { subscriptionId: id } = result;
    if (result.status !== "ok" || id === undefined) {
      this.#end(subscription, refusal(result));
      return;
    }
    if (subscription.isStopped) {
      this.#say(unsubscribeFrame(id));
      return;
    }
    subscription.id = id;
    this.#byId.set(id, subscription);
    const sequence = digits(result.startSequence);
    const epoch = digits(result.epoch);
    subscription.to.started({
      ...(sequence !== undefined && { sequence }),
      ...(epoch !== undefined && { epoch }),
    });
  }

  #end(subscription: LineSubscription, error: SvcError | undefined): void {
    this.#subscriptions.delete(subscription);
    const { id } = subscription;
    if (id !== undefined && this.#byId.get(id) === subscription) this.#byId.delete(id);
    if (!subscription.isStopped) subscription.to.ended(error);
    if (this.#subscriptions.size > 0 || this.#isOver) return;
    this.#linger = setTimeout(() => {
      if (this.#subscriptions.size === 0) this.#close("nobody subscribes any more");
    }, lingerMs);
  }

  #close(why: string): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#connecting);
    clearTimeout(this.#linger);
    this.#silence.stop();
    const code = this.#isOpen ? "unreachable" : "not_opened";
    const error = new SvcError(code, `${shownUrl(this.#url)}/ws: ${why}`, { retryable: true });
    if (this.#subscriptions.size > 0) this.#transport.lost?.(this.#url);
    this.#socket?.close();
    for (const subscription of [...this.#subscriptions]) this.#end(subscription, error);
  }
}

/** On one socket; a few less than a server allows. */
const subscriptionsMax = 90;
/** Silence after which the client pings the server; a second one without an answer ends the socket. */
const silenceMsDefault = 20_000;

/** Subscriptions on WebSockets, many on one. One ends with code `not_opened` if its socket cannot open. */
export function socketWay(transport: Transport, silenceMs = silenceMsDefault): Way {
  const lines = new Set<SocketLine>();
  return (ask, to) => {
    for (const line of lines) if (line.isOver) lines.delete(line);
    let line = [...lines].find((one) => one.count < subscriptionsMax);
    if (!line) {
      line = new SocketLine(transport, silenceMs);
      lines.add(line);
    }
    const subscription: LineSubscription = { ask, to, isStopped: false };
    line.add(subscription);
    return () => line.stop(subscription);
  };
}

/**
 * Tries a socket, and where none can be opened, a stream. A browser does not say why a socket was refused;
 * the same request as a stream gets the reason, and passes proxies that let no socket through. With
 * `onlySocket` the stream serves for the reason alone.
 */
export const eitherWay = (socket: Way, stream: Way, onlySocket: boolean): Way => {
  return (ask, to) => {
    let stop = socket(ask, {
      ...to,
      ended(error) {
        if (error?.code !== "not_opened") return to.ended(error);
        if (!onlySocket) stop = stream(ask, to);
        else {
          const unopened = new SvcError("unreachable", error.message, { retryable: true });
          const end = (why = unopened) => {
            stop();
            to.ended(why);
          };
          stop = stream(ask, { started: () => end(), arrived() {}, passed() {}, ended: end });
        }
      },
    });
    return () => stop();
  };
};
