import type { Clock } from "../kit/clock.ts";
import { nameKeptMs } from "../kit/limits.ts";
import type { Log } from "../kit/log.ts";
import { loop } from "../kit/loop.ts";
import { type Metrics, noMetrics } from "../kit/metrics.ts";
import { watchLoop } from "../kit/watch.ts";
import { BusError, type BusTransport, isSubject } from "./bus.ts";
import { messageReader } from "./channel.ts";
import { errorHeaders, flushed, request, requestMany, sendSurely } from "./nats-calls.ts";
import { NatsLink, type NatsPlace } from "./nats-link.ts";
import { natsMirror } from "./nats-mirror.ts";
import { natsNames } from "./nats-names.ts";
import { PresenceHeartbeat, Presences, presenceLoop } from "./nats-presence.ts";
import { watchBus } from "./watch.ts";

export interface NatsTransportOptions extends NatsPlace {
  clock: Clock;
  log: Log;
  nodeId: string;
  /** In front of every subject, so that several installations can share a NATS server. */
  prefix?: string;
  /** Sent to the other nodes with every heartbeat. */
  facts?: () => Record<string, unknown>;
  metrics?: Metrics;
}

const encoder = new TextEncoder();
const bytesOf = (payload: Uint8Array | string) =>
  typeof payload === "string" ? encoder.encode(payload) : payload;

/**
 * Core NATS. Hints are dropped and counted while the server cannot be reached; listeners are subscribed again
 * at the next connection.
 */
export function openNatsTransport(options: NatsTransportOptions): BusTransport & { dropped(): number } {
  const { clock, log, nodeId, prefix = "svc.", facts = () => ({}), metrics = noMetrics } = options;
  const link = new NatsLink(options);
  const count = watchBus(metrics, () => link.connected);
  const onLag = (ms: number) => count.lag.observe(ms / 1000);
  const presences = new Presences({ clock, nodeId, facts, onLag });
  let dropped = 0;

  const publish = (subject: string, payload: Uint8Array | string, sent: { add(): void } | undefined) => {
    const current = link.reached();
    if (!current) {
      dropped++;
      count.dropped.add();
      return;
    }
    try {
      current.publish(prefix + subject, bytesOf(payload));
      sent?.add();
    } catch (error) {
      dropped++;
      count.dropped.add();
      log.debug("bus.hint_dropped", { subject, error });
    }
  };

  const heartbeats = loop(
    { clock, onError: (name, error) => log.warn("loop.failed", { loop: name, error }) },
    {
      ...presenceLoop,
      async tick() {
        if (link.connected) publish("presence", presences.heartbeat(), undefined);
        presences.forgetSilent();
      },
    },
  );
  watchLoop(metrics, heartbeats);
  const readHeartbeat = messageReader(PresenceHeartbeat, log);
  link.listen({
    subject: `${prefix}presence`,
    deliver({ data }) {
      const heartbeat = readHeartbeat(data, "presence");
      if (heartbeat) presences.receive(heartbeat);
    },
  });
  heartbeats.start();
  // The other nodes learn of this one from its heartbeat: the first is sent as soon as there is a connection.
  link.open(() => heartbeats.wake());

  const namePrefix = prefix.replaceAll(/[^A-Za-z0-9_-]+/g, "_");
  const names = natsNames({
    ...{ connection: link.reached, nodeId, log, keptMs: nameKeptMs },
    bucket: `${namePrefix}names`,
  });
  const mirror = natsMirror({
    ...{ connection: link.reached, log },
    prefix: `${prefix}mirror.`,
    stream: `${namePrefix}mirror`,
  });

  return {
    kind: "nats",
    mirror,
    hint: (subject, payload) => publish(subject, payload, count.sent),
    async send(subject, payload, timeoutMs) {
      const current = link.require();
      if (!isSubject(subject)) throw new BusError("refused", `${subject} is no subject`);
      await sendSurely(clock, current, prefix, subject, bytesOf(payload), timeoutMs);
      count.sent.add();
    },
    onHint: (pattern, handler) =>
      link.listen({
        subject: prefix + pattern,
        deliver(message) {
          count.received.add();
          try {
            handler(message.data, message.subject.slice(prefix.length));
          } catch (error) {
            log.warn("bus.handler_failed", { subject: message.subject, error });
          }
        },
      }),
    request: async (subject, payload, timeoutMs) =>
      request(link.require(), prefix, subject, bytesOf(payload), timeoutMs),
    requestMany: async (subject, payload, limits) =>
      requestMany(link.require(), prefix, subject, bytesOf(payload), limits),
    onRequest: (pattern, handler) =>
      link.listen({
        subject: prefix + pattern,
        deliver(message) {
          handler(message.data).then(
            (reply) => void message.respond(bytesOf(reply)),
            (error: unknown) => void message.respond(undefined, { headers: errorHeaders(error) }),
          );
        },
      }),
    present: () => presences.list(),
    connected: () => link.connected,
    onConnection: (handler) => link.watch(handler),
    async listening(timeoutMs) {
      const current = link.reached();
      if (current) await flushed(clock, current, timeoutMs).catch(() => false);
    },
    hold: names.hold,
    release: names.release,
    dropped: () => dropped,
    async close() {
      link.leave();
      await heartbeats.stop();
      await link.close();
    },
  };
}
