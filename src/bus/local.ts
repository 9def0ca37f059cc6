import type { Clock } from "../kit/clock.ts";
import { matchesPattern } from "../kit/event-names.ts";
import { type Metrics, noMetrics } from "../kit/metrics.ts";
import { BusError, type BusTransport, isSubject, type Unlisten } from "./bus.ts";
import { watchBus } from "./watch.ts";

interface LocalNetwork {
  hints: Set<{ pattern: string; handler: (payload: Uint8Array, subject: string) => void }>;
  answers: Set<{ pattern: string; handler: (payload: Uint8Array) => Promise<Uint8Array | string> }>;
  nodes: Map<string, Record<string, unknown>>;
  /** The node that holds each name. */
  names: Map<string, string>;
}

export interface LocalTransportOptions {
  clock: Clock;
  nodeId: string;
  facts?: () => Record<string, unknown>;
  onError: (subject: string, error: unknown) => void;
  metrics?: Metrics;
}

const encoder = new TextEncoder();
const bytesOf = (payload: Uint8Array | string) =>
  typeof payload === "string" ? encoder.encode(payload) : payload;

/** Nodes in one process: the transport of a standalone server, and of tests with several nodes. */
export function localNetwork(): (options: LocalTransportOptions) => BusTransport {
  const network: LocalNetwork = { hints: new Set(), answers: new Set(), nodes: new Map(), names: new Map() };
  return (options) => join(network, options);
}

function join(network: LocalNetwork, options: LocalTransportOptions): BusTransport {
  const { clock, nodeId, facts = () => ({}), onError, metrics = noMetrics } = options;
  const mine: Unlisten[] = [];
  let open = true;
  const count = watchBus(metrics, () => open);
  network.nodes.set(nodeId, facts());

  const listen = <T>(set: Set<T>, entry: T): Unlisten => {
    set.add(entry);
    const stop = () => void set.delete(entry);
    mine.push(stop);
    return stop;
  };

  const ask = async (handler: (payload: Uint8Array) => Promise<Uint8Array | string>, payload: Uint8Array) => {
    try {
      return bytesOf(await handler(payload));
    } catch (error) {
      throw new BusError("remote", error instanceof Error ? error.message : String(error));
    }
  };

  const answering = (subject: string) =>
    [...network.answers].filter((entry) => matchesPattern(entry.pattern, subject));

  const hint = (subject: string, payload: Uint8Array | string) => {
    if (!open) return;
    count.sent.add();
    const bytes = bytesOf(payload);
    for (const entry of [...network.hints]) {
      if (!matchesPattern(entry.pattern, subject)) continue;
      // Listeners run after the caller's own work, as over a network. Microtasks keep the order of hints.
      queueMicrotask(() => {
        if (!network.hints.has(entry)) return;
        try {
          entry.handler(bytes, subject);
        } catch (error) {
          onError(subject, error);
        }
      });
    }
  };

  return {
    kind: "in-process",
    hint,
    async send(subject, payload) {
      if (!open) throw new BusError("disconnected", "the bus is closed");
      if (!isSubject(subject)) throw new BusError("refused", `${subject} is no subject`);
      hint(subject, payload);
    },
    onHint: (pattern, handler) =>
      listen(network.hints, {
        pattern,
        handler(payload, subject) {
          count.received.add();
          handler(payload, subject);
        },
      }),
    async request(subject, payload, timeoutMs) {
      if (!open) throw new BusError("disconnected", "the bus is closed");
      const [first] = answering(subject);
      if (!first) throw new BusError("no_responders", `no node answers ${subject}`);
      let cancel = () => {};
      const late = new Promise<never>((_, reject) => {
        cancel = clock.after(timeoutMs, () => reject(new BusError("timeout", `no answer on ${subject}`)));
      });
      try {
        return await Promise.race([ask(first.handler, bytesOf(payload)), late]);
      } finally {
        cancel();
      }
    },
    async requestMany(subject, payload, { timeoutMs, repliesMax }) {
      const replies: Uint8Array[] = [];
      const responders = answering(subject).slice(0, repliesMax);
      let cancel = () => {};
      const late = new Promise<void>((resolve) => {
        cancel = clock.after(timeoutMs, resolve);
      });
      const all = Promise.all(
        responders.map((entry) =>
          ask(entry.handler, bytesOf(payload)).then(
            (reply) => void replies.push(reply),
            (error: unknown) => onError(subject, error),
          ),
        ),
      );
      await Promise.race([all, late]);
      cancel();
      return [...replies];
    },
    onRequest: (pattern, handler) => listen(network.answers, { pattern, handler }),
    present() {
      const seenAt = clock.now();
      const factsOf = (id: string, joined: Record<string, unknown>) => (id === nodeId ? facts() : joined);
      return [...network.nodes]
        .map(([id, joined]) => ({ nodeId: id, facts: factsOf(id, joined), seenAt }))
        .sort((a, b) => (a.nodeId < b.nodeId ? -1 : 1));
    },
    connected: () => open,
    onConnection: () => () => {},
    listening: async () => {},
    async hold(name) {
      if (!open) return "unreachable";
      const holder = network.names.get(name) ?? nodeId;
      network.names.set(name, holder);
      return holder === nodeId ? "mine" : "theirs";
    },
    async release(name) {
      if (network.names.get(name) === nodeId) network.names.delete(name);
    },
    async close() {
      open = false;
      for (const [name, holder] of network.names) if (holder === nodeId) network.names.delete(name);
      network.nodes.delete(nodeId);
      for (const stop of mine.splice(0)) stop();
    },
  };
}
