import { Fault } from "../../../kit/fault.ts";
import { feedHintBytesMax, feedSliceMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { LoggedEvent, LogPosition } from "./rows.ts";

/** What any log is made of. Payloads are JSON texts. */
export interface LogEntry {
  position: number;
  data: string;
  metadata: string | null;
}

/** Someone who follows a log. Called with events in order of position, each once, none missing. */
export interface FeedReader<Event = LoggedEvent> {
  onEvents: (events: readonly Event[]) => void;
  /** The log is gone, with its environment; nothing follows. */
  onEnd?: () => void;
}

/** What one node tells the others after a commit: never the only copy of anything. */
export interface LogHint<Event = LoggedEvent> {
  environmentId: string;
  head: number;
  /** The events up to `head`, when they are small: a feed that stands right before them need not read. */
  events?: Event[];
}

/** A reader's place at a feed. */
export interface Following {
  stop(): void;
  /** Readers that have caught up have everything up to here; it moves right before they are called. */
  position(): number;
}

export interface Feeds<Event = LoggedEvent> {
  /**
   * Follows the log from behind `after`, or from its end. Resolves when the reader has caught up; what comes after that it
   * gets as it is committed, on whichever node. Rejects when `after` is above the head or below the retention floor.
   */
  follow(environmentId: string, reader: FeedReader<Event>, after?: number): Promise<Following>;
  /** Whether anyone here or elsewhere would want to hear of a commit in this environment. */
  wanted(environmentId: string): boolean;
  /** A commit of this node; the events of one environment in order. */
  committed(environmentId: string, events: readonly Event[]): void;
  /** The tick of loop `log.feeds`: finds what no hint told of. */
  compareOnce(): Promise<void>;
  /** Environments followed at this node. */
  size(): number;
}

/** A log as the store has it. */
export interface LogReads<Event> {
  /** Behind a position, in order; up to and with `last` when that is given. */
  after(environmentId: string, after: number, limit: number, last?: number): Promise<Event[]>;
  /** Where the logs stand; one that is gone is missing. */
  heads(environmentIds: readonly string[]): Promise<LogPosition[]>;
}

export interface FeedsDeps<Event> {
  reads: LogReads<Event>;
  log: Log;
  /** Tells the other nodes; best effort. */
  publishHint: (hint: LogHint<Event>) => void;
  /** Calls back with what other nodes tell of this environment, until the answer is called. */
  listen: (environmentId: string, onHint: (hint: LogHint<Event>) => void) => () => void;
  /** Whether there are other nodes to tell. */
  hasOthers: () => boolean;
}

interface Feed<Event> {
  environmentId: string;
  /** Readers have everything up to here. */
  position: number;
  /** The highest head that anyone told of. */
  head: number;
  reading: Promise<void> | undefined;
  readers: Set<FeedReader<Event>>;
  /** Readers that are still catching up. */
  joining: number;
  unlisten: () => void;
}

/** One feed an environment that has readers here: readers of any number share its reads and its place. */
export function openFeeds<Event extends LogEntry>(deps: FeedsDeps<Event>): Feeds<Event> {
  const { reads, log, publishHint, listen, hasOthers } = deps;
  const feeds = new Map<string, Feed<Event>>();
  const opening = new Map<string, Promise<Feed<Event>>>();

  async function headOf(environmentId: string): Promise<LogPosition> {
    const [head] = await reads.heads([environmentId]);
    if (!head) throw new Fault("not_found", `environment ${environmentId} not found`);
    return head;
  }

  async function open(environmentId: string): Promise<Feed<Event>> {
    // Listens before it looks, so that nothing falls between.
    let hintedHead = 0;
    let feed: Feed<Event> | undefined;
    const unlisten = listen(environmentId, (hint) => {
      if (feed) applyHint(feed, hint);
      else hintedHead = Math.max(hintedHead, hint.head);
    });
    try {
      const { position } = await headOf(environmentId);
      feed = {
        environmentId,
        position,
        head: Math.max(position, hintedHead),
        reading: undefined,
        readers: new Set(),
        joining: 0,
        unlisten,
      };
      feeds.set(environmentId, feed);
      if (feed.head > feed.position) void read(feed);
      return feed;
    } catch (error) {
      unlisten();
      throw error;
    }
  }

  const feedOf = (environmentId: string): Promise<Feed<Event>> => {
    const found = feeds.get(environmentId);
    if (found) return Promise.resolve(found);
    let made = opening.get(environmentId);
    if (!made) {
      made = open(environmentId).finally(() => opening.delete(environmentId));
      opening.set(environmentId, made);
    }
    return made;
  };

  function deliver(feed: Feed<Event>, events: readonly Event[], position: number): void {
    feed.position = position;
    if (events.length === 0) return;
    for (const reader of [...feed.readers]) {
      try {
        reader.onEvents(events);
      } catch (error) {
        log.error("feed.reader_failed", { environmentId: feed.environmentId, error });
      }
    }
  }

  function applyHint(feed: Feed<Event>, { head, events }: LogHint<Event>): void {
    feed.head = Math.max(feed.head, head);
    if (feed.head <= feed.position) return;
    const first = events?.[0];
    // What a reading is about to bring must not be given twice.
    if (first && !feed.reading && first.position <= feed.position + 1) {
      deliver(
        feed,
        events.filter((event) => event.position > feed.position),
        head,
      );
    }
    if (feed.head > feed.position) void read(feed);
  }

  /** Reads up to the highest head known, in slices. Positions that are not there any more are passed by. */
  function read(feed: Feed<Event>): Promise<void> {
    feed.reading ??= (async () => {
      try {
        while (feed.head > feed.position && feeds.get(feed.environmentId) === feed) {
          const { head, position } = feed;
          const events = await reads.after(feed.environmentId, position, feedSliceMax);
          const isWhole = events.length < feedSliceMax;
          deliver(
            feed,
            events,
            isWhole ? Math.max(head, events.at(-1)?.position ?? 0) : events.at(-1)!.position,
          );
        }
      } catch (error) {
        log.debug("feed.read_failed", { environmentId: feed.environmentId, error });
      } finally {
        feed.reading = undefined;
      }
    })();
    return feed.reading;
  }

  function close(feed: Feed<Event>): void {
    if (feeds.get(feed.environmentId) === feed) feeds.delete(feed.environmentId);
    feed.unlisten();
  }

  function closeIfIdle(feed: Feed<Event>): void {
    if (feed.readers.size === 0 && feed.joining === 0) close(feed);
  }

  /** Up to the feed's own place, which may move meanwhile, and then with it. */
  async function catchUpAndJoin(feed: Feed<Event>, reader: FeedReader<Event>, after: number): Promise<void> {
    const { environmentId } = feed;
    const { position, retention_floor: floor } = await headOf(environmentId);
    if (after > position)
      throw new Fault("invalid_argument", `position ${after} is above the end of the log, ${position}`);
    if (after < floor - 1) throw new Fault("failed_precondition", `positions below ${floor} have expired`);
    for (let reached = after; reached < feed.position; ) {
      const target = feed.position;
      const events = await reads.after(environmentId, reached, feedSliceMax, target);
      // Behind the read, since the floor is raised before anything goes.
      const now = await headOf(environmentId);
      if (reached < now.retention_floor - 1)
        throw new Fault("failed_precondition", `positions below ${now.retention_floor} have expired`);
      reached = events.length < feedSliceMax ? target : events.at(-1)!.position;
      if (events.length > 0) reader.onEvents(events);
    }
    // Nothing is awaited between the last look at the feed's place and this.
    feed.readers.add(reader);
  }

  return {
    async follow(environmentId, reader, after) {
      let feed = await feedOf(environmentId);
      // Closed in this very turn, by the last reader that left: nothing would ever reach who joined it.
      while (feeds.get(environmentId) !== feed) feed = await feedOf(environmentId);
      feed.joining++;
      try {
        if (after === undefined) feed.readers.add(reader);
        else await catchUpAndJoin(feed, reader, after);
      } finally {
        feed.joining--;
        closeIfIdle(feed);
      }
      return {
        stop() {
          feed.readers.delete(reader);
          closeIfIdle(feed);
        },
        position: () => feed.position,
      };
    },

    wanted: (environmentId) => feeds.has(environmentId) || hasOthers(),

    committed(environmentId, events) {
      const head = events.at(-1)?.position;
      if (head === undefined) return;
      const feed = feeds.get(environmentId);
      if (feed) applyHint(feed, { environmentId, head, events: [...events] });
      if (!hasOthers()) return;
      const bytes = events.reduce(
        (sum, event) => sum + event.data.length + (event.metadata?.length ?? 0) + 300,
        0,
      );
      publishHint({ environmentId, head, ...(bytes <= feedHintBytesMax && { events: [...events] }) });
    },

    async compareOnce() {
      const ids = [...feeds.keys()];
      for (let from = 0; from < ids.length; from += feedSliceMax) {
        const slice = ids.slice(from, from + feedSliceMax);
        const heads = new Map((await reads.heads(slice)).map((head) => [head.environment_id, head.position]));
        for (const id of slice) {
          const feed = feeds.get(id);
          const head = heads.get(id);
          if (feed && head !== undefined) applyHint(feed, { environmentId: id, head });
          else if (feed) {
            close(feed);
            for (const reader of feed.readers) reader.onEnd?.();
          }
        }
      }
    },

    size: () => feeds.size,
  };
}
