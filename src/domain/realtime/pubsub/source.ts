import type { LogName } from "../../../kit/sequence.ts";
import type { Feeds, Following } from "../../log/core/feed.ts";
import type { LogEntry } from "../../log/core/feed-reader.ts";
import type { Past } from "../../log/core/past.ts";
import type { LoggedEvent } from "../../log/core/service.ts";
import type { TopicMessage } from "../../log/topics/past.ts";
import { deliveriesOf, messageDelivery, type TopicDelivery } from "./delivery.ts";

/** The entry at one position of a log, under each of its topics. */
export interface SourceEntry {
  position: number;
  placed: readonly TopicDelivery[];
}

/** A log that serves subscriptions: its past, and a feed of what is committed. */
export interface Source extends Past<SourceEntry> {
  follow(
    environmentId: string,
    reader: { onEntries: (list: readonly SourceEntry[]) => void; onEnd: () => void },
  ): Promise<Following>;
}

export type Sources = Readonly<Record<LogName, Source>>;

function sourceOf<Event extends LogEntry>(
  feeds: Pick<Feeds<Event>, "follow">,
  past: Past<Event>,
  placedOf: (event: Event) => readonly TopicDelivery[],
): Source {
  const entryOf = (event: Event): SourceEntry => ({ position: event.position, placed: placedOf(event) });
  return {
    follow: (environmentId, { onEntries, onEnd }) =>
      feeds.follow(environmentId, { onEvents: (events) => onEntries(events.map(entryOf)), onEnd }),
    head: past.head,
    between: async (...asked) => (await past.between(...asked)).map(entryOf),
    newest: async (...asked) => (await past.newest(...asked)).map(entryOf),
    at: async (...asked) => (await past.at(...asked)).map(entryOf),
  };
}

export interface SourcesDeps {
  feeds: Pick<Feeds, "follow">;
  past: Past;
  topicFeeds: Pick<Feeds<TopicMessage>, "follow">;
  topicsPast: Past<TopicMessage>;
}

export const sourcesOf = ({ feeds, past, topicFeeds, topicsPast }: SourcesDeps): Sources => ({
  events: sourceOf<LoggedEvent>(feeds, past, deliveriesOf),
  topics: sourceOf<TopicMessage>(topicFeeds, topicsPast, (message) => [messageDelivery(message)]),
});
