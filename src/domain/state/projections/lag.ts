import { countEvents, type SteppedReads } from "./event-rows.ts";
import { lagCountMax } from "./limits.ts";
import { eventNamesOf } from "./rules.ts";

/**
 * How many events of a projection stand behind a position, up to `last`. Counted one by one where they are
 * near; otherwise the difference of the positions, which may be more.
 */
export async function eventsBehind(
  reads: SteppedReads,
  { environment_id: environmentId, events }: { environment_id: string; events: string },
  { after, last }: { after: number; last: number },
): Promise<number> {
  if (last <= after) return 0;
  if (last - after > lagCountMax) return last - after;
  return countEvents(
    reads,
    { environmentId, names: eventNamesOf(JSON.parse(events) as string[]) },
    { after, last },
  );
}
