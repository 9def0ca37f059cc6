import { Fault } from "../../../kit/fault.ts";
import { feedSliceMax, replayMax, replayScanMax } from "../../../kit/limits.ts";
import type { Store } from "../../../store/store.ts";
import type { ChannelSpec } from "./channel.ts";
import { Delivery } from "./delivery.ts";
import type { Effort } from "./effort.ts";
import { notesOf } from "./rows.ts";
import { literalName, matchesTokens, tokensOf, wantedOf } from "./rules.ts";
import { frameOfNote } from "./run-frames.ts";
import type { Source, SourceEntry } from "./source.ts";

/** So many letters are read from a log at once for one reader, about: a slice that had more makes the next smaller. */
const sliceCharsMax = 1024 * 1024;
const sliceMin = 1;
const sliceFirst = 8;
/** Of what a replay has found so many are kept until all is found; the rest is read again. */
const keptCharsMax = 4 * 1024 * 1024;

/** How many events are read at once: few of large ones. */
function openSlices() {
  let limit = sliceFirst;
  return {
    limit: () => limit,
    read(events: readonly SourceEntry[]) {
      const chars = events.reduce((sum, { placed }) => sum + (placed[0]?.delivery.data.length ?? 0), 1);
      const fitting = Math.floor((sliceCharsMax * events.length) / chars);
      limit = Math.max(sliceMin, Math.min(fitting, limit * 4, feedSliceMax));
    },
  };
}

/** Each of these may be as large as events are. */
const readAgainAtOnce = 4;

/** One of the past, without what it says when that is too much to keep. */
export interface ReplayEntry {
  position: number;
  delivery: Delivery | undefined;
}

/** The newest `count` of the channel up to and with position `last`, in order. Looks through `limits.replayScanMax` events. */
export async function newestOf(
  source: Pick<Source, "newest">,
  spec: ChannelSpec,
  { last, count, effort }: { last: number; count: number; effort: Effort },
): Promise<ReplayEntry[]> {
  const name = literalName(spec.pattern);
  const found: ReplayEntry[] = [];
  const slices = openSlices();
  let chars = 0;
  let below = last;
  for (let scanned = 0; scanned < replayScanMax && found.length < count; ) {
    // What has neither wildcards nor a filter is found at once.
    const isExact = name !== undefined && !spec.filter;
    const most = isExact ? count - found.length : replayScanMax - scanned;
    const limit = Math.min(slices.limit(), most);
    const events = await source.newest(spec.environmentId, { last: below, name }, limit);
    slices.read(events);
    for (const event of events) {
      if (found.length >= count) break;
      await effort.breathe();
      for (const delivery of wantedOf(spec, event, effort.next()).reverse()) {
        chars += delivery.data.length;
        found.push({ position: event.position, delivery: chars > keptCharsMax ? undefined : delivery });
      }
      effort.check();
    }
    scanned += events.length;
    if (events.length < limit) break;
    below = events.at(-1)!.position - 1;
  }
  return found.slice(0, count).reverse();
}

/** What was found, one after the other; what was not kept is read again. */
export async function* deliveriesFound(
  source: Pick<Source, "at">,
  spec: ChannelSpec,
  found: readonly ReplayEntry[],
  { breathe }: Pick<Effort, "breathe">,
): AsyncGenerator<Delivery> {
  const asFound = { pattern: spec.pattern, filter: undefined };
  for (let from = 0; from < found.length; ) {
    await breathe();
    const kept = found[from]!.delivery;
    if (kept) {
      yield kept;
      from++;
      continue;
    }
    const slice = found.slice(from, from + readAgainAtOnce);
    const dropped = slice.filter(({ delivery }) => !delivery).map(({ position }) => position);
    const read = new Map(
      (await source.at(spec.environmentId, dropped)).map((entry) => [entry.position, entry]),
    );
    for (const { position, delivery } of slice) {
      const entry = read.get(position);
      if (delivery) yield delivery;
      else if (entry) yield* wantedOf(asFound, entry);
    }
    from += slice.length;
  }
}

export interface CatchUp {
  source: Pick<Source, "between" | "head">;
  spec: ChannelSpec;
  give: (delivery: Delivery) => void | Promise<void>;
  /** Where the channel is now; it moves meanwhile. */
  position: () => number;
  isOver: () => boolean;
  effort: Effort;
}

/**
 * From behind `after` up to the channel's own place; answers the place that was reached, with nothing awaited since. Throws
 * `failed_precondition` when retention took what comes next before it was read: nothing is left out in silence.
 */
export async function catchUp({ source, spec, give, position, isOver, effort }: CatchUp, after: number) {
  let reached = after;
  const slices = openSlices();
  while (reached < position() && !isOver()) {
    const last = position();
    const limit = slices.limit();
    const events = await source.between(spec.environmentId, { after: reached, last }, limit);
    slices.read(events);
    // Looked at behind the read: the floor is raised before anything goes. Events of streams stay.
    const floor = (await source.head(spec.environmentId))?.retention_floor ?? 0;
    if (reached < floor - 1 && spec.pattern.namespace !== "entity") throw expired(floor);
    for (const event of events) {
      await effort.breathe();
      if (isOver()) return reached;
      const passing = wantedOf(spec, event, effort.next());
      effort.check();
      for (const delivery of passing) {
        if (isOver()) return reached;
        const full = give(delivery);
        if (full) await full;
      }
      reached = event.position;
    }
    if (events.length < limit) reached = last;
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
  { after, count, effort }: { after: number; count: number; effort: Effort },
): Promise<{ deliveries: Delivery[]; last: number; isOver: boolean }> {
  const notes = await notesOf(store, [runId], replayMax);
  const frames = notes
    .filter((note) => note.environment_id === spec.environmentId)
    .map(frameOfNote)
    .reverse();
  const fresh = frames.filter(({ sequence }) => sequence > after);
  const deliveries: Delivery[] = [];
  for (const { topic, data, at, sequence } of fresh) {
    if (!matchesTokens(spec.pattern.tokens, tokensOf(topic))) continue;
    await effort.breathe();
    const facts = { eventId: undefined, custom: null, source: "system" } as const;
    const delivery = new Delivery({ ...facts, topic, data, at, sequence });
    if (!spec.filter || delivery.passes(spec.filter, effort.next())) deliveries.push(delivery);
    effort.check();
  }
  return {
    deliveries: deliveries.slice(-count),
    last: Math.max(after, frames.at(-1)?.sequence ?? 0),
    isOver: frames.at(-1)?.isEnd ?? false,
  };
}
