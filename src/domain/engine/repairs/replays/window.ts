import { rfc3339 } from "../../../../kit/clock.ts";
import { invalid } from "../../../../kit/fault.ts";
import { timeBound } from "../../../../kit/page.ts";
import type { StoreReader } from "../../../../store/store.ts";
import * as rows from "./rows.ts";
import { belowFloor, type ReplayEvents, type ReplayWindow } from "./rules.ts";

/** The positions asked for, of a log with these ends. Throws the fault that names the field and the floor. */
export async function windowOf(
  reader: StoreReader,
  environmentId: string,
  events: ReplayEvents,
  ends: rows.LogEnds,
): Promise<ReplayWindow> {
  const from = await firstOf(reader, environmentId, events, ends);
  const { toPosition, until } = events;
  if (toPosition && toPosition > ends.position) throw beyondEnd("events.to_position", ends.position);
  if (toPosition) return { from, to: toPosition };
  const end = timeBound("events.until", until || undefined);
  if (end === undefined || end >= ends.last_at) return { from, to: ends.position };
  const last = (await rows.lastUntil(reader, environmentId, end)) ?? 0;
  return { from, to: Math.max(from - 1, last) };
}

const beyondEnd = (field: string, position: number) =>
  invalid(field, `must be at most ${position}, the end of the log`);

async function firstOf(
  reader: StoreReader,
  environmentId: string,
  { fromPosition, since }: ReplayEvents,
  { position, retention_floor, last_at }: rows.LogEnds,
): Promise<number> {
  const floor = Math.max(1, retention_floor);
  if (fromPosition) {
    if (fromPosition > position) throw beyondEnd("events.from_position", position);
    if (fromPosition < floor) throw belowFloor("events.from_position", floor, `${floor}`);
    return fromPosition;
  }
  const begin = timeBound("events.since", since || undefined);
  if (begin === undefined) return floor;
  if (floor > 1) {
    const oldest = (await rows.timeAt(reader, environmentId, floor)) ?? last_at + 1;
    if (begin < oldest) throw belowFloor("events.since", floor, rfc3339(oldest));
  }
  return Math.max(floor, (await rows.firstSince(reader, environmentId, begin)) ?? position + 1);
}
