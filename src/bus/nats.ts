import {
  type Authenticator,
  connect,
  credsAuthenticator,
  headers,
  type Msg,
  type MsgHdrs,
  type NatsConnection,
  NoRespondersError,
  RequestError,
  type Subscription,
  TimeoutError,
  tokenAuthenticator,
  usernamePasswordAuthenticator,
} from "@nats-io/transport-node";
import type { Clock } from "../kit/clock.ts";
import { nameKeptMs } from "../kit/limits.ts";
import type { Log } from "../kit/log.ts";
import { loop } from "../kit/loop.ts";
import { type Metrics, noMetrics } from "../kit/metrics.ts";
import { watchLoop } from "../kit/watch.ts";
import { type Bus, BusError, type Presence, type Unlisten } from "./bus.ts";
import { natsMirror } from "./nats-mirror.ts";
import { natsNames } from "./nats-names.ts";
import { isSubject } from "./subject.ts";
import { watchBus } from "./watch.ts";

export interface NatsBusOptions {
  clock: Clock;
  log: Log;
  nodeId: string;
  /**
   * `nats://host:4222`, several separated by commas; the first `user:password@` or `token@` is for all of
   * them.
   */
  url: string;
  /** The text of a credentials file; asked at every connection, so that a renewed one is taken up. */
  credentials?: (() => string) | undefined;
  /** PEM. Any of it, or a `tls://` URL, refuses a server without TLS. */
  tls?: BusTls | undefined;
  /** In front of every subject, so that several installations can share a server. */
  prefix?: string;
  /** Told to the other nodes with every sign of life. */
  facts?: () => Record<string, unknown>;
  metrics?: Metrics;
}

export interface BusTls {
  ca?: string;
  cert?: string;
  key?: string;
}

/** The one loop of a bus; a bus of one process has none. */
export const presenceLoop = {
  name: "bus.presence",
  about: "Tells the other nodes that this one lives, and forgets nodes that fell silent; only with NATS.",
  everyMs: 1_000,
} as const;
const forgottenMs = 5_000;
const reconnectWaitMs = 250;
const connectMs = 5_000;
/** Marks a reply as an error of the one who answers. */
const errorHeader = "X-Svc-Bus-Error";

/** A node's sign of life. */
interface PresenceHeartbeat {
  nodeId: string;
  /** When it was sent; older nodes do not say. */
  at?: number;
  facts: Record<string, unknown>;
}

interface Listener {
  pattern: string;
  deliver: (message: Msg) => void;
  subscription?: Subscription;
}

