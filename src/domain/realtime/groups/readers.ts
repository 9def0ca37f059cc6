import type { Store } from "../../../store/store.ts";
import type { ReadersOf } from "../../log/topics/service.ts";
import { matchesTokens, parsePattern, tokensOf } from "../pubsub/rules.ts";
import { topicReaders } from "./rows.ts";

/** The groups that read a topic, for its counts. */
export const openTopicReaders =
  (store: Pick<Store, "all">): ReadersOf =>
  async (environmentId) => {
    const groups = (await topicReaders(store, environmentId)).map(({ pattern, position, member_count }) => ({
      tokens: parsePattern(pattern).tokens,
      reader: { position, memberCount: member_count },
    }));
    return (topic) => {
      const tokens = tokensOf(`topic:${topic}`);
      return groups.flatMap((group) => (matchesTokens(group.tokens, tokens) ? group.reader : []));
    };
  };
