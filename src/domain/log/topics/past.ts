import type { Store } from "../../../store/store.ts";
import type { LogReads, Past } from "../core/feed-reader.ts";
import { messagesAfter, messagesAt, newestMessages, type TopicMessage, topicHeads } from "./rows.ts";

export type { TopicMessage } from "./rows.ts";

/** The topics of environments, as feeds read them. */
export const topicReads = (store: Pick<Store, "all">): LogReads<TopicMessage> => ({
  after: (environmentId, after, limit, last) => messagesAfter(store, environmentId, after, limit, last),
  heads: (environmentIds) => topicHeads(store, environmentIds),
});

export const openTopicsPast = (store: Pick<Store, "all" | "seams">): Past<TopicMessage> => ({
  head: async (environmentId) => (await topicHeads(store, [environmentId]))[0],
  between: (environmentId, { after, last }, limit) => messagesAfter(store, environmentId, after, limit, last),
  newest: (environmentId, wanted, limit) => newestMessages(store, environmentId, wanted, limit),
  at: (environmentId, positions) => messagesAt(store, environmentId, positions),
});
