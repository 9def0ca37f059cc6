import type { Feeds, Following, Logged } from "../../log/log/feed.ts";
import type { Past } from "../../log/log/past.ts";
import type { LoggedEvent } from "../../log/log/service.ts";
import type { TopicMessage } from "../../log/topics/log.ts";
import { deliveriesOf, messageDelivery, type Placed } from "./delivery.ts";
import type { LogName } from "./rules.ts";

/** What stands at one position of a log, under every topic that subscribers know it by. */
export interface Told {
  position: number;
  placed: readonly Placed[];
}

/** A log that subscriptions are served from: what it has, and what comes. */
export interface Source extends Past<Told> {
  follow(
    environmentId: string,
    reader: { onTold: (list: readonly Told[]) => void; onEnd: () => void },
  ): Promise<Following>;
}

export type Sources = Readonly<Record<LogName, Source>>;

function sourceOf<Event extends Logged>(
  feeds: Pick<Feeds<Event>, "follow">,
  past: Past<Event>,
  placedOf: (event: Event) => readonly Placed[],
): Source {
  const told = (event: Event): Told => ({ position: event.position, placed: placedOf(event) });
  return {
    follow: (environmentId, { onTold, onEnd }) =>
      feeds.follow(environmentId, { onEvents: (events) => onTold(events.map(told)), onEnd }),
    head: past.head,
    between: async (...asked) => (await past.between(...asked)).map(told),
    newest: async (...asked) => (await past.newest(...asked)).map(told),
    at: async (...asked) => (await past.at(...asked)).map(told),
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
