import { pageSize } from "../../../kit/page.ts";
import type { EventLog, EventsPage, ListEventsQuery, LoggedEvent } from "../log/service.ts";

/** Events that are looked through for one page at most. */
const scannedMax = 5_000;

/**
 * A page of what a caller may have. It is filled from further back, and says of what follows no more than whether there is
 * something for this caller: a search must not tell what stands in events that are not for them.
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
  let scanned = first.events.length;
  let last = first;
  const further = async (): Promise<LoggedEvent[]> => {
    const { before: _, ...rest } = query;
    const cursor = last.nextCursor!;
    last = await log.list(environmentId, { ...rest, cursor, limit: Math.max(1, limit - events.length) });
    scanned += last.events.length;
    return allowed(last.events);
  };
  // A page towards the newer ends where it was asked to.
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
