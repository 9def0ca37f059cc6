import { breather } from "../../../kit/breather.ts";
import { CelBudget, type CelProgram } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { ReadAheadSize } from "../../../kit/slice-size.ts";
import type { Store } from "../../../store/store.ts";
import type { ChannelSpec } from "./channel.ts";
import { Delivery, type Source } from "./delivery.ts";
import { replayMax, replayScanMax } from "./limits.ts";
import { notesOf } from "./rows.ts";
import { charsOf, literalName, matchesTokens, tokensOf, wantedOf } from "./rules.ts";
import { frameOfNote } from "./run-frames.ts";

/**
 * Cost limit of the filter of one replay, in items as `kit/cel/cel-bounds.ts` counts them; each event adds a
 * little.
 */
export const replayItemsMax = 250_000;
const itemsAnEvent = 100;

/** The computing of one subscription's replay: in bursts, and bounded where it has a filter. */
export type Effort = ReturnType<typeof openEffort>;

export interface EffortOptions {
  environmentId: string;
  clock: Pick<Clock, "elapsed" | "sleep">;
  filter: CelProgram | undefined;
}

export function openEffort({ environmentId, clock, filter }: EffortOptions) {
  // Large events take time to read and to write without any filter.
  const breathe = breather(clock, environmentId);
  if (!filter) return { breathe, next: () => undefined, check() {} };
  const budget = new CelBudget(replayItemsMax);
  return {
    breathe,
    /** The budget for the next event; undefined without a filter. */
    next(): CelBudget | undefined {
      budget.grant(itemsAnEvent);
      return budget;
    },
    /** Throws `resource_exhausted` when the budget is used up. */
    check() {
      if (!budget.isUsedUp) return;
      throw new Fault(
        "resource_exhausted",
        `filter: cost limit of ${replayItemsMax} items for the replay exceeded; replay fewer events, or use a simpler filter`,
        { field: "filter", code: "LIMIT_EXCEEDED" },
      );
    },
  };
}

const sliceFirst = 8;
/**
 * Characters that a replay keeps while it searches; payloads beyond that are read again when they are
 * delivered.
 */
const keptCharsMax = 4 * 1024 * 1024;

/** Few at once, because each may be as large as an event can be. */
const readAgainAtOnce = 4;

/** An entry that a replay has found; without its delivery when the replay has kept enough already. */
export interface ReplayEntry {
  position: number;
  delivery: Delivery | undefined;
}

/**
 * The newest `count` entries of the channel up to and with `last`, in order. Scans at most `replayScanMax`
 * events.
 */
export async function newestOf(
  source: Pick<Source, "newest">,
  spec: ChannelSpec,
  { last, count, effort }: { last: number; count: number; effort: Effort },
): Promise<ReplayEntry[]> {
  const name = literalName(spec.pattern);
  const found: ReplayEntry[] = [];
  const slices = new ReadAheadSize(sliceFirst);
  let chars = 0;
  let below = last;
  for (let scanned = 0; scanned < replayScanMax && found.length < count; ) {
    // The store finds a literal name by itself: every event that it answers is one of the channel.
    const isExact = name !== undefined && !spec.filter;
    const most = isExact ? count - found.length : replayScanMax - scanned;
    const limit = Math.min(slices.limit, most);
    const events = await source.newest(spec.environmentId, { last: below, name }, limit);
    slices.note(events.length, charsOf(events));
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

/** Delivers the found entries in order; those that were not kept are read again. */
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
  /** The position of the hub, which moves during the read. */
  position: () => number;
  isOver: () => boolean;
  effort: Effort;
}

/**
 * A subscriber with a replay reads from the store until it reaches the hub's position, then joins. No `await`
 * separates the last comparison with that position from the return, so no event is skipped or repeated.
 * Throws `failed_precondition` when retention deleted what comes next before it was read: a gap is an error,
 * never silent.
 */
export async function catchUp({ source, spec, give, position, isOver, effort }: CatchUp, after: number) {
  let reached = after;
  const slices = new ReadAheadSize(sliceFirst);
  while (reached < position() && !isOver()) {
    const last = position();
    const limit = slices.limit;
    const events = await source.between(spec.environmentId, { after: reached, last }, limit);
    slices.note(events.length, charsOf(events));
    // Read the floor after the events: retention raises it before it deletes. Events of entities are never
    // deleted.
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
  new Fault("failed_precondition", `positions below ${floor} expired before they were read`);

/** The newest `count` frames of a run behind place `after` of its history, in order. */
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
