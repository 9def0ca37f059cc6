import type { Quotas } from "../domain/engine/quotas/service.ts";
import { openFeeds } from "../domain/log/core/feed.ts";
import { openLogSequences } from "../domain/log/core/sequences.ts";
import { openExpiry } from "../domain/log/topics/expire.ts";
import { topicChecks } from "../domain/log/topics/invariants.ts";
import { topicsOperations } from "../domain/log/topics/operations.ts";
import { type TopicMessage, topicReads } from "../domain/log/topics/past.ts";
import { topicHeads } from "../domain/log/topics/rows.ts";
import { openTopics } from "../domain/log/topics/service.ts";
import { leastUnhandled } from "../domain/realtime/groups/rows.ts";
import { openTopicConsumers } from "../domain/realtime/groups/topic-consumers.ts";
import type { Flow } from "../domain/record/flow/service.ts";
import { expireEveryMs, keptMs } from "../settings/retention.ts";
import { feedHints } from "./feed-hints.ts";
import type { Host, PartShape } from "./part.ts";

/** Developer topics, and their log in every environment. */
export function openTopicsPart(host: Host, flow: Flow, { requireRoom }: Pick<Quotas, "requireRoom">) {
  const { config, store, clock, ids, log, watch } = host;
  const topicFeeds = openFeeds({
    ...{ reads: topicReads(store), log },
    ...feedHints<TopicMessage>(host, "topics"),
  });
  const topics = openTopics({
    ...{ store, clock, ids, watch, feeds: topicFeeds },
    ...{ requireRoom, consumersOf: openTopicConsumers(store) },
    onPublished: flow.published,
  });
  const { topics: kept } = keptMs(config);
  const expireOnce = openExpiry({
    ...{ store, clock, log, keptMs: kept },
    floorGuards: [(environmentId) => leastUnhandled(store, environmentId, "topics")],
  });
  const sequences = openLogSequences({
    ...{ log: "topics", clock, feeds: topicFeeds },
    heads: (ids) => topicHeads(store, ids),
  });
  return {
    /** Readers of the topic log here. */
    topicFeeds,
    sequences,
    operations: topicsOperations(topics),
    loops: [
      {
        name: "topics.feeds",
        about:
          "Compares how far readers here have read with the heads of the topic logs, in case a hint was lost.",
        everyMs: 1_000,
        tick: topicFeeds.compareOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "topics.expire",
        about: "Raises the floors of topic logs and deletes the messages below them, a slice a transaction.",
        everyMs: expireEveryMs(kept),
        tick: expireOnce,
      },
    ],
    checks: topicChecks(store),
    drain: async () => sequences.drain(),
    settled: topics.drain,
  } satisfies PartShape;
}
