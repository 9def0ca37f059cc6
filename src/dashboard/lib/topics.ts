import { rpc } from "./api.ts";
import { instantOf } from "./format.ts";

export async function listTopics(cursor: string, signal: AbortSignal) {
  const asked = { limit: 200, cursor };
  const { topics = [], nextCursor = "" } = await rpc("PubSubService", "ListTopics", asked, signal);
  return {
    rows: topics.map((m) => ({
      ...{ name: m.name ?? "", messages: Number(m.messageCount ?? 0), consumers: m.consumerCount ?? 0 },
      ...{ firstAt: instantOf(m.firstMessageAt), lastAt: instantOf(m.lastMessageAt) },
    })),
    next: nextCursor || undefined,
  };
}

export async function getTopic(topic: string, signal: AbortSignal) {
  const m = await rpc("PubSubService", "GetTopicStats", { topic }, signal);
  return {
    ...{ messages: Number(m.messageCount ?? 0), consumers: m.consumerCount ?? 0 },
    /** `behind`: what the slowest group has not taken. */
    ...{ behind: Number(m.lag ?? 0), first: m.firstSeq ?? "0", last: m.lastSeq ?? "0" },
  };
}
