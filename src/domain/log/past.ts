import type { Store } from "../../store/store.ts";
import { eventsAfter, type Head, headsOf, type LoggedEvent, newestEvents } from "./rows.ts";

/** What stands in logs already, for those who read it before they follow. */
export interface Past {
  head(environmentId: string): Promise<Head | undefined>;
  /** Behind `after`, up to and with `last`, in order. */
  between(
    environmentId: string,
    range: { after: number; last: number },
    limit: number,
  ): Promise<LoggedEvent[]>;
  /** Newest first, up to and with `last`; of one name when that is given. */
  newest(
    environmentId: string,
    wanted: { last: number; name: string | undefined },
    limit: number,
  ): Promise<LoggedEvent[]>;
}

export const openPast = (store: Pick<Store, "all">): Past => ({
  head: async (environmentId) => (await headsOf(store, [environmentId]))[0],
  between: (environmentId, { after, last }, limit) => eventsAfter(store, environmentId, after, limit, last),
  newest: (environmentId, wanted, limit) => newestEvents(store, environmentId, wanted, limit),
});
