import { createClient } from "../../src/sdk/index.ts";
import { readStream } from "../../src/sdk/subscriptions/subscription-stream.ts";
import { livedTime } from "../support/lived.ts";
import { until } from "../support/until.ts";
import { type Interest, type Nodes, pickOf, stayMs } from "./lone-readers.ts";

export interface GroupReaders {
  name: string;
  interest: Interest;
  ready: Promise<void>;
  /** Positions whose acknowledgement was answered, and when. */
  acked: Map<number, number>;
  /** Deliveries that came after their acknowledgement. */
  breaches: string[];
  /** By position, how often it was given. */
  given: Map<number, number>;
  joins(): number;
  /** How long after its acknowledgement a delivery came at the latest; 0 when none did. */
  lateMs(): number;
  stop(): Promise<void>;
}

export interface GroupReadersOptions {
  name: string;
  interest: Interest;
  count: number;
  nodes: Nodes;
}

/**
 * Longer than an acknowledgement may take, so that nothing goes again while one of it is under way; and how long that is.
 */
const holdMs = 10_000;
const ackMs = 4_000;
/** Answers and deliveries come over connections of their own: what left a node first may be read later, in lived time. */
const readMs = 1_000;

/**
 * Members of one group that turn from node to node, acknowledge most, give some back and forget others: each delivery is
 * acknowledged once, whoever had it, and never comes again then.
 */
export async function openGroupReaders(options: GroupReadersOptions): Promise<GroupReaders> {
  const { name, interest, count, nodes } = options;
  const { key, chance } = nodes;
  const { pattern, filter } = interest;
  const pick = () => pickOf(nodes);
  const clientAt = (url: string) => createClient({ url, apiKey: key, timeoutMs: ackMs });
  await createClient({ url: pick(), apiKey: key }).groups.create(name, {
    pattern,
    ...(filter !== undefined && { filter }),
    ackMode: "manual",
    redeliverDelayMs: holdMs,
    maxRedeliveries: 1_000,
  });
  const acked = new Map<number, number>();
  const breaches: string[] = [];
  const stopping = new AbortController();
  const settling = new Set<Promise<void>>();
  const time = await livedTime();
  const given = new Map<number, number>();
  let joined = 0;
  let lateMs = 0;

  async function settle(consumerId: string, position: number, eventId: string): Promise<void> {
    const draw = chance();
    if (draw < 0.02) return;
    const ackType = draw < 0.1 ? "ACK_TYPE_NAK" : "ACK_TYPE_ACK";
    const message = { groupName: name, consumerId, eventId, ackType, redeliverDelayMs: 100 };
    try {
      await clientAt(pick()).transport.rpc("PubSubService/AckEvent", message, { repeatable: false });
      if (ackType === "ACK_TYPE_ACK") acked.set(position, time.now());
    } catch {
      // Then it comes again, or it was stored all the same: the end tells.
    }
  }

  async function member(number: number): Promise<void> {
    for (let turn = 0; !stopping.signal.aborted; turn++) {
      const consumerId = `member-${number}-${turn}`;
      const leave = AbortSignal.any([stopping.signal, AbortSignal.timeout(stayMs(nodes))]);
      const message = { groupName: name, consumerId, withStart: true };
      const request = { method: "PubSubService/JoinConsumerGroup", message, signal: leave };
      await readStream(clientAt(pick()).transport, request, (one) => {
        if (!one.topic) {
          joined++;
          return;
        }
        const position = Number(one.sequence);
        given.set(position, (given.get(position) ?? 0) + 1);
        const at = acked.get(position);
        const sinceMs = at === undefined ? 0 : time.now() - at;
        lateMs = Math.max(lateMs, sinceMs);
        if (sinceMs > readMs)
          breaches.push(
            `group ${name}: ${position} came to ${consumerId} ${Math.round(sinceMs)} ms after it was acknowledged, attempt ${one.deliveryAttempt}`,
          );
        const work = settle(consumerId, position, String(one.eventId)).finally(() => settling.delete(work));
        settling.add(work);
      }).catch(() => {});
      await Bun.sleep(50);
    }
  }
  const going = Promise.all(Array.from({ length: count }, (_, number) => member(number)));
  const ready = until(() => joined >= count, { about: "the members", deadlineMs: 60_000 }).then(() => {});
  return {
    name,
    interest,
    ready,
    acked,
    breaches,
    given,
    joins: () => joined,
    lateMs: () => Math.round(lateMs),
    async stop() {
      stopping.abort();
      await going;
      await Promise.all(settling);
      await time.stop();
    },
  };
}
