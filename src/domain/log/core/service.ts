import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { searchBytesMax } from "../../../kit/limits.ts";
import { type Cursor, pageSize, readCursor, timeBound, writeCursor } from "../../../kit/page.ts";
import type { Store } from "../../../store/store.ts";
import { type EventKey, type EventLook, openLook, type PageAnchor } from "./look.ts";
import * as rows from "./rows.ts";

const filterValuesMax = 200;

export type { LoggedEvent } from "./rows.ts";

/** Query of `GET /events`, as sent. */
export interface ListEventsQuery {
  name?: string;
  /** Comma-separated. */
  names?: string;
  source?: string;
  search?: string;
  since?: string;
  until?: string;
  limit?: number;
  cursor?: string;
  before?: string;
}

export interface EventsPage {
  events: rows.LoggedEvent[];
  limit: number;
  nextCursor: string | undefined;
  prevCursor: string | undefined;
  hasNext: boolean;
  hasPrev: boolean;
  approxTotal: number;
  approxTotalCapped: boolean;
  /** How many events were looked at, when that ended the page; else 0. */
  scanned: number;
}

export interface EventNames {
  names: { name: string; count: number }[];
  scanned: number;
  truncated: boolean;
  scan_cap: number;
}

export type EventLog = ReturnType<typeof openEventLog>;

/** Reads of an environment's log; it is written by the flush of `events`. */
export function openEventLog(store: Store) {
  return {
    async list(environmentId: string, query: ListEventsQuery): Promise<EventsPage> {
      if (query.cursor !== undefined && query.before !== undefined)
        throw invalid("cursor", "mutually exclusive with before");
      const filter = readFilter(environmentId, query);
      const limit = pageSize(query.limit);
      const look = openLook(store, filter);
      const [page, total] = await Promise.all([
        query.before === undefined
          ? olderPage(store, environmentId, look, query.cursor, limit)
          : newerPage(store, environmentId, look, query.before, limit),
        look.count(),
      ]);
      return { ...page, limit, approxTotal: total.count, approxTotalCapped: total.isCut };
    },

    async names(
      environmentId: string,
      query: Pick<ListEventsQuery, "source" | "since" | "until">,
    ): Promise<EventNames> {
      const { names, matched, isCut } = await rows.countNames(store, readFilter(environmentId, query));
      return {
        names: names.slice(0, rows.namesMax),
        scanned: Math.min(matched, rows.namesScanCap),
        truncated: isCut || matched > rows.namesScanCap || names.length > rows.namesMax,
        scan_cap: rows.namesScanCap,
      };
    },

    async get(environmentId: string, id: string): Promise<rows.LoggedEvent> {
      const event = await rows.getEvent(store, environmentId, id);
      if (!event) throw missing("event", id);
      return event;
    },
  };
}

type EventsPageSlice = Omit<EventsPage, "limit" | "approxTotal" | "approxTotalCapped">;

const cursorOf = (event: rows.LoggedEvent): Cursor => ({ at: event.at, id: event.id });

/**
 * About how many letters of payloads one page holds, and at least one event; what it leaves out is on the
 * next one.
 */
export const pageCharsMax = 8 * 1024 * 1024;
/** Events read at once, at first and later: each may be as large as a request. */
const sliceFirst = 8;
const sliceMax = 16;

/** In the order of their keys; those that were expired since are left out. */
async function readEvents(
  store: Store,
  environmentId: string,
  keys: readonly EventKey[],
): Promise<rows.LoggedEvent[]> {
  const positions = keys.map(({ position }) => position);
  const [first, last] = [Math.min(...positions), Math.max(...positions)];
  // On libSQL finding a row reads those on the way to it: neighbours are found once.
  const found =
    last - first + 1 === keys.length
      ? await rows.eventsAfter(store, environmentId, first - 1, keys.length, last)
      : await rows.eventsAt(store, environmentId, positions);
  const byPosition = new Map(found.map((event) => [event.position, event]));
  return keys.flatMap(({ position }) => byPosition.get(position) ?? []);
}

interface EventsSlice {
  events: rows.LoggedEvent[];
  /** More follow, behind `end` where the page did not end with its last event. */
  isMore: boolean;
  end: Cursor | undefined;
}

