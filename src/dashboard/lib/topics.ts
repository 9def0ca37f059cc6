import { rpc } from "./api.ts";
import { instantOf } from "./format.ts";
import type { RowsPage } from "./pages.ts";

/** A topic as the list shows it. */
export interface TopicView {
  name: string;
  messages: number;
  consumers: number;
  firstAt: number | undefined;
  lastAt: number | undefined;
}

export async function listTopics(cursor: string, signal: AbortSignal): Promise<RowsPage<TopicView>> {
  const { topics = [], nextCursor = "" } = await rpc(
    "PubSubService",
    "ListTopics",
    { limit: 200, cursor },
    signal,
  );
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
