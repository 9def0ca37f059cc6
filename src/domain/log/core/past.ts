import type { Store } from "../../../store/store.ts";
import type { LogReads } from "./feed-reader.ts";
import { eventsAfter, eventsAt, type Head, headsOf, type LoggedEvent, newestEvents } from "./rows.ts";

/** Reads of logged events, for subscribers that read them before they follow the feed. */
export interface Past<Event = LoggedEvent> {
  head(environmentId: string): Promise<Head | undefined>;
  /** After `after`, up to and including `last`, in order. */
  between(environmentId: string, range: { after: number; last: number }, limit: number): Promise<Event[]>;
  /** Newest first, up to and including `last`; of one name when it is given. */
  newest(
    environmentId: string,
    wanted: { last: number; name: string | undefined },
    limit: number,
  ): Promise<Event[]>;
  /** The events at these positions, in order, without those that have expired. */
  at(environmentId: string, positions: readonly number[]): Promise<Event[]>;
}

/** The events of environments, as feeds read them. */
export const eventReads = (store: Pick<Store, "all">): LogReads<LoggedEvent> => ({
  after: (environmentId, after, limit, last) => eventsAfter(store, environmentId, after, limit, last),
  heads: (environmentIds) => headsOf(store, environmentIds),
});

export const openPast = (store: Pick<Store, "all" | "seams">): Past => ({
  head: async (environmentId) => (await headsOf(store, [environmentId]))[0],
  between: (environmentId, { after, last }, limit) => eventsAfter(store, environmentId, after, limit, last),
  newest: (environmentId, wanted, limit) => newestEvents(store, environmentId, wanted, limit),
  at: (environmentId, positions) => eventsAt(store, environmentId, positions),
});
