import { type Instant, parseRfc3339 } from "../../kit/clock.ts";
import { Fault, invalid, missing } from "../../kit/fault.ts";
import { countCap, filterValuesMax, namesMax, namesScanCap, searchBytesMax } from "../../kit/limits.ts";
import { type Cursor, pageSize, readCursor, writeCursor } from "../../kit/page.ts";
import type { Store } from "../../store/store.ts";
import * as rows from "./rows.ts";

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
}

export interface EventNames {
  names: { name: string; count: number }[];
  scanned: number;
  truncated: boolean;
  scan_cap: number;
}

export interface EventLog {
  list(environmentId: string, query: ListEventsQuery): Promise<EventsPage>;
  names(
    environmentId: string,
    query: Pick<ListEventsQuery, "source" | "since" | "until">,
  ): Promise<EventNames>;
  get(environmentId: string, id: string): Promise<rows.LoggedEvent>;
}

/** Reads of an environment's log; it is written by the flush of `events`. */
export function openEventLog(store: Store): EventLog {
  return {
    async list(environmentId, query) {
      if (query.cursor !== undefined && query.before !== undefined)
        throw invalid("cursor", "mutually exclusive with before");
      const filter = readFilter(environmentId, query);
      const limit = pageSize(query.limit);
      const [page, total] = await Promise.all([
        query.before === undefined
          ? olderPage(store, filter, query.cursor, limit)
          : newerPage(store, filter, query.before, limit),
        rows.countEvents(store, filter),
      ]);
      return { ...page, limit, approxTotal: Math.min(total, countCap), approxTotalCapped: total > countCap };
    },

    async names(environmentId, query) {
      const { names, scanned } = await rows.countNames(store, readFilter(environmentId, query));
      return {
        names: names.slice(0, namesMax),
        scanned: Math.min(scanned, namesScanCap),
        truncated: scanned > namesScanCap || names.length > namesMax,
        scan_cap: namesScanCap,
      };
    },

    async get(environmentId, id) {
      const event = await rows.getEvent(store, environmentId, id);
      if (!event) throw missing("event", id);
      return event;
    },
  };
}

type Page = Omit<EventsPage, "limit" | "approxTotal" | "approxTotalCapped">;

const placeOf = (event: rows.LoggedEvent): Cursor => ({ at: event.at, id: event.id });

async function olderPage(
  store: Store,
  filter: rows.EventFilter,
  cursor: string | undefined,
  limit: number,
): Promise<Page> {
  const after = cursor === undefined ? undefined : readCursor("cursor", cursor);
  const found = await rows.listEvents(store, filter, after && { olderThan: after }, limit + 1);
  const events = found.slice(0, limit);
  const first = events[0];
  // On the newest page there is nothing newer, whatever arrives meanwhile (spec).
  const hasPrev = after !== undefined && (await rows.hasNewer(store, filter, first ? placeOf(first) : after));
  return page(events, found.length > limit, hasPrev, after);
}

async function newerPage(
  store: Store,
  filter: rows.EventFilter,
  before: string,
  limit: number,
): Promise<Page> {
  const place = readCursor("before", before);
  const found = await rows.listEvents(store, filter, { newerThan: place }, limit + 1);
  const events = found.slice(0, limit).reverse();
  // Everything at and below `before` is older than this page, so there is a next one whenever that event exists.
  const last = events.at(-1) ? placeOf(events.at(-1)!) : { at: place.at, id: `${place.id}~` };
  const older = await rows.listEvents(store, filter, { olderThan: last }, 1);
  return page(events, older.length > 0, found.length > limit, place);
}

function page(
  events: rows.LoggedEvent[],
  hasNext: boolean,
  hasPrev: boolean,
  place: Cursor | undefined,
): Page {
  const first = events[0] ? placeOf(events[0]) : place;
  const last = events.at(-1) ? placeOf(events.at(-1)!) : place;
  return {
    events,
    hasNext,
    hasPrev,
    nextCursor: hasNext && last ? writeCursor(last) : undefined,
    prevCursor: hasPrev && first ? writeCursor(first) : undefined,
  };
}

function readFilter(environmentId: string, query: ListEventsQuery): rows.EventFilter {
  if (query.search !== undefined && query.search.length > searchBytesMax)
    throw invalid("search", `at most ${searchBytesMax} characters`);
  const names = values("names", query.names);
  const sources = values("source", query.source);
  const since = instant("since", query.since);
  const until = instant("until", query.until);
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

function instant(field: string, text: string | undefined): Instant | undefined {
  if (text === undefined || text === "") return undefined;
  const at = parseRfc3339(text);
  if (at === undefined)
    throw new Fault("invalid_argument", `invalid '${field}' parameter: must be RFC3339`, { field });
  return at;
}
