import {
  type Authenticator,
  connect,
  credsAuthenticator,
  type Msg,
  type NatsConnection,
  type Subscription,
  tokenAuthenticator,
  usernamePasswordAuthenticator,
} from "@nats-io/transport-node";
import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import { BusError, type Unlisten } from "./bus.ts";

export interface NatsPlace {
  /**
   * `nats://host:4222`, several separated by commas. The first `user:password@` or `token@` is used for every
   * host.
   */
  url: string;
  /** The text of a credentials file, read at every connection, so that a renewed file is used. */
  credentials?: (() => string) | undefined;
  /** PEM texts. With any of them, or with a `tls://` URL, a server without TLS is refused. */
  tls?: BusTls | undefined;
}

export interface BusTls {
  ca?: string;
  cert?: string;
  key?: string;
}

export interface NatsLinkOptions extends NatsPlace {
  clock: Clock;
  log: Log;
  nodeId: string;
}

export interface NatsListener {
  /** With the prefix of the installation. */
  subject: string;
  deliver: (message: Msg) => void;
}

const reconnectWaitMs = 250;
const connectMs = 5_000;
const encoder = new TextEncoder();

/**
 * Addresses and credentials, as the library takes them. The user part is removed from each URL: the library
 * ignores it, and reads a password of digits as the port.
 */
function dialOf({ url, credentials, tls }: NatsPlace) {
  const all = url.split(",").map((one) => new URL(one.trim()));
  const named = all.find(({ username }) => username !== "");
  const authenticators: Authenticator[] = [];
  if (credentials) authenticators.push(credsAuthenticator(() => encoder.encode(credentials())));
  if (named) {
    const user = decodeURIComponent(named.username);
    const password = decodeURIComponent(named.password);
    authenticators.push(
      password === "" ? tokenAuthenticator(user) : usernamePasswordAuthenticator(user, password),
    );
  }
  const servers = all.map((one) => {
    one.username = "";
    one.password = "";
    return one.href.replace(/\/$/, "");
  });
  const tlsWanted = tls !== undefined || all.some(({ protocol }) => protocol === "tls:");
  return {
    servers,
    ...(authenticators.length > 0 && { authenticator: authenticators }),
    ...(tlsWanted && { tls: tls ?? {} }),
  };
}

/**
 * The connection to NATS. The server may be unreachable when a node starts, and later at any time: the link
 * tries to connect until it is closed, and subscribes its listeners again at every connection.
 */
export class NatsLink {
  readonly #options: NatsLinkOptions;
  readonly #dial: ReturnType<typeof dialOf>;
  readonly #listeners = new Map<NatsListener, Subscription | undefined>();
  readonly #watchers = new Set<(connected: boolean) => void>();
  readonly #leaving = new AbortController();
  #connection: NatsConnection | undefined;
  #connected = false;

  constructor(options: NatsLinkOptions) {
    this.#options = options;
    this.#dial = dialOf(options);
  }

  /** Starts to connect, and tries until `close`. Calls `onOpened` at the first connection. */
  open(onOpened: () => void): void {
    void this.#open(onOpened);
  }

  get connected(): boolean {
    return this.#connected;
  }

  /** The connection while the server can be reached. */
  readonly reached = (): NatsConnection | undefined => (this.#connected ? this.#connection : undefined);

  require(): NatsConnection {
    const current = this.reached();
    if (!current) throw new BusError("disconnected", "the bus cannot be reached");
    return current;
  }

  /** Calls the handler on every change of `connected`. */
  watch(handler: (connected: boolean) => void): Unlisten {
    this.#watchers.add(handler);
    return () => void this.#watchers.delete(handler);
  }

  listen(listener: NatsListener): Unlisten {
    this.#listeners.set(listener, undefined);
    this.#attach(listener);
    return () => {
      const subscription = this.#listeners.get(listener);
      this.#listeners.delete(listener);
      if (subscription && !subscription.isClosed()) subscription.unsubscribe();
    };
  }

  /** Stops trying to connect. An open connection stays until `close`. */
  leave(): void {
    this.#leaving.abort();
  }

  async close(): Promise<void> {
    this.leave();
    this.#listeners.clear();
    await this.#connection?.close();
    this.#setConnected(false);
  }

  /** Tries until it succeeds. Logs the reason of a failure when it differs from the one before. */
  async #open(onOpened: () => void): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#leaving;
    for (let lastMessage = ""; !signal.aborted && !this.#connection; ) {
      try {
        await this.#tryToOpen(onOpened);
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        if (message !== lastMessage) log.warn("bus.unreachable", { error });
        lastMessage = message;
        await clock.sleep(reconnectWaitMs, signal);
      }
    }
  }

  async #tryToOpen(onOpened: () => void): Promise<void> {
    const made = await connect({
      ...this.#dial,
      name: this.#options.nodeId,
      // After the first connection the library reconnects by itself. It must not stop after some attempts,
      // nor at a refused password: an operator may correct it later, and the node would stay without a bus.
      maxReconnectAttempts: -1,
      ignoreAuthErrorAbort: true,
      reconnectTimeWait: reconnectWaitMs,
      timeout: connectMs,
      pingInterval: 5_000,
      maxPingOut: 2,
    });
    if (this.#leaving.signal.aborted) return made.close();
    this.#connection = made;
    for (const listener of this.#listeners.keys()) this.#attach(listener);
    this.#setConnected(true);
    void this.#follow(made);
    onOpened();
  }

  async #follow(current: NatsConnection): Promise<void> {
    for await (const status of current.status()) {
      if (status.type === "disconnect" || status.type === "staleConnection") this.#setConnected(false);
      if (status.type === "reconnect") this.#setConnected(true);
      if (status.type === "error") this.#options.log.warn("bus.refused", { error: status.error });
    }
  }

  #setConnected(now: boolean): void {
    if (this.#connected === now) return;
    this.#connected = now;
    this.#options.log[now ? "info" : "warn"](now ? "bus.connected" : "bus.disconnected", {});
    for (const watcher of this.#watchers) watcher(now);
  }

  #attach(listener: NatsListener): void {
    if (!this.#connection) return;
    const { log } = this.#options;
    const subscription = this.#connection.subscribe(listener.subject, {
      callback: (error, message) => {
        if (error) log.warn("bus.message_failed", { error });
        else listener.deliver(message);
      },
    });
    this.#listeners.set(listener, subscription);
  }
}
