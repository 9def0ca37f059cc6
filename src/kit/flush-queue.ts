import type { Clock } from "./clock.ts";
import { type CombineOptions, type Combiner, combine, type Pace } from "./combine.ts";
import { type Watch, watchFlushes, watchWaiting } from "./watch.ts";

/** Weight that may wait in one combiner before callers are refused. */
export const combineWaitingMax = 10_000;
export const combineLanes = 4;
/**
 * Group-commit window: a flush of a busy lane may start this many ms after the previous one began, to gather
 * the callers that there are.
 */
export const combinePaceMs = 16;
/** The same for a flush with an item that a run waits for. */
const awaitedPaceMs = 4;
export const flushItemsMax = 128;

/**
 * This many characters of payload weigh as much as one small item, so that a flush stays small in bytes too.
 */
export const weightChars = 16_384;

/** The weight of items with payloads as JSON text. */
export function weightOfPayloads(items: readonly { data: string; metadata: string | null }[]): number {
  let weight = items.length;
  for (const { data, metadata } of items) weight += (data.length + (metadata?.length ?? 0)) / weightChars;
  return weight;
}

/** The lane of an environment is the same in every flush queue: one tenant's stuck lock stays in its lane. */
export function combineLaneOf(environmentId: string): number {
  let hash = 0;
  for (let place = 0; place < environmentId.length; place++)
    hash = (Math.imul(hash, 31) + environmentId.charCodeAt(place)) | 0;
  return Math.abs(hash) % combineLanes;
}

export interface FlushQueueOptions<Item, Result>
  extends Pick<CombineOptions<Item, Result>, "name" | "weigh" | "keyOf" | "flush" | "isOfItem">,
    Pick<Pace<Item>, "isAwaited" | "share"> {
  clock: Pick<Clock, "elapsed" | "after">;
  watch: Watch;
  environmentOf: (item: Item) => string;
  itemsMax?: number;
  weightMax?: number;
  paceMs?: number;
  /** Whether a flush failed on a lock that one environment's rows hold: its environments then flush apart. */
  isStuck?: (error: unknown) => boolean;
}

/**
 * A combiner for writes of many environments: lanes, pace, weights and metrics as every hot write has them.
 */
export function flushQueue<Item, Result>(options: FlushQueueOptions<Item, Result>): Combiner<Item, Result> {
  const { name, clock, watch, environmentOf, isStuck, weigh, keyOf, flush, isOfItem, isAwaited } = options;
  const { itemsMax = flushItemsMax, weightMax, paceMs = combinePaceMs, share } = options;
  const combiner = combine<Item, Result>({
    name,
    lanes: combineLanes,
    laneOf: (item) => combineLaneOf(environmentOf(item)),
    ...(weigh && { weigh }),
    keyOf,
    itemsMax,
    weightMax,
    waitingMax: combineWaitingMax,
    pace: {
      ...{ clock, ms: paceMs },
      ...(share !== undefined && { share }),
      ...(isAwaited && { isAwaited, awaitedMs: awaitedPaceMs }),
    },
    flush,
    watch: watchFlushes(watch, clock, name),
    isOfItem,
    apart: isStuck && { groupOf: environmentOf, isStuck },
  });
  watchWaiting(watch.metrics, combiner);
  return combiner;
}
