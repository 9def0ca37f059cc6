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
   * `nats://host:4222`, several separated by commas; the first `user:password@` or `token@` is for all of
   * them.
   */
  url: string;
  /** The text of a credentials file; read at every connection, so that a renewed one is taken up. */
  credentials?: (() => string) | undefined;
  /** PEM. Any of it, or a `tls://` URL, refuses a server without TLS. */
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

/** Where to connect and as whom. The library does not read the user part of a URL, and stumbles over it. */
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
 * The connection to NATS. The server may be away when a node starts and may go away at any time: the link tries
 * until it is closed, and its listeners come back with the connection.
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

  /** Begins to connect, and never gives up before `close`; `onOpened` is called at the first connection. */
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

  /** Stops trying to connect; what is connected stays until `close`. */
  leave(): void {
    this.#leaving.abort();
  }

  async close(): Promise<void> {
    this.leave();
    this.#listeners.clear();
    await this.#connection?.close();
    this.#setConnected(false);
  }

  /** Until it succeeds; says why not whenever the reason changes. */
  async #open(onOpened: () => void): Promise<void> {
    const { clock, log } = this.#options;
    const { signal } = this.#leaving;
    for (let lastMessage = ""; !signal.aborted && !this.#connection; ) {
      try {
        await this.#tryToOpen(onOpened);
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        if (message !== lastMessage) log.warn("bus.unreachable", { error: message });
        lastMessage = message;
        await clock.sleep(reconnectWaitMs, signal);
      }
    }
  }

  async #tryToOpen(onOpened: () => void): Promise<void> {
    const made = await connect({
      ...this.#dial,
      name: this.#options.nodeId,
      // Once connected, the library goes on for ever by itself; a password may be set right later.
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
      if (status.type === "error") this.#options.log.warn("bus.refused", { error: status.error.message });
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