/** Where to connect and as whom. The library does not read the user part of a URL, and stumbles over it. */
function dialOf({ url, credentials, tls }: NatsBusOptions) {
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

const encoder = new TextEncoder();
const bytesOf = (payload: Uint8Array | string) =>
  typeof payload === "string" ? encoder.encode(payload) : payload;

/**
 * Core NATS. The server may be away when a node starts and may go away at any time: hints are dropped
 * meanwhile (and counted), listeners come back with the connection.
 */
export function openNatsBus(options: NatsBusOptions): Bus & { dropped(): number } {
  const { clock, log, nodeId, prefix = "svc.", metrics = noMetrics } = options;
  const listeners = new Set<Listener>();
  const watchers = new Set<(connected: boolean) => void>();
  const dial = dialOf(options);
  const leaving = new AbortController();
  const presences = new Map<string, Presence>();
  let connection: NatsConnection | undefined;
  let connected = false;
  let closing = false;
  let dropped = 0;

  const count = watchBus(metrics, () => connected);

  const setConnected = (now: boolean) => {
    if (connected === now) return;
    connected = now;
    log[now ? "info" : "warn"](now ? "bus.connected" : "bus.disconnected", {});
    for (const watcher of watchers) watcher(now);
  };

  const attach = (listener: Listener) => {
    if (!connection) return;
    listener.subscription = connection.subscribe(prefix + listener.pattern, {
      callback: (error, message) => {
        if (error) log.warn("bus.message_failed", { error });
        else listener.deliver(message);
      },
    });
  };

  async function follow(current: NatsConnection): Promise<void> {
    for await (const status of current.status()) {
      if (status.type === "disconnect" || status.type === "staleConnection") setConnected(false);
      if (status.type === "reconnect") setConnected(true);
      if (status.type === "error") log.warn("bus.refused", { error: status.error.message });
    }
  }

  async function tryToOpen(): Promise<void> {
    const made = await connect({
      ...dial,
      name: nodeId,
      // Once connected, the library goes on for ever by itself; a password may be set right later.
      maxReconnectAttempts: -1,
      ignoreAuthErrorAbort: true,
      reconnectTimeWait: reconnectWaitMs,
      timeout: connectMs,
      pingInterval: 5_000,
      maxPingOut: 2,
    });
    if (closing) return made.close();
    connection = made;
    for (const listener of listeners) attach(listener);
    setConnected(true);
    void follow(made);
    heartbeats.wake();
  }

  /** Until it succeeds; says why not whenever the reason changes. */
  async function open(): Promise<void> {
    for (let lastMessage = ""; !closing && !connection; ) {
      try {
        await tryToOpen();
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        if (message !== lastMessage) log.warn("bus.unreachable", { error: message });
        lastMessage = message;
        await clock.sleep(reconnectWaitMs, leaving.signal);
      }
    }
  }

  const publish = (subject: string, payload: Uint8Array | string, sent: { add(): void } | undefined) => {
    if (!connection || !connected) {
      dropped++;
      count.dropped.add();
      return;
    }
    try {
      connection.publish(prefix + subject, bytesOf(payload));
      sent?.add();
    } catch (error) {
      dropped++;
      count.dropped.add();
      log.debug("bus.hint_dropped", { subject, error });
    }
  };

  const listen = (listener: Listener): Unlisten => {
    listeners.add(listener);
    attach(listener);
    return () => {
      listeners.delete(listener);
      if (listener.subscription && !listener.subscription.isClosed()) listener.subscription.unsubscribe();
    };
  };

  const heartbeats = loop(
    { clock, onError: (name, error) => log.warn("loop.failed", { loop: name, error }) },
    {
      ...presenceLoop,
      async tick() {
        const heartbeat: PresenceHeartbeat = { nodeId, at: clock.now(), facts: options.facts?.() ?? {} };
        if (connected) publish("presence", JSON.stringify(heartbeat), undefined);
        const before = clock.now() - forgottenMs;
        for (const [id, presence] of presences) if (presence.seenAt < before) presences.delete(id);
      },
    },
  );

  watchLoop(metrics, heartbeats);
  listen({
    pattern: "presence",
    deliver(message) {
      const { nodeId: id, at, facts } = message.json<PresenceHeartbeat>();
      const seenAt = clock.now();
      presences.set(id, { nodeId: id, facts, seenAt });
      // The clocks are one time base, as far as it goes: a sign from the future has just been sent.
      if (at !== undefined && id !== nodeId) count.lag.observe(Math.max(0, seenAt - at) / 1000);
    },
  });
  heartbeats.start();
  void open();

  const reached = () => (connected ? connection : undefined);
  const namePrefix = prefix.replaceAll(/[^A-Za-z0-9_-]+/g, "_");
  const names = natsNames({
    connection: reached,
    nodeId,
    bucket: `${namePrefix}names`,
    keptMs: nameKeptMs,
    log,
  });
  const mirror = natsMirror({
    connection: reached,
    prefix: `${prefix}mirror.`,
    stream: `${namePrefix}mirror`,
    log,
  });

  const requireConnection = (): NatsConnection => {
    if (!connection || !connected) throw new BusError("disconnected", "the bus cannot be reached");
    return connection;
  };

  return {
    kind: "nats",
    mirror,
    hint: (subject, payload) => publish(subject, payload, count.sent),
    async send(subject, payload, timeoutMs) {
      const current = requireConnection();
      const bytes = bytesOf(payload);
      const most = current.info?.max_payload ?? Number.POSITIVE_INFINITY;
      if (!isSubject(subject)) throw new BusError("refused", `${subject} is no subject`);
      if (bytes.length > most)
        throw new BusError("refused", `the message has ${bytes.length} bytes, the bus takes ${most}`);
      let cancel = () => {};
      const late = new Promise<never>((_, reject) => {
        cancel = clock.after(timeoutMs, () => reject(new BusError("timeout", `${subject} was not taken`)));
      });
      try {
        current.publish(prefix + subject, bytes);
        await Promise.race([current.flush(), late]);
        count.sent.add();
      } catch (error) {
        throw toBusError(subject, error);
      } finally {
        cancel();
      }
    },
    onHint: (pattern, handler) =>
      listen({
        pattern,
        deliver(message) {
          count.received.add();
          try {
            handler(message.data, message.subject.slice(prefix.length));
          } catch (error) {
            log.warn("bus.handler_failed", { subject: message.subject, error });
          }
        },
      }),
    async request(subject, payload, timeoutMs) {
      const current = requireConnection();
      let reply: Msg;
      try {
        reply = await current.request(prefix + subject, bytesOf(payload), { timeout: timeoutMs });
      } catch (error) {
        throw toBusError(subject, error);
      }
      const failed = reply.headers?.get(errorHeader);
      if (failed) throw new BusError("remote", failed);
      return reply.data;
    },
    async requestMany(subject, payload, { timeoutMs, repliesMax }) {
      const current = requireConnection();
      const replies: Uint8Array[] = [];
      try {
        const answers = await current.requestMany(prefix + subject, bytesOf(payload), {
          strategy: "timer",
          maxWait: timeoutMs,
          maxMessages: repliesMax,
        });
        for await (const reply of answers) {
          if (!reply.headers?.get(errorHeader)) replies.push(reply.data);
          if (replies.length >= repliesMax) break;
        }
      } catch (error) {
        const trouble = toBusError(subject, error);
        if (trouble.trouble !== "no_responders") throw trouble;
      }
      return replies;
    },
    onRequest: (pattern, handler) =>
      listen({
        pattern,
        deliver(message) {
          handler(message.data).then(
            (reply) => void message.respond(bytesOf(reply)),
            (error: unknown) => void message.respond(undefined, { headers: errorHeaders(error) }),
          );
        },
      }),
    present: () => {
      const all = new Map(presences).set(nodeId, {
        nodeId,
        facts: options.facts?.() ?? {},
        seenAt: clock.now(),
      });
      return [...all.values()].sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
    },
    connected: () => connected,
    onConnection(handler) {
      watchers.add(handler);
      return () => void watchers.delete(handler);
    },
    hold: names.hold,
    release: names.release,
    dropped: () => dropped,
    async close() {
      closing = true;
      leaving.abort();
      await heartbeats.stop();
      listeners.clear();
      await connection?.close();
      setConnected(false);
    },
  };
}

function toBusError(subject: string, error: unknown): BusError {
  if (error instanceof BusError) return error;
  const cause =
    error instanceof RequestError && error.isNoResponders() ? new NoRespondersError(subject) : error;
  if (cause instanceof NoRespondersError) return new BusError("no_responders", `nobody answers ${subject}`);
  if (cause instanceof TimeoutError) return new BusError("timeout", `no answer on ${subject}`);
  return new BusError("disconnected", String(error));
}

function errorHeaders(error: unknown): MsgHdrs {
  const made = headers();
  made.set(
    errorHeader,
    (error instanceof Error ? error.message : String(error)).replace(/[\r\n]+/g, " ") || "failed",
  );
  return made;
}
