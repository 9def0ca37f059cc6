import type { Instant } from "../../../kit/clock.ts";
import { batchBytesMax } from "./limits.ts";

/** An event that waits in a batch. */
export interface BatchedEvent {
  position: number;
  eventId: string;
  bytes: number;
  /** When it was logged. */
  at: Instant;
}

/** How the events that a function and a key have open become runs. */
export interface BatchPlan {
  /** The events of each run, in their order. */
  runs: BatchedEvent[][];
  /** The first event that still waits; undefined for none. */
  next: BatchedEvent | undefined;
  /** Events that still wait are not looked at before this time; left out for none. */
  notBefore?: Instant;
}

/**
 * Full batches, and what is left when its first event has waited for its time. `waiting` are the first
 * events, in their order; `isAll` says that there are no others.
 */
export function planBatches(
  waiting: readonly BatchedEvent[],
  { size, timeoutMs, isAll }: { size: number; timeoutMs: number; isAll: boolean },
  now: Instant,
): BatchPlan {
  const runs: BatchedEvent[][] = [];
  let from = 0;
  while (from < waiting.length) {
    const { to, isFull } = endOf(waiting, from, size);
    if (!isFull && !(isAll && waiting[from]!.at + timeoutMs <= now)) break;
    runs.push(waiting.slice(from, to));
    from = to;
  }
  return { runs, next: waiting[from] };
}

/** Where the batch that begins at `from` ends: before the event that is too many, or whose bytes are. */
function endOf(
  waiting: readonly BatchedEvent[],
  from: number,
  size: number,
): { to: number; isFull: boolean } {
  let bytes = 0;
  for (let to = from; to < waiting.length; to++) {
    bytes += waiting[to]!.bytes;
    if (to > from && (to - from === size || bytes > batchBytesMax)) return { to, isFull: true };
  }
  return {
    to: waiting.length,
    isFull: waiting.length - from === size || bytes >= batchBytesMax,
  };
}
