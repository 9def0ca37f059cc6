import { Fault } from "../../kit/fault.ts";
import { feedSliceMax, replayMax, replayScanMax } from "../../kit/limits.ts";
import type { Store } from "../../store/store.ts";
import { Delivery } from "./delivery.ts";
import type { ChannelSpec } from "./hub.ts";
import { notesOf } from "./rows.ts";
import { literalName, matchesTokens, tokensOf, wantedOf } from "./rules.ts";
import { frameOfNote } from "./run-frames.ts";
import type { Source } from "./source.ts";

/** The newest `count` of the channel up to and with position `last`, in order. Looks through `limits.replayScanMax` events. */
export async function newestOf(
  source: Pick<Source, "newest">,
  spec: ChannelSpec,
  last: number,
  count: number,
): Promise<Delivery[]> {
  const name = literalName(spec.pattern);
  const found: Delivery[] = [];
  let below = last;
  for (let scanned = 0; scanned < replayScanMax && found.length < count; ) {
    // What has neither wildcards nor a filter is found at once.
    const isExact = name !== undefined && !spec.filter;
    const limit = Math.min(isExact ? count : feedSliceMax, replayScanMax - scanned);
    const events = await source.newest(spec.environmentId, { last: below, name }, limit);
    for (const event of events) {
      if (found.length >= count) break;
      found.push(...wantedOf(spec, event).reverse());
    }
    scanned += events.length;
    if (events.length < limit) break;
    below = events.at(-1)!.position - 1;
  }
  return found.slice(0, count).reverse();
}

export interface CatchUp {
  source: Pick<Source, "between" | "head">;
  spec: ChannelSpec;
  give: (delivery: Delivery) => void | Promise<void>;
  /** Where the channel is now; it moves meanwhile. */
  position: () => number;
  isOver: () => boolean;
}

/**
 * From behind `after` up to the channel's own place; answers the place that was reached, with nothing awaited since. Throws
 * `failed_precondition` when retention took what comes next before it was read: nothing is left out in silence.
 */
export async function catchUp({ source, spec, give, position, isOver }: CatchUp, after: number) {
  let reached = after;
  while (reached < position() && !isOver()) {
    const last = position();
    const events = await source.between(spec.environmentId, { after: reached, last }, feedSliceMax);
    // Looked at behind the read: the floor is raised before anything goes. Events of streams stay.
    const floor = (await source.head(spec.environmentId))?.retention_floor ?? 0;
    if (reached < floor - 1 && spec.pattern.namespace !== "entity") throw expired(floor);
    for (const event of events) {
      for (const delivery of wantedOf(spec, event)) {
        if (isOver()) return reached;
        const full = give(delivery);
        if (full) await full;
      }
      reached = event.position;
    }
    if (events.length < feedSliceMax) reached = last;
  }
  return reached;
}

const expired = (floor: number): Fault =>
  new Fault("failed_precondition", `positions below ${floor} have expired before they were read`);

/** What has been told of a run behind place `after` of its history, the newest `count` of it, in order. */
export async function runFramesAfter(
  store: Store,
  spec: ChannelSpec,
  runId: string,
  { after, count }: { after: number; count: number },
): Promise<{ deliveries: Delivery[]; last: number; isOver: boolean }> {
  const notes = await notesOf(store, [runId], replayMax);
  const frames = notes
    .filter((note) => note.environment_id === spec.environmentId)
    .map(frameOfNote)
    .reverse();
  const fresh = frames.filter(({ sequence }) => sequence > after);
  const deliveries = fresh
    .map(
      ({ topic, data, at, sequence }) =>
        new Delivery({ topic, data, at, sequence, eventId: undefined, custom: null, source: "system" }),
    )
    .filter(
      (delivery) =>
        matchesTokens(spec.pattern.tokens, tokensOf(delivery.topic)) &&
        (!spec.filter || delivery.passes(spec.filter)),
    );
  return {
    deliveries: deliveries.slice(-count),
    last: Math.max(after, frames.at(-1)?.sequence ?? 0),
    isOver: frames.at(-1)?.isEnd ?? false,
  };
}
