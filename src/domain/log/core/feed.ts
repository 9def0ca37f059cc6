import { feedSliceMax } from "../../../kit/slice-size.ts";
import { EnvironmentFeed, type OpenFeeds } from "./environment-feed.ts";
import type { FeedReader, FeedsDeps, LogEntry } from "./feed-reader.ts";
import type { LoggedEvent } from "./rows.ts";

/** A commit's events travel with its hint up to this size; readers of larger ones read the store. */
export const feedHintBytesMax = 64 * 1024;
/** What an event has beside its payloads, in a hint. */
const entryBytes = 300;

/** A reader that has joined a feed. */
export interface Following {
  stop(): void;
  /**
   * Readers that have caught up have every event up to this position; it moves right before they are called.
   */
  position(): number;
}

export type Feeds<Event extends LogEntry = LoggedEvent> = ReturnType<typeof openFeeds<Event>>;

/**
 * One feed for each environment that has readers here: any number of readers share its reads and its
 * position.
 */
export function openFeeds<Event extends LogEntry>(deps: FeedsDeps<Event>) {
  const { reads, publishHint, hasOthers, hasReadersElsewhere } = deps;
  const feeds: OpenFeeds<Event> = new Map();
  const opening = new Map<string, Promise<EnvironmentFeed<Event>>>();
  /** Those whose log was not there at the last comparison. */
  let missed = new Set<string>();

  async function open(environmentId: string): Promise<EnvironmentFeed<Event>> {
    const feed = new EnvironmentFeed(environmentId, deps, feeds);
    await feed.start();
    return feed;
  }

  const feedOf = (environmentId: string): Promise<EnvironmentFeed<Event>> => {
    const found = feeds.get(environmentId);
    if (found) return Promise.resolve(found);
    let made = opening.get(environmentId);
    if (!made) {
      made = open(environmentId).finally(() => opening.delete(environmentId));
      opening.set(environmentId, made);
    }
    return made;
  };

  return {
    /**
     * Follows the log from the first event after position `after`, or from its end. Resolves when the reader
     * has caught up; later events arrive as they are committed, on whichever node. Rejects when `after` is
     * above the head or below the retention floor.
     */
    async follow(environmentId: string, reader: FeedReader<Event>, after?: number): Promise<Following> {
      let feed = await feedOf(environmentId);
      // The last reader may have left and closed the feed in this very turn: a reader that joined it would
      // get nothing.
      while (!feed.isOpen) feed = await feedOf(environmentId);
      if (after === undefined) feed.join(reader);
      else await feed.catchUpAndJoin(reader, after);
      return { stop: () => feed.leave(reader), position: () => feed.position };
    },

    /** Whether a commit in this environment has readers, here or perhaps on another node. */
    wanted: (environmentId: string) => feeds.has(environmentId) || hasOthers(),

    /** Passes on a commit of this node: one environment's events up to `head`, in order, if anyone reads. */
    committed(environmentId: string, head: number, events: () => readonly Event[]) {
      const feed = feeds.get(environmentId);
      const isTold = hasOthers();
      const isReadElsewhere = isTold && hasReadersElsewhere(environmentId);
      const made = feed || isReadElsewhere ? [...events()] : [];
      feed?.applyHint({ environmentId, head, events: made });
      if (!isTold) return;
      const isCarried = isReadElsewhere && bytesOf(made) <= feedHintBytesMax;
      publishHint({ environmentId, head, ...(isCarried && { events: made }) });
    },

    /**
     * The tick of loop `log.feeds`: compares every feed with the store's head, for commits whose hint was
     * lost. Readers of a log that is missing twice in a row are told that it is gone: what a deletion says to
     * who listens comes first.
     */
    async compareOnce() {
      const ids = [...feeds.keys()];
      const before = missed;
      missed = new Set();
      for (let from = 0; from < ids.length; from += feedSliceMax) {
        const slice = ids.slice(from, from + feedSliceMax);
        const heads = new Map((await reads.heads(slice)).map((head) => [head.environment_id, head.position]));
        for (const id of slice) {
          const head = heads.get(id);
          if (head !== undefined) feeds.get(id)?.applyHint({ environmentId: id, head });
          else if (before.has(id)) feeds.get(id)?.end();
          else missed.add(id);
        }
      }
    },

    /** Environments followed at this node. */
    size: () => feeds.size,
  };
}

function bytesOf(events: readonly LogEntry[]): number {
  let bytes = 0;
  for (const { data, metadata } of events) bytes += data.length + (metadata?.length ?? 0) + entryBytes;
  return bytes;
}
