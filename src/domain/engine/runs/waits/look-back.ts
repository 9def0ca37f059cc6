import { breather } from "../../../../kit/breather.ts";
import type { Clock } from "../../../../kit/clock.ts";
import type { Store } from "../../../../store/store.ts";
import { matcherSliceMax } from "../limits.ts";
import type { Compared } from "./apply-matches.ts";
import { comparison } from "./comparison.ts";
import type { MatchedWait } from "./wait-conditions.ts";
import type { WaitRow } from "./wait-rows.ts";
import * as rows from "./wait-rows.ts";

export interface LookedBack {
  found: MatchedWait[];
  /** Waits that were compared with all events up to the head: they are fresh no longer. */
  finished: Compared[];
  /** Waits that were compared with a part of the events: they stay fresh, from a later position. */
  unfinished: Compared[];
}

/** Compares fresh waits with the events that were logged between their registration and `head`. */
export async function lookBack(
  { store, clock }: { store: Store; clock: Clock },
  environmentId: string,
  fresh: readonly WaitRow[],
  head: number,
): Promise<LookedBack> {
  const found: MatchedWait[] = [];
  const finished: WaitRow[] = [];
  const unfinished: Compared[] = [];
  const breathe = breather(clock, environmentId);
  for (const [eventName, waits] of Map.groupBy(fresh, (wait) => wait.event_name)) {
    const from = waits.reduce((least, wait) => Math.min(least, wait.from_position), head);
    let left: readonly WaitRow[] = waits;
    let to = head;
    if (from < head) {
      const fromAt = await rows.timeAt(store, environmentId, from);
      const range = { environmentId, names: [eventName], from, to: head, fromAt };
      const page = await rows.readEvents(store, range, matcherSliceMax);
      if (page.cut) to = page.events.at(-1)!.position;
      for (const event of page.events) {
        const compare = comparison(event);
        const still: WaitRow[] = [];
        for (const wait of left) {
          if (wait.from_position < event.position && compare(wait)) found.push({ wait, event });
          else still.push(wait);
          await breathe();
        }
        left = still;
        if (left.length === 0) break;
      }
    }
    if (to < head) unfinished.push({ waits: left, to, isFresh: true });
    else finished.push(...left);
  }
  return { found, unfinished, finished: [{ waits: finished, to: head, isFresh: false }] };
}
