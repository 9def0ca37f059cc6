import { createClient } from "../../src/sdk/index.ts";
import { readStream } from "../../src/sdk/subscription-stream.ts";
import { livedTime } from "../support/lived.ts";
import { until } from "../support/until.ts";
import type { Chance } from "./faults.ts";

export interface GroupReaders {
  ready: Promise<void>;
  /** Positions whose acknowledgement was answered. */
  acked: Map<number, number>;
  /** Deliveries that came after their acknowledgement. */
  breaches: string[];
  /** By position, how often it was given. */
  given: Map<number, number>;
  stop(): Promise<void>;
}

export interface GroupReadersOptions {
  pick: () => string;
  key: string;
  chance: Chance;
  count: number;
  pattern: string;
}

const name = "chaos";
/** What was under way when its acknowledgement was answered has come by then, unless this process stood still. */
const underWayMs = 2_000;

/**
 * Members of one group that turn from node to node, acknowledge most, give some back and forget others: each delivery is
 * acknowledged once, whoever had it, and never comes again then.
 */
export async function openGroupReaders(options: GroupReadersOptions): Promise<GroupReaders> {
  const { pick, key, chance, count, pattern } = options;
  const clientAt = (url: string) => createClient({ url, apiKey: key, timeoutMs: 5_000 });
  await clientAt(pick()).groups.create(name, {
    pattern,
    ackMode: "manual",
    redeliverDelayMs: 1_500,
    maxRedeliveries: 1_000,
  });
  const acked = new Map<number, number>();
  const breaches: string[] = [];
  const stopping = new AbortController();
  const settling = new Set<Promise<void>>();
  const time = await livedTime();
  const given = new Map<number, number>();
  let joined = 0;

  async function settle(consumerId: string, position: number, eventId: string): Promise<void> {
    const draw = chance();
    if (draw < 0.05) return;
    const ackType = draw < 0.15 ? "ACK_TYPE_NAK" : "ACK_TYPE_ACK";
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
      const leave = AbortSignal.any([stopping.signal, AbortSignal.timeout(500 + chance() * 4_000)]);
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
        if (at !== undefined && time.now() - at > underWayMs)
          breaches.push(`position ${position} came to ${consumerId} after it was acknowledged`);
        const work = settle(consumerId, position, String(one.eventId)).finally(() => settling.delete(work));
        settling.add(work);
      }).catch(() => {});
      await Bun.sleep(50);
    }
  }
  const going = Promise.all(Array.from({ length: count }, (_, number) => member(number)));
  const ready = until(() => joined >= count, { about: "the members", deadlineMs: 60_000 }).then(() => {});
  return {
    ready,
    acked,
    breaches,
    given,
    async stop() {
      stopping.abort();
      await going;
      await Promise.all(settling);
      await time.stop();
    },
  };
}