async function readPage(
  store: Store,
  environmentId: string,
  look: EventLook,
  anchor: PageAnchor,
  limit: number,
): Promise<EventsSlice> {
  const { keys, last } = await look.keys(anchor, limit + 1);
  const wanted = keys.slice(0, limit);
  const events: rows.LoggedEvent[] = [];
  let chars = 1;
  let most = sliceFirst;
  for (let from = 0; from < wanted.length; ) {
    const slice = wanted.slice(from, from + most);
    for (const event of await readEvents(store, environmentId, slice)) {
      chars += event.data.length + (event.metadata?.length ?? 0);
      if (events.length > 0 && chars > pageCharsMax) return { events, isMore: true, end: undefined };
      events.push(event);
    }
    from += slice.length;
    const fitting = Math.floor(((pageCharsMax - chars) * Math.max(1, events.length)) / chars);
    most = Math.max(1, Math.min(fitting + 1, sliceMax));
  }
  return { events, isMore: keys.length > limit || last !== undefined, end: last };
}

/** Whether there is anything behind the anchor, or may be. */
async function isAny(look: EventLook, anchor: PageAnchor): Promise<boolean> {
  const { keys, last } = await look.keys(anchor, 1);
  return keys.length > 0 || last !== undefined;
}

async function olderPage(
  store: Store,
  environmentId: string,
  look: EventLook,
  cursor: string | undefined,
  limit: number,
): Promise<EventsPageSlice> {
  const after = cursor === undefined ? undefined : readCursor("cursor", cursor);
  const slice = await readPage(store, environmentId, look, after && { olderThan: after }, limit);
  const { events, isMore, end } = slice;
  const [first, last] = [events[0], events.at(-1)];
  const begin = first ? cursorOf(first) : after;
  // The newest page never has a previous one, also when events arrive meanwhile.
  const hasPrev = after !== undefined && (await isAny(look, { newerThan: begin! }));
  const behind = end ?? (last ? cursorOf(last) : after);
  const places = { next: isMore ? behind : undefined, prev: hasPrev ? begin : undefined };
  return page(events, places, end ? look.looksMax : 0);
}

async function newerPage(
  store: Store,
  environmentId: string,
  look: EventLook,
  before: string,
  limit: number,
): Promise<EventsPageSlice> {
  const cursor = readCursor("before", before);
  const { events, isMore, end } = await readPage(store, environmentId, look, { newerThan: cursor }, limit);
  events.reverse();
  const [first, last] = [events[0], events.at(-1)];
  // Everything at and below `before` is older than this page, so there is a next one whenever that event
  // exists.
  const behind = last ? cursorOf(last) : { at: cursor.at, id: `${cursor.id}~` };
  const hasNext = await isAny(look, { olderThan: behind });
  const prev = end ?? (first ? cursorOf(first) : cursor);
  const places = { next: hasNext ? behindOf(last, cursor) : undefined, prev: isMore ? prev : undefined };
  return page(events, places, end ? look.looksMax : 0);
}

const behindOf = (last: rows.LoggedEvent | undefined, cursor: Cursor): Cursor =>
  last ? cursorOf(last) : cursor;

function page(
  events: rows.LoggedEvent[],
  { next, prev }: { next: Cursor | undefined; prev: Cursor | undefined },
  scanned: number,
): EventsPageSlice {
  return {
    events,
    ...{ hasNext: next !== undefined, hasPrev: prev !== undefined },
    nextCursor: next && writeCursor(next),
    prevCursor: prev && writeCursor(prev),
    scanned,
  };
}

function readFilter(environmentId: string, query: ListEventsQuery): rows.EventFilter {
  if (query.search !== undefined && query.search.length > searchBytesMax)
    throw invalid("search", `at most ${searchBytesMax} characters`);
  const names = values("names", query.names);
  const sources = values("source", query.source);
  const since = timeBound("since", query.since);
  const until = timeBound("until", query.until);
  return {
    environmentId,
    ...(query.name && { name: query.name }),
    ...(query.search && { search: query.search }),
    ...(names && { names }),
    ...(sources && { sources }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
  };
}

function values(field: string, text: string | undefined): string[] | undefined {
  const list = text?.split(",").filter((value) => value !== "");
  if (list === undefined || list.length === 0) return undefined;
  if (list.length > filterValuesMax)
    throw new Fault(
      "invalid_argument",
      `too many values in '${field}' parameter: at most ${filterValuesMax}`,
      { field },
    );
  return list;
}
