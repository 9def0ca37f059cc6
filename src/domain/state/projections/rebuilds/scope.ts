import { Fault, invalid } from "../../../../kit/fault.ts";
import type { Store } from "../../../../store/store.ts";
import { countEvents, findEvent, type SteppedReads } from "../event-rows.ts";
import { rebuildCountMax } from "../limits.ts";
import { getHead, type ProjectionRow } from "../rows.ts";
import { eventNamesOf } from "../rules.ts";

/** Where a rebuild begins and ends. */
export interface RebuildScope {
  /** The last position before it. */
  after: number;
  target: number;
  total: number;
}

/** Throws `failed_precondition` where the events that it begins with have expired. */
export async function scopeOf(
  reads: SteppedReads,
  row: ProjectionRow,
  { fromEventId, toEventId }: { fromEventId: string; toEventId: string },
): Promise<RebuildScope> {
  const { store } = reads;
  const { environment_id: environmentId } = row;
  const head = await getHead(store, environmentId);
  if (!head) throw new Fault("not_found", `environment ${environmentId} not found`);
  const floor = head.retention_floor;
  const from = await positionOf(store, environmentId, "from_event_id", fromEventId);
  const to = await positionOf(store, environmentId, "to_event_id", toEventId);
  if (from !== undefined && to !== undefined && from > to)
    throw invalid("to_event_id", "must not stand before from_event_id");
  // Positions begin with 1: a log that nothing has expired from is whole.
  if (from === undefined && floor > 1)
    throw new Fault(
      "failed_precondition",
      `events below position ${floor} have expired: name an event from there on in from_event_id`,
    );
  const scope = { after: (from ?? 1) - 1, target: to ?? head.position };
  const names = eventNamesOf(JSON.parse(row.events) as string[]);
  const isFar = scope.target - scope.after > rebuildCountMax;
  const total = isFar
    ? scope.target - scope.after
    : await countEvents(reads, { environmentId, names }, { after: scope.after, last: scope.target });
  return { ...scope, total };
}

async function positionOf(
  store: Pick<Store, "one">,
  environmentId: string,
  field: string,
  eventId: string,
): Promise<number | undefined> {
  if (eventId === "") return undefined;
  const found = await findEvent(store, environmentId, eventId);
  if (!found) throw new Fault("not_found", `event ${eventId.slice(0, 255)} not found`, { field });
  return found.position;
}
