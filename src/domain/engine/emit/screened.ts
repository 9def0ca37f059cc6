import { pageSize } from "../../../kit/page.ts";
import type { EventLog, EventsPage, ListEventsQuery, LoggedEvent } from "../../log/core/service.ts";

/** Events read for one page at most. */
const scannedMax = 5_000;

/**
 * A page of the events that a caller may see, filled from further back. It reveals of later pages only
 * whether they hold something for this caller: a search must not tell what is in hidden events.
 */
export async function screenedPage(
  log: Pick<EventLog, "list">,
  environmentId: string,
  query: ListEventsQuery,
  refusalOf: (event: LoggedEvent) => unknown,
): Promise<EventsPage> {
  const allowed = async (events: readonly LoggedEvent[]) => {
    const kept: LoggedEvent[] = [];
    for (const event of events) if ((await refusalOf(event)) === undefined) kept.push(event);
    return kept;
  };
  const limit = pageSize(query.limit);
  const first = await log.list(environmentId, query);
  const events = await allowed(first.events);
  let scanned = first.events.length + first.scanned;
  let last = first;
  const further = async (): Promise<LoggedEvent[]> => {
    const { before: _, ...rest } = query;
    const cursor = last.nextCursor!;
    last = await log.list(environmentId, { ...rest, cursor, limit: Math.max(1, limit - events.length) });
    scanned += last.events.length + last.scanned;
    return allowed(last.events);
  };
  // A page towards newer events is not extended.
  while (query.before === undefined && events.length < limit && last.hasNext && scanned < scannedMax)
    events.push(...(await further()));
  const { nextCursor } = last;
  let hasNext = last.hasNext;
  if (hasNext) {
    let more = 0;
    while (more === 0 && last.hasNext && scanned < scannedMax) more = (await further()).length;
    hasNext = more > 0 || last.hasNext;
  }
  return {
    ...first,
    events,
    hasNext,
    nextCursor: hasNext ? nextCursor : undefined,
    approxTotal: events.length,
    approxTotalCapped: hasNext || first.hasPrev,
  };
}
