import type { Log } from "../../../kit/log.ts";
import type { Store } from "../../../store/store.ts";
import {
  eventsAfter,
  eventsAt,
  type Head,
  headsOf,
  type LoggedEvent,
  type LogPosition,
  newestEvents,
} from "./rows.ts";

/** An entry of any log. Payloads are JSON texts. */
export interface LogEntry {
  position: number;
  data: string;
  metadata: string | null;
}

/** Follows a log: called with events in order of position, each once, none missing. */
export interface FeedReader<Event = LoggedEvent> {
  onEvents: (events: readonly Event[]) => void;
  /** Called when the log is deleted with its environment; `onEvents` is not called again. */
  onEnd?: () => void;
}

/**
 * Published to the other nodes after a commit. Best effort: a lost hint delays readers until `compareOnce`.
 */
export interface LogHint<Event = LoggedEvent> {
  environmentId: string;
  head: number;
  /**
   * The events up to `head`, when they are small and have readers at other nodes: a feed whose position is
   * right before them need not read the store.
   */
  events?: Event[];
}

/** Reads of a log in the store. */
export interface LogReads<Event> {
  /** Events after a position, in order; up to and including `last` when it is given. */
  after(environmentId: string, after: number, limit: number, last?: number): Promise<Event[]>;
  /** The heads of these environments' logs; a deleted environment is missing. */
  heads(environmentIds: readonly string[]): Promise<LogPosition[]>;
}

export interface FeedsDeps<Event> {
  reads: LogReads<Event>;
  log: Log;
  publishHint: (hint: LogHint<Event>) => void;
  /** Calls back with other nodes' hints about this environment, until the function it returns is called. */
  listen: (environmentId: string, onHint: (hint: LogHint<Event>) => void) => () => void;
  /** Whether there are other nodes to tell. */
  hasOthers: () => boolean;
  /** Whether another node is known to read this environment's log and gets the events with their hint. */
  hasReadersElsewhere: (environmentId: string) => boolean;
}

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
