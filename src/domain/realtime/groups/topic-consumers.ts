import type { Store } from "../../../store/store.ts";
import type { ConsumersOf } from "../../log/topics/service.ts";
import { matchesTokens, parsePattern, tokensOf } from "../pubsub/rules.ts";
import { groupsOnTopics } from "./rows.ts";

/** Finds the consumer groups that read a topic, for the counts in the topic's record. */
export const openTopicConsumers =
  (store: Pick<Store, "all">): ConsumersOf =>
  async (environmentId) => {
    const groups = (await groupsOnTopics(store, environmentId)).map(
      ({ pattern, position, member_count }) => ({
        tokens: parsePattern(pattern).tokens,
        reader: { position, memberCount: member_count },
      }),
    );
    return (topic) => {
      const tokens = tokensOf(`topic:${topic}`);
      return groups.flatMap((group) => (matchesTokens(group.tokens, tokens) ? group.reader : []));
    };
  };
